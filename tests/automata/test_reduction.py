"""Minimal representations and equality: right on every machine, exact where the weights are."""

from __future__ import annotations

import itertools
import math
import time
import warnings
from fractions import Fraction

import numpy as np
import pytest

import transductor.automata.closure as closure
from tests.automata.random_machines import inflated, rational_automaton, rationals
from tests.automata.test_weighted import in_semiring
from transductor.automata import (
    DFA,
    RankWarning,
    WeightedAutomaton,
    equivalent,
    from_dfa,
    minimised,
    only_word,
    rank,
    reduced,
    zero_series,
)
from transductor.automata.modular import random_primes
from transductor.automata.probabilistic import random_probabilistic


@pytest.fixture(params=["numpy", "flint"])
def solver(request, monkeypatch):
    """Both ways to multiply integers: numpy's, and python-flint's where it is installed."""
    if request.param == "flint":
        pytest.importorskip("flint")
    monkeypatch.setattr(closure, "find_spec", lambda name: name if request.param == "flint" else None)


def brute_rank(automaton):
    """The rank of the Hankel block of all words up to length D − 1, by exact elimination."""
    words = list(automaton.words(max(0, automaton.dim - 1)))
    block = [[automaton(u + v) for v in words] for u in words]
    rank_so_far = 0
    for column in range(len(words)):
        pivot = next((row for row in range(rank_so_far, len(block)) if block[row][column]), None)
        if pivot is None:
            continue
        block[rank_so_far], block[pivot] = block[pivot], block[rank_so_far]
        for row in range(rank_so_far + 1, len(block)):
            factor = block[row][column] / block[rank_so_far][column]
            block[row] = [x - factor * y for x, y in zip(block[row], block[rank_so_far], strict=True)]
        rank_so_far += 1
    return rank_so_far


