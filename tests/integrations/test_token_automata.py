"""The state of a compiled head after the tokens of a text is the automaton's after its characters."""

from __future__ import annotations

import json
import random
import re
from functools import cache

import pytest
import torch

pytest.importorskip("transformers")

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import ByT5Tokenizer, PreTrainedTokenizerFast

from transductor.automata import DFA, regex
from transductor.integrations.huggingface.token_automata import compile_for_tokens, spelling_classes
from transductor.integrations.huggingface.token_spelling import CannotSpell, spelled_tokens

CORPUS = [
    "if (a == b) { return [x, y]; } // naïve café",
    "(()) [[]] {{}} aab abab abba 漢字 かな 🙂🙃",
    'say "hi", 12 + 345',
]
LETTERS = "ab ()[]x1é漢🙂\n"
PATTERNS = [
    r"(ab|ba)*",
    r"[^x]*x?",
    r"(?:[^()]|\([^()]*\))*",
    r"(é|[a-b]|🙂)*",
    r"(?s:.)*é(?s:.)",
    r"(?i:AB|É)*",
    r"(?a:\w|\s)*",
]


@cache
def byte_level():
    built = Tokenizer(models.BPE())
    built.pre_tokenizer, built.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    special = {"special_tokens": ["<pad>", "<s>", "</s>"], "initial_alphabet": pre_tokenizers.ByteLevel.alphabet()}
    built.train_from_iterator(CORPUS * 50, trainers.BpeTrainer(vocab_size=400, show_progress=False, **special))
    return PreTrainedTokenizerFast(tokenizer_object=built, bos_token="<s>", eos_token="</s>", pad_token="<pad>")


@cache
def sentencepiece():
    built = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    built.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    built.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    words = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    # Nothing beyond ASCII is in its alphabet, so all of it falls back to bytes.
    corpus = [text.encode("ascii", "ignore").decode() for text in CORPUS] * 50
    built.train_from_iterator(
        corpus, trainers.BpeTrainer(vocab_size=400, special_tokens=words[:3], show_progress=False)
    )
    vocabulary = {**built.get_vocab()}
    for word in words[3:]:
        vocabulary.setdefault(word, len(vocabulary))
    state = json.loads(built.to_str())
    state["model"]["vocab"] = vocabulary
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(state)), bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


@cache
def bytewise():
    return ByT5Tokenizer()


TOKENIZERS = [byte_level, sentencepiece, bytewise]


def random_text(length, letters=LETTERS):
    return "".join(random.choices(letters, k=length))


def states(compiled, tokenizer, text):
    """Return the state (D) after all tokens of ``text``, and the tokens."""
    ids = torch.tensor([tokenizer(text, add_special_tokens=False)["input_ids"]])
    if ids.numel() == 0:
        return compiled.head.initial_state()
    return compiled.head(compiled.token_classes[ids])[0, -1]


@pytest.fixture(autouse=True)
def seeded():
    random.seed(0)


@pytest.mark.parametrize("make", TOKENIZERS)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_language_is_that_of_re(make, pattern):
    tokenizer = make()
    compiled = compile_for_tokens(pattern, tokenizer)
    verdicts = set()
    texts = [random_text(random.randint(1, 12)) for _ in range(60)]
    texts += [random_text(random.randint(1, 6), "abé") for _ in range(20)]
    for text in texts:
        state = states(compiled, tokenizer, text)
        assert state.sum() == 1
        assert state.max() == 1  # one-hot, not merely close
        accepted = bool(compiled.accepting[state.argmax()])
        assert accepted == bool(re.fullmatch(pattern, text)), text
        verdicts.add(accepted)
    assert verdicts == {True, False}


@pytest.mark.parametrize("make", TOKENIZERS)
def test_the_state_is_the_automatons_at_ten_thousand_characters(make):
    tokenizer = make()
    dfa = regex(r"(?:[^()]|\((?:[^()]|\([^()]*\))*\))*", tuple(sorted({*LETTERS, "é", "漢", "🙂"})))
    compiled = compile_for_tokens(dfa, tokenizer, others="dead")
    for text in (random_text(10_000), "(a(b)é)漢" * 1250, "(a(b)é)漢" * 1250 + "("):
        assert len(text) >= 10_000
        state = states(compiled, tokenizer, text)
        where = dfa.run(text)
        assert torch.equal(state, torch.eye(compiled.head.state_dim)[where])
        assert bool(compiled.accepting[where]) == dfa(text)
    assert dfa("(a(b)é)漢" * 1250)


def test_characters_nobody_wrote_about():
    """Letters and digits of other scripts count as letters and digits, as they do for ``re``."""
    tokenizer = bytewise()
    compiled = compile_for_tokens(r"a\sb|c.d|[^e]f", tokenizer)
    for text in ("a\u2003b", "aéb", "c٣d", "c\nd", "éf", "ef", "\U0001d7ddf"):
        state = states(compiled, tokenizer, text)
        assert bool(compiled.accepting[state.argmax()]) == bool(re.fullmatch(r"a\sb|c.d|[^e]f", text)), text


