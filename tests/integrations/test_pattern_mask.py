"""What ``generate`` writes under a mask fits the pattern, however it searches."""

from __future__ import annotations

import re

import pytest
import torch

pytest.importorskip("transformers")

from transformers import LlamaConfig, LlamaForCausalLM

from tests.integrations.test_token_automata import byte_level
from transductor.integrations.huggingface import PatternMask, PatternMonitor, TokenPattern, TokenVocabulary

DATE = r"[0-9]{4}-(0[1-9]|1[0-2])"
LIST = r"\[(?:[ab(){}é]{1,5}, ){1,3}x\]"


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    size = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4}
    return LlamaForCausalLM(LlamaConfig(vocab_size=len(byte_level()), **size)).eval()


@pytest.fixture(scope="module")
def vocabulary():
    return TokenVocabulary(byte_level())


def prompts(*texts):
    tokenizer = byte_level()
    tokenizer.padding_side = "left"
    return tokenizer(
        list(texts), padding=True, return_tensors="pt", add_special_tokens=False, return_token_type_ids=False
    )


def written(model, pattern, inputs, **options):
    """Return the texts that ``generate`` wrote under a mask, and all its tokens."""
    torch.manual_seed(1)
    length = inputs.input_ids.shape[1]
    mask = PatternMask(pattern, length)
    ends = {"eos_token_id": byte_level().eos_token_id, "pad_token_id": byte_level().pad_token_id}
    rows = model.generate(**inputs, logits_processor=[mask], max_new_tokens=40, **ends, **options)
    return byte_level().batch_decode(rows[:, length:], skip_special_tokens=True), rows


@pytest.mark.parametrize(
    "options",
    [
        {"do_sample": False},
        {"do_sample": True},
        {"do_sample": True, "num_return_sequences": 4, "top_k": 5},
        {"num_beams": 4, "do_sample": False},
        {"num_beams": 3, "do_sample": True, "num_return_sequences": 2},
        {"do_sample": False, "use_cache": False},
    ],
)
@pytest.mark.parametrize("expression", [DATE, LIST])
def test_unequal_prompts_padded_on_the_left(model, vocabulary, expression, options):
    pattern = TokenPattern(expression, vocabulary)
    texts, _ = written(model, pattern, prompts("when?", "say (a, b): ", "x"), **options)
    assert texts
    for text in texts:
        assert re.fullmatch(expression, text), text


@pytest.mark.parametrize("sample", [False, True])
def test_prompt_lookup_and_an_assistant(model, vocabulary, sample):
    torch.manual_seed(3)
    assistant = LlamaForCausalLM(model.config).eval()
    for expression, prompt in ((DATE, "on 2021-07, 2021-0"), (r"(?:ab|ba|12){3,9}", "ab ab ba abab 1212 ab")):
        pattern = TokenPattern(expression, vocabulary)
        inputs = prompts(prompt)
        for options in ({"prompt_lookup_num_tokens": 3}, {"assistant_model": assistant}):
            texts, rows = written(model, pattern, inputs, do_sample=sample, **options)
            assert re.fullmatch(expression, texts[0]), texts
            if not sample:
                assert torch.equal(rows, written(model, pattern, inputs, do_sample=False)[1])


def test_states_are_found_again_whatever_happens_to_the_rows(vocabulary):
    """Rows that change places, become shorter, return or are new have the state that reading them afresh gives."""
    pattern = TokenPattern(LIST, vocabulary)
    generator = torch.Generator().manual_seed(0)
    mask = PatternMask(pattern, 2)
    rows = torch.zeros(6, 2, dtype=torch.long)
    history = [rows]
    for _ in range(60):
        choice = torch.rand((), generator=generator)
        if choice < 0.2:
            rows = history[int(torch.randint(len(history), (), generator=generator))]
        rows = rows[torch.randint(len(rows), (6,), generator=generator)]
        scores = mask(rows, torch.zeros(6, vocabulary.size))
        assert mask.states(rows) == PatternMask(pattern, 2).states(rows)
        rows = torch.cat((rows, torch.multinomial(scores.exp(), 1, generator=generator)), 1)
        history.append(rows)
    assert len(mask._known) <= 64 + 8 * 6


def test_a_mask_agrees_with_a_monitor(model, vocabulary):
    pattern = TokenPattern(LIST, vocabulary)
    inputs = prompts("when?", "say")
    _, rows = written(model, pattern, inputs, do_sample=True)
    length = inputs.input_ids.shape[1]
    mask, monitor = PatternMask(pattern, length), PatternMonitor(pattern, 2)
    for place in range(length, rows.shape[1]):
        verdicts = monitor.feed(*rows[:, place].tolist())
        assert monitor.states == mask.states(rows[:, : place + 1])
        assert all(verdict.status != "violated" for verdict in verdicts)
    assert [verdict.status for verdict in verdicts] == ["complete"] * 2


def test_scores_that_can_come_are_not_changed(vocabulary):
    pattern = TokenPattern("[ab]+", vocabulary)
    scores = torch.randn(2, vocabulary.size, dtype=torch.bfloat16)
    kept = scores.clone()
    masked = PatternMask(pattern, 1)(torch.zeros(2, 1, dtype=torch.long), scores)
    allowed = pattern.allowed(pattern.start)
    assert masked.dtype == torch.bfloat16
    assert torch.equal(masked[:, allowed], kept[:, allowed])
    assert torch.equal(scores, kept)
    assert (masked[:, ~allowed] == -torch.inf).all()


def test_few_texts_and_many_beams(model, vocabulary):
    """Two texts for four beams: rows of score −∞ leave the pattern, and the best row does not."""
    texts, _ = written(model, TokenPattern("ab|ba", vocabulary), prompts("a", "when"), num_beams=4, do_sample=False)
    assert set(texts) <= {"ab", "ba"}


def test_errors_say_what_to_do(vocabulary):
    pattern = TokenPattern("[ab]+", vocabulary)
    mask = PatternMask(pattern, 2)
    scores = torch.zeros(2, vocabulary.size)
    x = byte_level().convert_tokens_to_ids("x")
    a = byte_level().convert_tokens_to_ids("a")
    with pytest.raises(ValueError, match="build the pattern with vocab_size=7"):
        mask(torch.zeros(1, 2, dtype=torch.long), torch.zeros(1, 7))
    with pytest.raises(ValueError, match="at least the prompt's 2 tokens"):
        mask(torch.zeros(1, 1, dtype=torch.long), scores[:1])
    with pytest.raises(ValueError, match=f"row 1 must fit .* token {x} at place 1"):
        mask(torch.tensor([[5, 6, a, a], [7, 6, a, x]]), scores)
    siblings = mask(torch.tensor([[5, 6, a, a], [5, 6, a, x]]), scores)  # as beams are
    assert torch.isfinite(siblings[1]).nonzero()[:, 0].tolist() == [byte_level().eos_token_id]
    with pytest.raises(ValueError, match="prompt_length must be at least 0"):
        PatternMask(pattern, -1)