def check_random_machines(count, seed, largest):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        dim, letters = int(rng.integers(1, largest // 2 + 1)), int(rng.integers(1, 6))
        base = rational_automaton(rng, dim, letters, largest=2, denominators=2)
        true = minimised(base)
        assert true.dim <= dim
        extra = int(rng.integers(0, (largest - dim) // 2 + 1))
        blown = inflated(rng, base, extra)
        assert blown.dim == dim + 2 * extra
        reduction = reduced(blown)
        assert reduction.exact
        assert reduction.automaton.dim == true.dim
        same = equivalent(blown, reduction.automaton)
        assert same
        assert same.exact
        changed = WeightedAutomaton(
            blown.initial, blown.matrices, blown.final + rationals(rng, blown.dim), blown.alphabet
        )
        apart = equivalent(blown, changed)
        if apart.equal:
            assert all(blown(word) == changed(word) for word in blown.words(3))
            continue
        assert blown(apart.word) == apart.weights[0] != apart.weights[1] == changed(apart.word)
        assert all(blown(word) == changed(word) for word in blown.words(min(3, len(apart.word) - 1)))


def test_random_machines_come_back_to_their_size(solver):
    check_random_machines(25, 0, 14)


@pytest.mark.slow
def test_five_hundred_machines_of_up_to_thirty_states():
    check_random_machines(500, 1, 30)


def test_the_rank_is_that_of_the_hankel_matrix(solver):
    rng = np.random.default_rng(0)
    for dim in (0, 1, 2, 3):
        for _ in range(6):
            automaton = rational_automaton(rng, dim, 2, largest=1, denominators=1)
            assert rank(automaton) == brute_rank(automaton)


def test_a_minimal_automaton_is_left_as_it_is():
    automaton = rational_automaton(np.random.default_rng(0), 5, 2)
    assert minimised(automaton) is automaton


def test_the_zero_series_needs_no_state(solver):
    rng = np.random.default_rng(0)
    other = rational_automaton(rng, 4, 2)
    assert minimised(other - other).dim == 0
    assert rank(zero_series("ab")) == 0
    assert minimised(WeightedAutomaton([0, 0], [np.eye(2)], [1, 1], "a")).dim == 0
    assert equivalent(other - other, zero_series("ab"))


def test_no_letters_at_all():
    automaton = WeightedAutomaton([1, 2], [], [3, 4], ())
    assert minimised(automaton).dim == 1
    assert minimised(automaton)(()) == 11


def test_large_numbers_and_denominators_are_exact(solver):
    huge = Fraction(10**40 + 1, 10**38 + 7)
    automaton = WeightedAutomaton([huge, 1], [[[huge, 0], [1 / huge, 3]]], [1, -huge], "a")
    doubled = automaton + automaton
    minimal = minimised(doubled)
    assert minimal.dim == 2
    assert all(minimal("a" * n) == 2 * automaton("a" * n) for n in range(8))
    assert not equivalent(doubled, automaton * 2 + only_word("a" * 3, "a") * Fraction(1, 10**60))


def test_primes_that_lie_are_found_out():
    """Modulo the primes that are drawn first two states look alike; the check over the integers does not believe it."""
    drawn = list(itertools.islice(random_primes(), 3))
    for count in (1, 2, 3):
        hidden = math.prod(drawn[:count])
        automaton = WeightedAutomaton([1, 0, 0], [[[1, 0, 0], [hidden, 1, 0], [0, 0, 1]]], [1, 1, 0], "a")
        assert rank(automaton) == (2 if count < 3 else 1)  # it asks three primes, and is never too large
        small = minimised(automaton)
        assert small.dim == 2
        assert small(("a",) * 5) == automaton(("a",) * 5) == 1 + 5 * hidden
        assert not equivalent(automaton, WeightedAutomaton([1], [[[1]]], [1], "a"))


def test_separating_words_are_shortest():
    for length in range(6):
        word = "ab" * 3
        a = only_word(word[:length], "ab")
        verdict = equivalent(a, zero_series("ab"))
        assert verdict.word == tuple(word[:length])
        assert verdict.weights == (1, 0)


def test_floats_are_reduced_with_a_tolerance_and_say_how_clear_it_was():
    rng = np.random.default_rng(0)
    for dim, extra in ((3, 2), (8, 4), (1, 0)):
        base = rational_automaton(rng, dim, 2)
        blown = inflated(rng, base, extra).over("float")
        reduction = reduced(blown)
        assert reduction.automaton.dim == rank(base)
        assert not reduction.exact
        assert reduction.residual < reduction.tolerance < reduction.margin
        assert equivalent(blown, reduction.automaton)
        assert not equivalent(blown, blown * 1.001)
        for word in ("", "ab", "babab"):
            assert np.isclose(reduction.automaton(word), blown(word), rtol=1e-7, atol=1e-9 * abs(blown.initial).max())


def test_a_rank_that_is_not_clear_is_said_aloud():
    nearly = WeightedAutomaton([1, 0, 0], [[[1, 0, 0], [3e-9, 1, 0], [6e-10, 0, 1]]], [1, 1, 1], "a", weights="float")
    with pytest.warns(RankWarning, match="the rank is not clear: .* a part of .* was kept"):
        reduced(nearly)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        reduced(WeightedAutomaton([1, 0], [[[1, 0], [0.5, 1]]], [1, 1], "a", weights="float"))


def test_truth_values_become_deterministic_and_minimal():
    even = from_dfa(DFA(("a", "b"), np.array([[1, 0], [0, 1]]), 0, frozenset({0})))
    doubled = even + even
    assert minimised(doubled).dim == 2
    assert doubled == even
    verdict = equivalent(even, in_semiring("boolean", np.random.default_rng(0), 2))
    assert verdict.equal or even(verdict.word) != verdict.weights[1]
    assert equivalent(even, even.over("rational")).exact


def test_what_cannot_be_decided_is_refused():
    costs = in_semiring("min_plus", np.random.default_rng(0))
    for act in (lambda: minimised(costs), lambda: equivalent(costs, costs), lambda: rank(costs)):
        with pytest.raises(ValueError, match="'rational'"):
            act()


def split_states(automaton, extra, seed):
    """The same series with some states there several times, each copy with a random share of what enters."""
    rng = np.random.default_rng(seed)
    owners = [*range(automaton.dim), *rng.integers(0, automaton.dim, extra).tolist()]
    parts = rng.integers(1, 1000, len(owners)).tolist()
    totals = [sum(part for part, owner in zip(parts, owners, strict=True) if owner == s) for s in range(automaton.dim)]
    shares = np.array([Fraction(part, totals[owner]) for part, owner in zip(parts, owners, strict=True)], dtype=object)
    matrices = automaton.matrices[:, owners][:, :, owners] * shares[:, None]
    return WeightedAutomaton(shares * automaton.initial[owners], matrices, automaton.final[owners], automaton.alphabet)


def test_a_machine_of_23_states_against_its_minimisation():
    """With one denominator for all letters this took over 40 s: the numbers had tens of thousands of digits."""
    machine = random_probabilistic(18, "abcd", seed=18).over("rational")
    large = split_states(machine, 5, 0)
    small = minimised(large)
    assert (large.dim, small.dim, rank(large)) == (23, 18, 18)
    begun = time.process_time()
    assert equivalent(large, small).exact
    assert equivalent(large, machine)
    assert time.process_time() - begun < 5


def test_a_minimal_machine_has_numbers_as_short_as_its_space_allows():
    """With the words' own vectors as a basis, weights had 9,000 bits and took half a minute."""
    machine = random_probabilistic(30, range(8), seed=1).over("rational")
    large = split_states(machine, 10, 0)
    begun = time.process_time()
    small = minimised(large)
    assert time.process_time() - begun < 5
    assert small.dim == 30
    assert bits(small) < 2 * bits(machine)
    assert equivalent(small, machine).exact


def bits(automaton):
    return max(max(abs(x.numerator), x.denominator).bit_length() for x in automaton.matrices.reshape(-1))


def test_the_rank_alone_needs_no_long_numbers():
    large = split_states(random_probabilistic(30, range(8), seed=1).over("rational"), 10, 0)
    begun = time.process_time()
    assert rank(large) == 30
    assert time.process_time() - begun < 5


def test_equality_is_not_decided_by_one_prime():
    """A difference that a prime divides is seen by others: here, every prime that is drawn first."""
    first = list(itertools.islice(random_primes(), 2))
    hidden = WeightedAutomaton([1], [[[0]]], [first[0] * first[1]], "a")
    verdict = equivalent(hidden, zero_series("a"))
    assert not verdict
    assert verdict.word == ()
    assert rank(hidden) == 1
    deep = WeightedAutomaton([1, 0, 0], [[[0, 0, 0], [1, 0, 0], [0, first[0], 0]]], [0, 0, 1], "a")
    assert equivalent(deep, zero_series("a")).word == ("a", "a")
    assert equivalent(deep, deep)
    divided = WeightedAutomaton([Fraction(1, first[0])], [[[Fraction(1, first[1])]]], [1], "a")
    assert equivalent(divided, divided + divided - divided)


def test_letters_may_come_in_another_order():
    automaton = rational_automaton(np.random.default_rng(3), 4, 2)
    assert equivalent(automaton, automaton.with_alphabet(automaton.alphabet[::-1]))
