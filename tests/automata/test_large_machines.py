"""Large machines: decisions in nearly linear time and memory, the same answers compiled and not."""

from __future__ import annotations

import time

import numpy as np
import pytest

from tests.automata.test_finite_automata import dfas, language, nfas
from tests.properties import given, settings
from transductor.automata import compiled, finite_algebra, finite_automata
from transductor.automata.finite_algebra import escaping_word, is_included, minimised, separating_word
from transductor.automata.finite_automata import DFA, NFA, determinised
from transductor.automata.formats import AutomatonFormatError, read_dfa

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


def arcs_for_free(states: int) -> str:
    """A chain of free arcs, and letters back: every set of states is a long one, and every letter leads to another."""
    return "".join(f"{n} {n + 1} 0\n{n + 1} {n} {n % 50 + 1}\n" for n in range(states)) + "3\n"


def test_files_that_ask_for_too_much_are_refused(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of a megabyte: one took gigabytes, the other minutes in a loop that cannot be interrupted."""
    path = tmp_path / "machine.att"
    path.write_text("".join(f"{n % 1000} {n * 7 % 1000} {n + 1}\n" for n in range(100_000)) + "1\n")
    with pytest.raises(AutomatonFormatError, match="1000 states and 100000 letters; at most 67,108,864 pairs"):
        read_dfa(path, weights="boolean")
    path.write_text(arcs_for_free(20_000))
    monkeypatch.setattr(finite_automata, "MOST_STEPS", 2**20)
    with pytest.raises(AutomatonFormatError, match="more than 2,048,000 as letters lead to them"):
        read_dfa(path, weights="boolean", limit=2000)


def test_one_state_may_have_very_many_letters(tmp_path) -> None:
    path = tmp_path / "machine.att"
    path.write_text("".join(f"0 1 {n + 1}\n" for n in range(100_000)) + "1\n")
    dfa = read_dfa(path, weights="boolean")
    assert (dfa.states, len(dfa.alphabet)) == (3, 100_000)
