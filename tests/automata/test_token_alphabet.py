"""Alphabets of tokens: a machine over letters and the same one over tokens, with what comes before a word."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from transductor.automata import IGNORED, MooreMachine, TokenAlphabet, regex

NAMES = ["<start>", "<end>", "<unknown>", "a", "b"]


def machine():
    return MooreMachine.from_dfa(regex("(ab)*", ["a", "b"]))


def test_names_say_which_tokens_are_letters():
    alphabet = TokenAlphabet.of_names(NAMES)
    assert (alphabet.begin, alphabet.letters, alphabet.letter_names) == (0, (3, 4), ("a", "b"))
    assert alphabet.restricted
    assert alphabet.shows_empty_word
    plain = TokenAlphabet.of_names("ab")
    assert (plain.begin, plain.letters, plain.domain()) == (None, (0, 1), None)
    assert not plain.shows_empty_word
    assert not TokenAlphabet.of_names(NAMES, empty_word=False).shows_empty_word
    for letters, begin in (((), None), ((1, 1), None), ((0, 1), 0), ((5,), None)):
        with pytest.raises(ValueError, match="letters must be different tokens"):
            TokenAlphabet(tuple(NAMES), letters, begin)


def test_a_lifted_machine_reads_the_beginning_first():
    alphabet = TokenAlphabet.of_names(NAMES)
    lifted, domain = alphabet.lifted(machine()), alphabet.domain()
    tokens = torch.tensor([[0, 3, 4, 3], [3, 4, 3, 4], [0, 3, 0, 4], [0, 3, 2, 4]])
    none = IGNORED
    assert lifted.labels(tokens).tolist() == [[1, 0, 1, 0], [none] * 4, [1, 0, none, none], [1, 0, none, none]]
    assert domain.labels(tokens).tolist() == [[1, 1, 1, 1], [0, 0, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0]]
    tagged = TokenAlphabet.of_names(NAMES, empty_word=False).lifted(machine())
    assert tagged.labels(tokens[:1]).tolist() == [[none, 0, 1, 0]]


def test_lifting_and_conditioning_undo_each_other():
    generator = np.random.default_rng(0)
    for states in (1, 2, 5, 9):
        table = generator.integers(0, states, (states, 2))
        one = MooreMachine(table, generator.integers(0, 3, states), int(generator.integers(states)))
        for alphabet in (
            TokenAlphabet.of_names(NAMES),
            TokenAlphabet(tuple("xaby"), (2, 1)),
            TokenAlphabet.all_tokens(2),
        ):
            back = alphabet.conditioned(alphabet.lifted(one))
            assert alphabet.lifted(back).separating_word(alphabet.lifted(one)) is None
            assert back.states <= one.states + (alphabet.restricted and not alphabet.shows_empty_word)


def test_the_empty_word_keeps_its_label_where_it_has_one():
    # The start is never returned to, and differs from state 1 in its label alone.
    one = MooreMachine(np.array([[1, 1], [1, 1]]), np.array([1, 0]))
    assert one.minimised().states == 1
    kept = one.minimised(empty_word=True)
    assert (kept.states, kept.outputs.tolist()) == (2, [1, 0])
    assert one.representative_states(empty_word=True).tolist() == [0, 1]


def test_what_is_no_letter_changes_nothing():
    alphabet = TokenAlphabet.of_names(NAMES)
    for before in (False, True):
        idle = alphabet.idle(machine(), before=before)
        words = torch.tensor([[0, 3, 4, 3], [0, 2, 3, 1]])
        assert idle.labels(words).tolist() == [[1, 0, 1, 0], [1, 1, 0, 0]]
        assert idle.states == 3 + before
    with pytest.raises(ValueError, match="one letter for each of 2"):
        alphabet.idle(MooreMachine(np.array([[0, 0, 0]]), np.array([0])), before=False)


def test_words_as_tokens_and_spelled():
    alphabet = TokenAlphabet.of_names(NAMES)
    assert alphabet.in_letters([0, 4, 3]) == [1, 0]
    assert alphabet.in_letters([0]) == []
    assert alphabet.spelled([0, 4, 3]) == "b a"
    assert alphabet.spelled([0]) == "ε"
    for tokens, message in (
        ([3], "begin with <start>; one begins with a"),
        ([0, 2], "<unknown> is none"),
        ([], "nothing"),
    ):
        with pytest.raises(ValueError, match=message):
            alphabet.in_letters(tokens)
