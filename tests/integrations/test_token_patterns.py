"""Which tokens can come, by the definition: some text of the pattern goes on with them."""

from __future__ import annotations

import random
import re
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("transformers")

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import ByT5Tokenizer, PreTrainedTokenizerFast

from tests.integrations.test_token_automata import byte_level, bytewise, sentencepiece
from transductor.automata import DFA, regex
from transductor.integrations.huggingface import TokenPattern, TokenVocabulary
from transductor.integrations.huggingface.token_patterns import ENDED, LEFT

PATTERNS = [
    r"[0-9]{2,4}-(0[1-9]|1[0-2])",
    r"(ab|ba)*",
    r"[^x]{1,3}x?",
    r"(é|[a-b]|🙂)+",
    r"(?i:AB|É)*",
    r"\w{1,2}",
    r"if \(a|\) return.?",
    r"漢字?",
]


@cache
def vocabulary(make):
    return TokenVocabulary(make())


@cache
def lacking_bytes():
    """A tokenizer with ``a``, ``b`` and ``cd``, but neither ``c`` nor ``d`` alone."""
    built = Tokenizer(models.BPE({"<s>": 0, "a": 1, "b": 2, "cd": 3, "ac": 4, "<unk>": 5}, [], unk_token="<unk>"))
    built.pre_tokenizer, built.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=built, eos_token="<s>", unk_token="<unk>")


def sampled(pattern, most=12):
    """Return the tokens of a random text that the pattern allows, and whether it was ended."""
    state, tokens = pattern.start, []
    while len(tokens) < most:
        token = random.choice(pattern.allowed(state).nonzero()[:, 0].tolist())
        if token in pattern.vocabulary.ends:
            return tokens, True
        tokens.append(token)
        state = pattern.after(state, token)
        assert state >= 0
    return tokens, False


def text_of(pattern, tokens):
    """Return what tokens spell, without the space that a tokenizer writes before a text."""
    spelled = b"".join(pattern.vocabulary.bytes_of(token) for token in tokens)
    if pattern.vocabulary.leading_space and spelled.startswith(b" "):
        spelled = spelled[1:]
    return spelled


def shortest_end(pattern, state):
    """Return tokens that complete the pattern from ``state``, found by breadth first through what is allowed."""
    paths = {state: []}
    for here in (pending := [state]):
        if pattern.accepting[here]:
            return paths[here]
        for token in pattern.allowed(here).nonzero()[:, 0].tolist():
            there = pattern.after(here, token)
            if there not in paths:
                paths[there] = [*paths[here], token]
                pending.append(there)
    return None


@pytest.fixture(autouse=True)
def seeded():
    random.seed(0)


@pytest.mark.parametrize("make", [byte_level, sentencepiece, bytewise])
@pytest.mark.parametrize("expression", PATTERNS)
def test_what_is_allowed_can_be_completed_and_what_ends_matches(make, expression):
    pattern = TokenPattern(expression, vocabulary(make))
    for _ in range(20):
        tokens, ended = sampled(pattern)
        if not ended:
            state = pattern.start
            for token in tokens:
                state = pattern.after(state, token)
            rest = shortest_end(pattern, state)
            assert rest is not None
            tokens += rest
        assert re.fullmatch(expression, text_of(pattern, tokens).decode()), tokens


