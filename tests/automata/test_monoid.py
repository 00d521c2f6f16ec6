"""Syntactic monoids: sizes and groups that are known, and the laws of monoids on random automata."""

from __future__ import annotations

from itertools import product
from math import lcm

import numpy as np
import pytest

from tests.automata.test_finite_automata import ALPHABET, all_words, dfas
from tests.properties import given, settings
from transductor.automata.decomposition.monoid import Aperiodicity, green_classes, is_aperiodic, syntactic_monoid
from transductor.automata.finite_algebra import minimised
from transductor.automata.finite_automata import DFA
from transductor.automata.regular_expression import regex

few = settings(max_examples=40, deadline=None)


def all_maps(points: int) -> DFA:
    """Letters that generate every map of ``points`` states: a cycle, a swap, a merger."""
    swap, merger = {0: 1, 1: 0}, {1: 0}
    table = [[(state + 1) % points, swap.get(state, state), merger.get(state, state)] for state in range(points)]
    return DFA(("cycle", "swap", "merge"), np.array(table), 0, frozenset({0}))


def all_permutations(points: int) -> DFA:
    dfa = all_maps(points)
    return DFA(("cycle", "swap"), dfa.transitions[:, :2], 0, frozenset({0}))


class TestKnownMonoids:
    @pytest.mark.parametrize(
        ("pattern", "size", "idempotents"),
        [
            ("(aa)*", 2, 1),
            ("(ab)*", 6, 4),
            ("a*b*", 5, 4),
            ("[ab]*", 1, 1),
            ("", 1, 1),
            ("(b*ab*a)*b*", 2, 1),
            ("a", 3, 2),
        ],
    )
    def test_sizes(self, pattern: str, size: int, idempotents: int) -> None:
        monoid = syntactic_monoid(regex(pattern))
        assert len(monoid) == size
        assert len(monoid.idempotents) == idempotents

    @pytest.mark.parametrize(("points", "idempotents"), [(2, 3), (3, 10), (4, 41), (5, 196)])
    def test_all_maps(self, points: int, idempotents: int) -> None:
        monoid = syntactic_monoid(all_maps(points))
        assert len(monoid) == points**points
        assert len(monoid.idempotents) == idempotents

    def test_the_monoid_of_ab_star_by_its_shortest_words(self) -> None:
        monoid = syntactic_monoid(regex("(ab)*"))
        assert ["".join(map(str, word)) for word in monoid.words] == ["", "a", "b", "aa", "ab", "ba"]
        assert monoid.accepting == {monoid.element(""), monoid.element("ab")}
        zero = monoid.element("aa")
        assert monoid.multiplied(zero, monoid.element("b")) == zero == monoid.element("bb")
        assert repr(monoid).startswith("SyntacticMonoid(6 elements, 4 idempotents")

    def test_too_many_elements_are_refused(self) -> None:
        with pytest.raises(ValueError, match="more than limit = 3000 elements"):
            syntactic_monoid(all_maps(5), limit=3000)
        assert len(syntactic_monoid(all_maps(5), limit=3125)) == 3125
        with pytest.raises(ValueError, match="limit must be at least 1"):
            syntactic_monoid(all_maps(2), limit=0)

    def test_unknown_symbols_are_named(self) -> None:
        with pytest.raises(ValueError, match="got 'c' at position 1"):
            syntactic_monoid(regex("(ab)*")).element("ac")


class TestLaws:
    @few
    @given(dfas(most_states=4))
    def test_multiplication(self, dfa: DFA) -> None:
        monoid = syntactic_monoid(dfa)
        everything = np.arange(len(monoid))
        some = everything[:12]
        assert np.array_equal(monoid.table[0], everything)
        assert np.array_equal(monoid.table[:, 0], everything)
        for x, y, z in product(some, repeat=3):
            assert monoid.table[monoid.table[x, y], z] == monoid.table[x, monoid.table[y, z]]
        for x, y in product(some, repeat=2):
            assert monoid.table[x, y] == monoid.multiplied(x, y) == monoid.element(monoid.words[x] + monoid.words[y])
            composed = monoid.transformations[y][monoid.transformations[x]]
            assert np.array_equal(monoid.transformations[monoid.table[x, y]], composed)
        assert set(monoid.idempotents) == {x for x in everything if monoid.table[x, x] == x}

    @few
    @given(dfas(most_states=4))
    def test_words_are_shortest_and_decide_membership(self, dfa: DFA) -> None:
        monoid = syntactic_monoid(dfa)
        seen: set[int] = set()
        for word in all_words(5):
            element = monoid.element(word)
            assert (element in monoid.accepting) == dfa(word)
            if element not in seen:
                assert monoid.words[element] == word
            seen.add(element)

    @few
    @given(dfas(most_states=3))
    def test_elements_are_contexts(self, dfa: DFA) -> None:
        monoid = syntactic_monoid(dfa)
        contexts = [(before, after) for before in all_words(2) for after in all_words(2)]
        profiles = {tuple(dfa(left + word + right) for left, right in contexts) for word in monoid.words}
        assert len(profiles) == len(monoid)  # two letters suffice to tell three states apart on either side


