"""Large machines: decisions in nearly linear time and memory, the same answers compiled and not."""

from __future__ import annotations

import time

import numpy as np
import pytest

from tests.automata.test_finite_automata import dfas, language, nfas
from tests.properties import given, settings
from transductor.automata import compiled, finite_algebra
from transductor.automata.finite_algebra import escaping_word, is_included, minimised, separating_word
from transductor.automata.finite_automata import DFA, NFA, determinised

few = settings(max_examples=60, deadline=None)
STATES = 100_000


@pytest.fixture(scope="module")
def large() -> tuple[DFA, DFA]:
    """A random machine whose states are all there twice, and the same with its states in another order."""
    random = np.random.default_rng(3)
    half = STATES // 2
    single = random.integers(0, half, (half, 2))
    table = np.concatenate([single, single]) + half * random.integers(0, 2, (STATES, 2))
    accepting = np.flatnonzero(np.tile(random.random(half) < 0.5, 2))
    order = random.permutation(STATES)
    moved = np.empty_like(table)
    moved[order] = order[table]
    first = DFA(("a", "b"), table, 0, frozenset(accepting.tolist()))
    return first, DFA(("a", "b"), moved, int(order[0]), frozenset(order[accepting].tolist()))


def test_equivalence_and_inclusion_of_a_hundred_thousand_states(large: tuple[DFA, DFA]) -> None:
    first, second = large
    assert separating_word(first, second) is None  # compiled here, where it was not yet
    assert first <= second
    begun = time.process_time()
    assert first == second
    assert is_included(second, first)
    assert time.process_time() - begun < 4  # 0.15 s where they were measured; a table of all pairs has 10¹⁰ entries
    wrong = DFA(second.alphabet, second.transitions, second.start, second.accepting ^ {second.run("abba")})
    word = separating_word(first, wrong)
    assert word is not None
    assert len(word) <= 4
    assert first(word) != wrong(word)
    escape = escaping_word(first, wrong) or escaping_word(wrong, first)
    assert escape is not None
    assert first(escape) != wrong(escape)


def test_minimisation_of_a_hundred_thousand_states(large: tuple[DFA, DFA]) -> None:
    first, second = map(minimised, large)
    assert first.states <= STATES // 2
    np.testing.assert_array_equal(first.transitions, second.transitions)
    assert first.accepting == second.accepting


def test_a_long_chain_is_walked_at_once() -> None:
    states = np.arange(STATES)
    chain = DFA(("a",), np.minimum(states + 1, STATES - 1)[:, None], 0, frozenset({STATES - 1}))
    assert minimised(chain).states == STATES
    shorter = DFA(("a",), chain.transitions[1:] - 1, 0, frozenset({STATES - 2}))
    assert separating_word(chain, shorter) == ("a",) * (STATES - 2)
    assert chain <= shorter
    assert escaping_word(shorter, chain) == ("a",) * (STATES - 2)


def test_a_product_that_does_not_fit_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finite_algebra, "MOST_PAIRS", 50)
    first, second = (DFA(("a",), ((np.arange(n) + 1) % n)[:, None], 0, frozenset({0})) for n in (10, 11))
    with pytest.raises(ValueError, match="more than 50 pairs of states of first and second"):
        first & second
    with pytest.raises(ValueError, match="more than 50 pairs of states of first and second"):
        is_included(first, DFA(("a",), second.transitions, 0, frozenset(range(11)) - {5}))  # a⁶⁰ escapes


def test_determinisation_numbers_states_as_the_definition_does(monkeypatch: pytest.MonkeyPatch) -> None:
    k = 9
    edges = {(0, "a", 0), (0, "b", 0), (0, "a", 1)} | {(n, s, n + 1) for n in range(1, k) for s in "ab"}
    nfa = NFA(("a", "b"), k + 1, frozenset(edges), frozenset({0}), frozenset({k}))
    quick = determinised(nfa)
    monkeypatch.setattr(compiled, "COMPILES", False)
    plain = determinised(nfa)
    np.testing.assert_array_equal(quick.transitions, plain.transitions)
    assert quick.accepting == plain.accepting
    subsets, numbers = [nfa.closure(nfa.starts)], {nfa.closure(nfa.starts): 0}
    for number, subset in enumerate(subsets):
        for letter, symbol in enumerate(nfa.alphabet):
            following = nfa.step(subset, symbol)
            if following not in numbers:
                numbers[following] = len(subsets)
                subsets.append(following)
            assert quick.transitions[number, letter] == numbers[following]
    assert len(subsets) == quick.states


def test_limit_must_be_a_number_of_sets() -> None:
    nfa = NFA(("a",), 1, frozenset(), frozenset(), frozenset())
    with pytest.raises(ValueError, match="limit must be at least 1; got 0"):
        determinised(nfa, limit=0)


@few
@given(dfas(), dfas())
def test_inclusion_is_that_of_the_sets_of_words(a: DFA, b: DFA) -> None:
    in_a, in_b = language(a, 7), language(b, 7)
    word = escaping_word(a, b)
    assert (word is None) == (a <= b)
    if word is None:
        assert in_a <= in_b
    else:
        assert a(word)
        assert not b(word)
        assert all(len(other) >= len(word) for other in in_a - in_b)


@few
@given(nfas())
def test_small_and_compiled_determinisation_agree(nfa: NFA) -> None:
    small = determinised(nfa)
    by_compiled = minimised(small)
    assert language(by_compiled) == language(nfa)