@pytest.mark.parametrize("make", [byte_level, sentencepiece, bytewise])
@pytest.mark.parametrize("expression", [r"(ab|ba){0,2}", r"[0-9]{2}-(0[1-9]|1[0-2])", r"(é|b|🙂){1,2}", r"漢字?|\("])
def test_every_token_is_judged_as_by_all_texts_of_a_finite_pattern(make, expression):
    pattern = TokenPattern(expression, vocabulary(make))
    texts = {"".join(word).encode() for word in regex(expression).words(8)}
    if pattern.vocabulary.leading_space:
        texts |= {b" " + text for text in texts}
    for _ in range(8):
        tokens, _ = sampled(pattern, random.randint(0, 4))
        state = pattern.start
        for token in tokens:
            state = pattern.after(state, token)
        before = b"".join(pattern.vocabulary.bytes_of(token) for token in tokens)
        for token, allowed in enumerate(pattern.allowed(state).tolist()):
            spelled = pattern.vocabulary.bytes_of(token)
            if token in pattern.vocabulary.ends:
                assert allowed == (before in texts)
            else:
                assert allowed == (bool(spelled) and any(text.startswith(before + spelled) for text in texts)), token


LETTERS = st.sampled_from(["a", "b", "é", "漢", "[ab]", "[^a]", ".", r"\d", "(?:a|bé)", "1"])
EXPRESSIONS = st.recursive(
    LETTERS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{1,2}", "{2}"])).map(
            lambda parts: f"(?:{parts[0]}){parts[1]}"
        ),
    ),
    max_leaves=6,
)


