"""A monitor says after each piece whether the pattern can still be completed, and where it was left."""

from __future__ import annotations

import random
import re

import pytest

pytest.importorskip("transformers")

from tests.integrations.test_token_automata import byte_level, bytewise, sentencepiece
from transductor.integrations.huggingface import PatternMonitor, TokenPattern
from transductor.integrations.huggingface.pattern_monitor import Verdict

DATE = r"[0-9]{4}-(0[1-9]|1[0-2])(é🙂)?"


def test_text_piece_by_piece():
    monitor = PatternMonitor(TokenPattern(DATE, byte_level()))
    assert monitor.feed("20") == [Verdict("open", 2)]
    assert monitor.feed("") == [Verdict("open", 2)]
    assert monitor.feed("24-1") == [Verdict("open", 6)]
    assert monitor.feed("2") == [Verdict("complete", 7)]
    assert monitor.feed("é🙂".encode()[:4]) == [Verdict("open", 8)]
    assert monitor.feed("é🙂".encode()[4:]) == [Verdict("complete", 9)]
    assert monitor.feed("!") == [Verdict("violated", 9, 9)]
    assert monitor.feed("2024-11") == [Verdict("violated", 9, 9)]


def test_several_streams_of_text_and_tokens():
    tokenizer = byte_level()
    pattern = TokenPattern(DATE, tokenizer)
    monitor = PatternMonitor(pattern, 3)
    tokens = tokenizer("2024-11é", add_special_tokens=False)["input_ids"]
    verdicts = monitor.feed(
        "2024-13", tokens, tokenizer("2024", add_special_tokens=False, return_tensors="pt").input_ids[0]
    )
    assert verdicts == [Verdict("violated", 6, 6), Verdict("open", 8), Verdict("open", 4)]
    verdicts = monitor.feed("", tokenizer("🙂")["input_ids"], tokenizer.eos_token_id)
    assert verdicts == [Verdict("violated", 6, 6), Verdict("complete", 9), Verdict("violated", 4, 4)]
    verdicts = monitor.feed("", tokenizer.eos_token_id, 5)
    assert [verdict.status for verdict in verdicts] == ["violated", "complete", "violated"]
    assert monitor.feed("", tokenizer.pad_token_id, 5)[1] == Verdict("complete", 9)
    with pytest.raises(ValueError, match="each of the 3 streams; got 1"):
        monitor.feed("a")


def test_the_space_that_a_tokenizer_writes_is_not_counted():
    tokenizer = sentencepiece()
    tokens = tokenizer("12-x", add_special_tokens=False)["input_ids"]
    assert PatternMonitor(TokenPattern("[0-9]+-[0-9]", tokenizer)).feed(tokens) == [Verdict("violated", 3, 3)]
    assert PatternMonitor(TokenPattern("[0-9]+-x", tokenizer)).feed(tokens) == [Verdict("complete", 4)]
    assert PatternMonitor(TokenPattern("[0-9]+-x", tokenizer)).feed(" 12") == [Verdict("violated", 0, 0)]


@pytest.mark.parametrize("expression", [r"(ab|ba)*é", r"[^x]{2,4}x?", r"a{3}(b|🙂)*"])
def test_the_place_is_where_no_continuation_matches(expression):
    """Brute force over all short continuations."""
    random.seed(0)
    pattern = TokenPattern(expression, bytewise())
    letters = "abé🙂x"
    ends = [""]
    for _ in range(4):
        ends += [letter + end for end in ends for letter in letters if len(letter + end) <= 4]
    ends = set(ends)
    for _ in range(30):
        text = "".join(random.choices(letters, k=random.randint(0, 5)))
        (verdict,) = PatternMonitor(pattern).feed(text)
        fitting = [n for n in range(len(text) + 1) if any(re.fullmatch(expression, text[:n] + end) for end in ends)]
        assert verdict.characters == max(fitting)
        assert verdict.violated_at == (None if max(fitting) == len(text) else max(fitting))
        assert (verdict.status == "complete") == bool(re.fullmatch(expression, text))