def test_tokens_that_act_alike_share_a_letter():
    compiled = compile_for_tokens(r"(?s:.*)x", byte_level())
    assert compiled.head.transitions.vocab_size == 3  # ends in x, ends in anything else, does nothing
    assert compiled.head.state_dim == 2
    assert compiled.token_classes.shape == (len(byte_level()),)


def test_special_tokens_leave_the_state_or_begin_anew():
    tokenizer = byte_level()
    text = tokenizer("ab", add_special_tokens=False)["input_ids"]
    for treatment, accepted in (("identity", False), ("restart", True)):
        compiled = compile_for_tokens(r"ab", tokenizer, special_tokens=treatment)
        ids = torch.tensor([[*text, tokenizer.eos_token_id, *text]])
        state = compiled.head(compiled.token_classes[ids])[0, -1]
        assert bool(compiled.accepting[state.argmax()]) is accepted


def test_rows_beyond_the_tokenizer_do_nothing():
    compiled = compile_for_tokens(r"a", byte_level(), vocab_size=512)
    assert compiled.token_classes.shape == (512,)
    ids = torch.tensor([[511, *byte_level()("a", add_special_tokens=False)["input_ids"], 450]])
    assert compiled.accepting[compiled.head(compiled.token_classes[ids])[0, -1].argmax()]
    with pytest.raises(ValueError, match="vocab_size must be at least"):
        compile_for_tokens(r"a", byte_level(), vocab_size=5)


def test_over_tokens():
    tokenizer = byte_level()
    a, b = tokenizer.convert_tokens_to_ids(["a", "b"])
    parity = {(0, a): 1, (1, a): 0, (0, "b"): 0, (1, "b"): 1}
    dfa = DFA.from_partial((a, "b"), parity, 0, {1})
    compiled = compile_for_tokens(dfa, tokenizer, over="tokens")
    ids = torch.randint(0, len(tokenizer), (1, 300))
    ids[0, ::7], ids[0, ::5] = a, b
    state = compiled.head(compiled.token_classes[ids])[0, -1]
    assert int(state.argmax()) == int((ids == a).sum()) % 2
    with pytest.raises(ValueError, match="it has 'no such token'"):
        compile_for_tokens(DFA.from_partial(("no such token",), {}, 0, ()), tokenizer, over="tokens")
    with pytest.raises(TypeError, match="over token ids"):
        compile_for_tokens("a*", tokenizer, over="tokens")


def test_a_tokenizer_that_changes_the_text_is_refused():
    built = Tokenizer(models.BPE())
    built.normalizer, built.decoder = normalizers.Lowercase(), decoders.ByteLevel()
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = {"initial_alphabet": pre_tokenizers.ByteLevel.alphabet(), "show_progress": False}
    built.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=300, **alphabet))
    with pytest.raises(CannotSpell, match="keep the text as it is"):
        spelled_tokens(PreTrainedTokenizerFast(tokenizer_object=built))


def test_a_tokenizer_of_words_is_refused():
    built = Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1, "##b": 2}, unk_token="[UNK]"))
    built.decoder = decoders.WordPiece()
    with pytest.raises(CannotSpell, match="decodes by WordPiece"):
        compile_for_tokens("a*", PreTrainedTokenizerFast(tokenizer_object=built, unk_token="[UNK]"))


def test_too_many_characters_apart_are_refused_with_advice():
    with pytest.raises(ValueError, match=r"flags=re\.ASCII"):
        compile_for_tokens(r"\w*", bytewise())
    assert compile_for_tokens(r"\w*", bytewise(), flags=re.ASCII).head.state_dim == 2


@pytest.mark.parametrize(("option", "value"), [("over", "bytes"), ("special_tokens", "drop"), ("others", "ignore")])
def test_unknown_options_are_refused(option, value):
    with pytest.raises(ValueError, match=f"{option} must be one of"):
        compile_for_tokens("a", bytewise(), **{option: value})


def test_tokens_that_spell_the_same_share_a_class():
    tokenizer = byte_level()
    classes = spelling_classes(tokenizer, "()", vocab_size=500).tolist()
    spelled = [None if each is None else bytes(b for b in each if b in b"()") for each in spelled_tokens(tokenizer)]
    spelled += [b""] * (500 - len(spelled))
    assert len(classes) == 500
    assert classes[499] == 0
    pairs = set(zip(spelled, classes, strict=True))
    assert len(pairs) == len(set(spelled)) == len(set(classes))  # one class for each way, one way for each class
    assert {b"", b"(", b")", b"((", None} <= {way for way, _ in pairs}
    with pytest.raises(ValueError, match="ASCII"):
        spelling_classes(tokenizer, "é")