class TestAperiodicity:
    @pytest.mark.parametrize("pattern", ["", "a", "(ab)*", "a*b*", "(a|b)*abb", "(a(ab)*b)*", "(ab|ba)*", "(?!)"])
    def test_star_free(self, pattern: str) -> None:
        answer = is_aperiodic(regex(pattern, "ab"))
        assert answer
        assert answer == Aperiodicity(True)

    @pytest.mark.parametrize(
        ("pattern", "word", "index", "period", "subgroup"),
        [
            ("(aa)*", "a", 0, 2, 2),
            ("([ab]{3})*", "a", 0, 3, 3),
            ("(b*ab*a)*b*", "a", 0, 2, 2),
            ("b(aaaa)*", "a", 1, 4, 4),
            ("b?(aa)*", "a", 1, 2, 2),
            ("(abab)*", "ab", 1, 2, 2),
        ],
    )
    def test_groups(self, pattern: str, word: str, index: int, period: int, subgroup: int) -> None:
        answer = is_aperiodic(regex(pattern))
        assert answer == Aperiodicity(False, tuple(word), index, period, subgroup)

    @pytest.mark.parametrize(("points", "factorial"), [(3, 6), (4, 24), (5, 120)])
    def test_the_subgroup_is_the_largest_around_the_element(self, points: int, factorial: int) -> None:
        for dfa in (all_permutations(points), all_maps(points)):
            assert is_aperiodic(dfa) == Aperiodicity(False, ("cycle",), 0, points, factorial)

    @few
    @given(dfas(most_states=4))
    def test_against_the_cycles_of_every_element(self, dfa: DFA) -> None:
        monoid = syntactic_monoid(dfa)
        periods = [period_of(transformation.tolist()) for transformation in monoid.transformations]
        answer = is_aperiodic(dfa)
        assert answer.aperiodic == all(period == 1 for period in periods)
        if answer.word is not None and answer.index is not None and answer.period is not None:
            element = monoid.element(answer.word)
            assert answer.period == periods[element] > 1
            power = monoid.element(answer.word * answer.index)
            assert power == monoid.element(answer.word * (answer.index + answer.period))
            assert all(monoid.element(answer.word * (answer.index + k)) != power for k in range(1, answer.period))
            if answer.index:
                before = monoid.element(answer.word * (answer.index - 1))
                assert before != monoid.element(answer.word * (answer.index - 1 + answer.period))
            classes = green_classes(monoid)
            assert answer.subgroup_size == np.count_nonzero(classes.both == classes.both[power])


class TestGreenClasses:
    @pytest.mark.parametrize(("points", "bell"), [(2, 2), (3, 5), (4, 15), (5, 52)])
    def test_all_maps(self, points: int, bell: int) -> None:
        classes = green_classes(syntactic_monoid(all_maps(points)))
        assert len(set(classes.right.tolist())) == bell  # what is merged
        assert len(set(classes.left.tolist())) == 2**points - 1  # what is reached
        assert len(set(classes.two_sided.tolist())) == points  # how many are reached

    def test_a_group_is_one_class(self) -> None:
        classes = green_classes(syntactic_monoid(all_permutations(4)))
        assert set(classes.both.tolist()) == {0}

    @few
    @given(dfas(most_states=3))
    def test_against_ideals(self, dfa: DFA) -> None:
        monoid = syntactic_monoid(dfa)
        classes, table = green_classes(monoid), monoid.table
        rights = [frozenset(table[x].tolist()) for x in range(len(monoid))]
        lefts = [frozenset(table[:, x].tolist()) for x in range(len(monoid))]
        two_sided = [frozenset(table[:, table[x]].ravel().tolist()) for x in range(len(monoid))]
        for x, y in product(range(len(monoid)), repeat=2):
            assert (classes.right[x] == classes.right[y]) == (rights[x] == rights[y])
            assert (classes.left[x] == classes.left[y]) == (lefts[x] == lefts[y])
            assert (classes.two_sided[x] == classes.two_sided[y]) == (two_sided[x] == two_sided[y])
            assert (classes.both[x] == classes.both[y]) == (rights[x] == rights[y] and lefts[x] == lefts[y])


def period_of(transformation: list[int]) -> int:
    """The least common multiple of the lengths of a map's cycles."""
    lengths = [1]
    for point in range(len(transformation)):
        orbit = [point]
        while (following := transformation[orbit[-1]]) not in orbit:
            orbit.append(following)
        lengths.append(len(orbit) - orbit.index(following))
    return lcm(*lengths)


def test_the_monoid_is_that_of_the_minimal_automaton() -> None:
    padded = DFA(ALPHABET, np.array([[1, 2], [0, 1], [1, 0]]), 0, frozenset({0, 2}))
    assert syntactic_monoid(padded).dfa.states == minimised(padded).states
