"""Probabilistic automata: probabilities sum to one, samples follow them, perplexity is what it says."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from transductor.automata.probabilistic import (
    is_probabilistic,
    log_likelihood,
    log_likelihoods,
    perplexity,
    random_probabilistic,
    sampled,
    smoothed,
    unigram,
)
from transductor.automata.weighted import WeightedAutomaton

GEOMETRIC = WeightedAutomaton([1], {"a": [[Fraction(1, 2)]]}, [Fraction(1, 2)])


@pytest.mark.parametrize("seed", range(5))
def test_random_automata_are_distributions(seed: int) -> None:
    machine = random_probabilistic(1 + seed, "abc", seed)
    assert is_probabilistic(machine)
    assert machine.identical(random_probabilistic(1 + seed, "abc", seed))
    total = machine.final @ np.linalg.inv(np.eye(machine.dim) - machine.matrices.sum(axis=0)) @ machine.initial
    assert total == pytest.approx(1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"states": 0}, "states must be at least 1; got 0"),
        ({"alphabet": ""}, "alphabet must hold at least one letter"),
        ({"stopping": 0.7}, "stopping must lie between 0 and 2/3"),
        ({"concentration": 0}, "concentration must be positive"),
    ],
)
def test_random_automata_refuse(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        random_probabilistic(**{"states": 2, "alphabet": "ab", "seed": 0, **arguments})  # type: ignore[arg-type]


def test_what_is_not_probabilistic() -> None:
    assert is_probabilistic(GEOMETRIC)
    assert not is_probabilistic(WeightedAutomaton([1], {"a": [[1]]}, [1]))
    assert not is_probabilistic(WeightedAutomaton([2], {"a": [[0]]}, [1]))
    assert not is_probabilistic(WeightedAutomaton([1], {"a": [[2]]}, [-1]))
    assert not is_probabilistic(WeightedAutomaton([True], {"a": [[False]]}, [True], weights="boolean"))
    for initial, expected in (([1, 0], False), ([0, 1], True)):  # the first state goes on for ever
        machine = WeightedAutomaton(initial, {"a": [[1, 0], [0, 0]]}, [0, 1])
        assert is_probabilistic(machine) is expected


def test_samples_follow_the_automaton() -> None:
    machine = random_probabilistic(3, "ab", seed=0)
    strings = sampled(machine, 40_000, seed=5)
    assert strings == sampled(machine, 40_000, seed=5)
    assert strings != sampled(machine, 40_000, seed=6)
    counts = Counter(strings)
    for word, probability in machine.support(3):
        assert counts[word] / 40_000 == pytest.approx(probability, abs=5 * math.sqrt(probability / 40_000) + 1e-9)


def test_samples_at_the_edge() -> None:
    assert sampled(GEOMETRIC, 0, seed=0) == []
    assert set(sampled(GEOMETRIC, 50, seed=0, max_length=0)) == {()}
    short = Counter(map(len, sampled(GEOMETRIC, 7000, seed=0, max_length=2)))
    assert [short[length] / 7000 for length in range(3)] == pytest.approx([4 / 7, 2 / 7, 1 / 7], abs=0.03)
    with pytest.raises(ValueError, match="automaton must be probabilistic"):
        sampled(WeightedAutomaton([1], {"a": [[1]]}, [1]), 1, seed=0)
    with pytest.raises(ValueError, match="count must be at least 0"):
        sampled(GEOMETRIC, -1, seed=0)
    with pytest.raises(ValueError, match="max_length must leave room"):
        sampled(WeightedAutomaton([1, 0], {"a": [[0, 0], [1, 0]]}, [0, 1]), 1, seed=0, max_length=0)


def test_perplexity_counts_ends() -> None:
    assert perplexity(GEOMETRIC, ["", "a", "aaa"]) == pytest.approx(2)
    machine = random_probabilistic(3, "ab", seed=1)
    strings = sampled(machine, 50, seed=0)
    assert log_likelihood(machine, strings) == pytest.approx(sum(math.log(machine(word)) for word in strings))
    assert log_likelihood(machine, []) == 0
    assert math.isfinite(log_likelihood(machine, ["ab" * 5000]))
    assert perplexity(WeightedAutomaton([1], {"a": [[0]]}, [1]), ["a"]) == math.inf
    with pytest.raises(ValueError, match="strings must hold at least one string"):
        perplexity(machine, [])
    with pytest.raises(ValueError, match="weights 'rational' or 'float'"):
        perplexity(WeightedAutomaton([True], {"a": [[True]]}, [True], weights="boolean"), ["a"])


def test_smoothing_leaves_probabilities_alone() -> None:
    machine = random_probabilistic(4, "abc", seed=2)
    strings = sampled(machine, 200, seed=0)
    model = smoothed(machine, weight=0)
    assert model.log_likelihood(strings) == pytest.approx(log_likelihood(machine, strings))
    assert model(strings[0]) == pytest.approx(machine(strings[0]))
    assert model.next_symbol("ab").sum() == pytest.approx(1)
    assert model.next_symbol("")[-1] == pytest.approx(machine(""))
    assert model.perplexity(strings) < smoothed(machine, weight=0.5).perplexity(strings)


def test_smoothing_mends_what_is_no_distribution() -> None:
    machine = WeightedAutomaton([1.0, 0.5], {"a": [[0.5, -0.3], [0, 0.2]], "b": [[-1, 0], [0, 0.1]]}, [0.3, -2], weights="float")  # fmt: skip # noqa: E501
    model = smoothed(machine)
    assert math.isfinite(model.perplexity(["abba", "", "bbb"]))
    for prefix in ("", "a", "bb", "abab"):
        predicted = model.next_symbol(prefix)
        assert predicted.sum() == pytest.approx(1)
        assert (predicted > 0).all()
    zero = smoothed(WeightedAutomaton([], {"a": np.zeros((0, 0))}, [], weights="float"))
    np.testing.assert_allclose(zero.next_symbol("aa"), [0.5, 0.5])
    endless = smoothed(WeightedAutomaton([1.0], {"a": [[1.0]]}, [1.0], weights="float"))
    assert math.isfinite(endless.perplexity(["aaa"]))
    for arguments, message in (({"weight": 2}, "weight must lie"), ({"background": [1, 0, 0]}, "3 positive numbers")):
        with pytest.raises(ValueError, match=message):
            smoothed(machine, **arguments)  # type: ignore[arg-type]


def test_unigram_counts_letters_and_ends() -> None:
    np.testing.assert_allclose(unigram("ab", ["aab", ""]), np.array([3, 2, 3]) / 8)


def test_log_likelihoods_of_many_strings_are_those_of_each() -> None:
    machine = random_probabilistic(3, "ab", seed=0)
    strings = [*sampled(machine, 40, seed=1), (), ("a",) * 2000]
    each = [log_likelihood(machine, [string]) for string in strings]
    np.testing.assert_allclose(log_likelihoods(machine, strings), each, rtol=1e-12)
    model = smoothed(machine, weight=0.1)
    np.testing.assert_allclose(
        model.log_likelihoods(strings), [model.log_likelihood([string]) for string in strings], rtol=1e-12
    )
    assert log_likelihoods(machine, []).shape == (0,)
    only_a = WeightedAutomaton([1], [[[0.5]], [[0]]], [0.5], "ab", weights="float")
    np.testing.assert_allclose(log_likelihoods(only_a, ["a", "b"]), [np.log(0.25), -np.inf])