@given(expression=EXPRESSIONS, text=st.text("abé漢1 \n🙂", max_size=6), seed=st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_random_expressions_against_re(expression, text, seed):
    random.seed(seed)
    pattern = TokenPattern(expression, vocabulary(byte_level))
    tokens, ended = sampled(pattern)
    assert not ended or re.fullmatch(expression, text_of(pattern, tokens).decode())
    state, _ = pattern.after_bytes(pattern.text_start, text.encode())
    assert (state >= 0 and bool(pattern.accepting[state])) == bool(re.fullmatch(expression, text))


def test_half_characters_are_never_the_end_and_never_wrong():
    pattern = TokenPattern(r"[^a]+", vocabulary(bytewise))
    state, characters = pattern.after_bytes(pattern.start, "é".encode()[:1])
    assert characters == 0
    assert not pattern.accepting[state]
    allowed = {pattern.vocabulary.bytes_of(token)[0] for token in pattern.allowed(state).nonzero()[:, 0].tolist()}
    assert allowed == set(range(0x80, 0xC0))
    first = {pattern.vocabulary.bytes_of(token)[0] for token in pattern.allowed(pattern.start).nonzero()[:, 0].tolist()}
    assert first == {*range(0x80), *range(0xC2, 0xF5)} - {ord("a")}
    for bytes_, valid in ((b"\xed\xa0", False), (b"\xe0\x80", False), (b"\xf4\x90", False), (b"\xf0\x8f", False)):
        assert (pattern.after_bytes(pattern.start, bytes_)[0] != LEFT) is valid
    for character in ("\x7f", "\x80", "\u07ff", "\u0800", "\ud7ff", "\ue000", "\uffff", "\U00010000", "\U0010ffff"):
        state, characters = pattern.after_bytes(pattern.start, character.encode())
        assert pattern.accepting[state]
        assert characters == 1


def test_dead_ends_through_the_tokenizer_are_never_entered():
    tokenizer = lacking_bytes()
    # After "ac" only "d" would go on, which is no token; "a" and then "cd" is the way.
    pattern = TokenPattern("acd|b", tokenizer)
    allowed = pattern.allowed(pattern.start).nonzero()[:, 0].tolist()
    assert tokenizer.convert_ids_to_tokens(allowed) == ["a", "b"]
    state = pattern.after(pattern.start, 1)
    assert pattern.allowed(state).nonzero()[:, 0].tolist() == [3]
    assert pattern.after(pattern.start, 4) == LEFT
    with pytest.raises(ValueError, match=r"spell a text of 'a\*d'"):
        TokenPattern("a*d", tokenizer)


def test_the_end_comes_where_the_pattern_is_complete():
    pattern = TokenPattern("a|ab", vocabulary(byte_level))
    end = byte_level().eos_token_id
    a = byte_level().convert_tokens_to_ids("a")
    assert not pattern.allowed(pattern.start)[end]
    assert pattern.after(pattern.start, end) == LEFT
    state = pattern.after(pattern.start, a)
    assert pattern.allowed(state)[end]
    assert pattern.after(state, end) == ENDED
    assert pattern.after(ENDED, a) == ENDED  # what comes after the end is padding
    assert pattern.after(state, byte_level().pad_token_id) == ENDED
    assert pattern.after(state, byte_level().bos_token_id) == LEFT
    assert pattern.after(state, 10**6) == LEFT
    for gone in (LEFT, ENDED):
        assert pattern.allowed(gone).nonzero()[:, 0].tolist() == [end]


def test_several_ends_and_rows_beyond_the_tokenizer():
    several = TokenVocabulary(byte_level(), vocab_size=512, eos_token_id=[0, 2])
    pattern = TokenPattern("a?", several)
    allowed = pattern.allowed(pattern.start)
    assert allowed.shape == (512,)
    assert allowed[[0, 2]].all()
    assert not allowed[len(byte_level()) :].any()
    with pytest.raises(ValueError, match="given to the TokenVocabulary"):
        TokenPattern("a", several, vocab_size=512)
    with pytest.raises(ValueError, match="tokens from 0 to 511"):
        TokenVocabulary(byte_level(), vocab_size=512, eos_token_id=512)


def test_the_masks_of_states_keep_to_their_memory():
    vocabulary_ = vocabulary(byte_level)
    pattern = TokenPattern("[ab]{20}", vocabulary_, most_bytes=4 * vocabulary_.size * 3)
    first = pattern.allowed(pattern.start).clone()
    for state in range(20):
        pattern.allowed(state)
    assert len(pattern._rows) == 3
    assert torch.equal(pattern.allowed(pattern.start), first)


def test_an_automaton_over_characters():
    parity = DFA.from_partial("ab", {(0, "a"): 1, (1, "a"): 0, (0, "b"): 0, (1, "b"): 1}, 0, {1})
    pattern = TokenPattern(parity, vocabulary(byte_level))
    for _ in range(20):
        tokens, ended = sampled(pattern)
        text = text_of(pattern, tokens).decode()
        assert set(text) <= {"a", "b"}
        assert not ended or parity(text)


@pytest.mark.parametrize("make", [byte_level, sentencepiece, bytewise])
@pytest.mark.parametrize("expression", [r"[^x]*x?", r"(é|[a-b]|🙂)*", r"(ab|ba)*"])
def test_the_sidecar_has_the_state_of_the_pattern_between_characters(make, expression):
    pattern = TokenPattern(expression, vocabulary(make))
    compiled = pattern.sidecar()
    between = compiled.automaton.states
    compared = 0
    for _ in range(20):
        tokens, _ = sampled(pattern)
        state = pattern.start
        if tokens:
            followed = compiled.head(compiled.token_classes[torch.tensor([tokens])])[0].argmax(-1).tolist()
            for token, other in zip(tokens, followed, strict=True):
                state = pattern.after(state, token)
                if state < between:
                    assert other == state
                    compared += 1
    assert compared > 20


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="matches none"):
        TokenPattern(r"a[^\s\S]", vocabulary(byte_level))
    with pytest.raises(ValueError, match="not valid at position 0"):
        TokenPattern("(", vocabulary(byte_level))
    with pytest.raises(ValueError, match="end-of-sequence token"):
        TokenPattern("a", PreTrainedTokenizerFast(tokenizer_object=byte_level().backend_tokenizer))
    with pytest.raises(ValueError, match="most_bytes must be"):
        TokenPattern("a", ByT5Tokenizer(), most_bytes=0)
    with pytest.raises(TypeError, match="a pattern, a DFA or an NFA"):
        TokenPattern(3, vocabulary(byte_level))
    with pytest.raises(ValueError, match=r"flags=re\.ASCII"):
        TokenPattern(r"\w{250}", vocabulary(byte_level))
