"""Words with numbers: the automaton that has them, exactly where they are exact, and none where there is none."""

from fractions import Fraction

import numpy as np
import pytest

from transductor.automata import WeightedAutomaton, learned_from_numbers, machine, renamed


def drawn(letters, count=1500, longest=24, seed=0):
    random = np.random.default_rng(seed)
    return [random.integers(0, letters, random.integers(0, longest + 1)).tolist() for _ in range(count)]


def numbered(name):
    automaton = machine(name).automaton
    return renamed(automaton, {letter: place for place, letter in enumerate(automaton.alphabet)})


@pytest.mark.parametrize("name", ["base_value:2", "base_value:10", "balance", "occurrences", "bigram", "tomita:1"])
def test_exact_numbers_give_the_minimal_automaton(name):
    truth = numbered(name)
    words = drawn(len(truth.alphabet), longest=12 if name == "bigram" else 24)
    answer = learned_from_numbers(words, [truth(word) for word in words], letters=len(truth.alphabet))
    assert answer.exact
    assert answer.supported
    assert answer.error == 0
    assert answer.automaton == truth


def test_fifty_letters_with_a_price_each():
    prices = np.random.default_rng(3).integers(1, 100, 50)
    words = drawn(50)
    answer = learned_from_numbers(words, [int(prices[word].sum()) if word else 0 for word in words], letters=50)
    assert answer.exact
    assert answer.automaton.dim == 2
    assert answer.automaton([7] * 1000) == 1000 * prices[7]


def test_floats_stand_for_what_rounds_to_them():
    words = drawn(2, seed=2)
    discounted = [sum(0.5 ** (len(word) - 1 - at) for at, letter in enumerate(word) if letter) for word in words]
    answer = learned_from_numbers(words, discounted, letters=2)
    assert answer.exact
    assert answer.automaton([1, 0, 0]) == Fraction(1, 4)
    thirds = learned_from_numbers(words, [len(word) / 3 for word in words], letters=2)
    assert thirds.exact
    assert thirds.automaton([0]) == Fraction(1, 3)


@pytest.mark.parametrize("name", ["balance", "base_value:2"])
def test_rational_weights_are_recovered_from_numbers_with_errors(name):
    truth = numbered(name)
    words = drawn(2, count=3000, longest=12, seed=5)
    errors = np.random.default_rng(6).normal(0, 0.1, len(words))
    numbers = [float(truth(word)) + error for word, error in zip(words, errors, strict=True)]
    answer = learned_from_numbers(words, numbers, letters=2)
    assert not answer.exact
    assert answer.supported
    assert answer.exact_weights
    assert answer.automaton == truth


def test_nothing_finite_is_near_a_square_root_or_noise():
    words = drawn(2, count=400)
    root = learned_from_numbers(words, [len(word) ** 0.5 for word in words], letters=2, max_states=2)
    noise = learned_from_numbers(words, np.random.default_rng(0).normal(size=400).tolist(), letters=2)
    for answer in (root, noise):
        assert not answer.supported
        assert not answer.exact
        assert answer.reasons


def test_a_contradiction_is_no_exact_answer():
    answer = learned_from_numbers([[0], [0], [], [1], [0, 1]], [1, 2, 0, 1, 2], letters=2)
    assert not answer.exact


@pytest.mark.parametrize("count", [1, 2, 5])
def test_few_words_support_nothing_but_end_quickly(count):
    words = [[0] * length for length in range(count)]
    answer = learned_from_numbers(words, list(range(count)), letters=1)
    assert isinstance(answer.automaton, WeightedAutomaton)
    if count < 3:
        assert not answer.supported


def test_only_zeros_are_the_zero_series():
    answer = learned_from_numbers(drawn(2, count=20), [0] * 20, letters=2)
    assert answer.exact
    assert answer.automaton([0, 1, 1]) == 0


@pytest.mark.parametrize(
    ("words", "numbers", "letters", "message"),
    [
        ([], [], 2, "at least one"),
        ([[0]], [1, 2], 2, "one per word"),
        ([[2]], [1], 2, "letters from 0 to 1"),
        ([[0]], [float("nan")], 2, "finite"),
        ([[0]], ["many"], 2, "finite"),
        ([[0]], [1], 0, "letters"),
    ],
)
def test_wrong_input_is_refused(words, numbers, letters, message):
    with pytest.raises(ValueError, match=message):
        learned_from_numbers(words, numbers, letters=letters)
