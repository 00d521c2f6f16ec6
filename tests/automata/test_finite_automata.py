"""Finite automata: values, reading, and the laws of their languages."""

from __future__ import annotations

import pickle
from itertools import product

import numpy as np
import pytest

from tests.properties import given, settings, st
from transductor.automata.finite_algebra import (
    complemented,
    concatenated,
    intersected,
    inverse_image,
    is_empty,
    is_universal,
    minimised,
    projected,
    reversed_language,
    separating_word,
    shortest_word,
    starred,
    subtracted,
    symmetric_difference,
    united,
)
from transductor.automata.finite_automata import DFA, NFA, determinised, weights01

few = settings(max_examples=60, deadline=None)
ALPHABET = ("a", "b")


@st.composite
def dfas(draw: st.DrawFn, most_states: int = 6, alphabet: tuple[str, ...] = ALPHABET) -> DFA:
    states = draw(st.integers(1, most_states))
    state = st.integers(0, states - 1)
    row = st.lists(state, min_size=len(alphabet), max_size=len(alphabet))
    table = draw(st.lists(row, min_size=states, max_size=states))
    return DFA(alphabet, np.array(table), draw(state), frozenset(draw(st.sets(state))))


@st.composite
def nfas(draw: st.DrawFn) -> NFA:
    states = draw(st.integers(1, 5))
    state = st.integers(0, states - 1)
    edges = draw(st.sets(st.tuples(state, st.sampled_from(("a", "b", None)), state), max_size=12))
    return NFA(ALPHABET, states, frozenset(edges), frozenset(draw(st.sets(state))), frozenset(draw(st.sets(state))))


def all_words(longest: int, alphabet: tuple[str, ...] = ALPHABET) -> list[tuple[str, ...]]:
    return [word for length in range(longest + 1) for word in product(alphabet, repeat=length)]


def language(automaton: DFA | NFA, longest: int = 6) -> set[tuple[str, ...]]:
    return {word for word in all_words(longest) if automaton(word)}


def even_as() -> DFA:
    return DFA(ALPHABET, np.array([[1, 0], [0, 1]]), 0, frozenset({0}))


def only_empty_word() -> DFA:
    return DFA(ALPHABET, np.array([[1, 1], [1, 1]]), 0, frozenset({0}))


def nothing() -> DFA:
    return DFA(ALPHABET, np.array([[0, 0]]), 0, frozenset())


class TestValues:
    def test_reads_words(self) -> None:
        dfa = even_as()
        assert dfa("")
        assert dfa("abab")
        assert dfa(["a", "a"])
        assert not dfa("ab")
        assert dfa.run("ba") == 1
        assert dfa.states == 2

    def test_any_hashable_symbol(self) -> None:
        dfa = DFA((0, ("pair", 1)), np.array([[0, 1], [1, 1]]), 0, frozenset({1}))
        assert dfa([0, ("pair", 1)])

    def test_is_a_value(self) -> None:
        table = np.array([[1, 0], [0, 1]])
        dfa = DFA(ALPHABET, table, 0, frozenset({0}))
        table[:] = 0
        assert dfa.transitions.tolist() == [[1, 0], [0, 1]]
        with pytest.raises(ValueError, match="read-only"):
            dfa.transitions[0, 0] = 0
        with pytest.raises(AttributeError):
            dfa.start = 1  # type: ignore[misc]
        with pytest.raises(TypeError, match="unhashable"):
            hash(dfa)
        assert pickle.loads(pickle.dumps(dfa)) == dfa

    def test_repr_is_short(self) -> None:
        assert repr(even_as()) == "DFA(2 states, 1 accepting, alphabet {'a', 'b'})"
        wide = DFA(tuple(range(20)), np.zeros((1, 20), dtype=int), 0, frozenset())
        assert repr(wide).endswith("11, …})")
        assert repr(NFA(ALPHABET, 2, frozenset({(0, "a", 1)}), frozenset({0}), frozenset({1}))) == (
            "NFA(2 states, 1 edges, alphabet {'a', 'b'})"
        )

    def test_unknown_symbol_is_named_with_its_position(self) -> None:
        with pytest.raises(ValueError, match="got 'c' at position 2"):
            even_as()("abc")
        with pytest.raises(ValueError, match="got 'c' at position 0"):
            NFA(ALPHABET, 1, frozenset(), frozenset({0}), frozenset())("c")

    @pytest.mark.parametrize(
        ("alphabet", "table", "start", "accepting", "error", "message"),
        [
            (("a", "a"), [[0, 0]], 0, [], ValueError, "alphabet must hold distinct letters; 'a' is there twice"),
            (("a", None), [[0, 0]], 0, [], ValueError, "alphabet must not contain None"),
            (("a",), [[0, 0]], 0, [], ValueError, "transitions must have the shape"),
            (("a",), [0], 0, [], ValueError, "transitions must have the shape"),
            (("a",), np.zeros((0, 1), dtype=int), 0, [], ValueError, "transitions must have the shape"),
            (("a",), [[0.5]], 0, [], TypeError, "transitions must be integers"),
            (("a",), [[0], [2]], 0, [], ValueError, "transitions must lie in .0, 2.; got 2 at state 1, letter 0"),
            (("a",), [[-1]], 0, [], ValueError, "transitions must lie in"),
            (("a",), [[0]], 1, [], ValueError, "start must lie in .0, 1.; got 1"),
            (("a",), [[0]], "q", [], TypeError, "start must be an integer"),
            (("a",), [[0]], 0, [3], ValueError, "accepting must lie in .0, 1.; got 3"),
        ],
    )
    def test_bad_input_is_refused(self, alphabet, table, start, accepting, error, message) -> None:  # type: ignore[no-untyped-def]
        with pytest.raises(error, match=message):
            DFA(alphabet, table, start, accepting)

    def test_bad_nondeterministic_input_is_refused(self) -> None:
        nobody: frozenset[int] = frozenset()
        with pytest.raises(ValueError, match="edges has the unknown letter 'c' at state 0"):
            NFA(ALPHABET, 1, frozenset({(0, "c", 0)}), nobody, nobody)
        with pytest.raises(ValueError, match=r"edges must lie in \[0, 1\); got 1"):
            NFA(ALPHABET, 1, frozenset({(0, "a", 1)}), nobody, nobody)
        with pytest.raises(ValueError, match="starts must lie in"):
            NFA(ALPHABET, 1, frozenset(), frozenset({2}), nobody)
        with pytest.raises(ValueError, match="states must be at least 0"):
            NFA(ALPHABET, -1, frozenset(), nobody, nobody)

    def test_from_partial_adds_a_sink_only_where_needed(self) -> None:
        dfa = DFA.from_partial("ab", {("here", "a"): "there", ("there", "b"): "here"}, "here", ["here"])
        assert dfa.states == 3
        assert language(dfa, 4) == {(), ("a", "b"), ("a", "b", "a", "b")}
        assert DFA.from_partial("a", {(0, "a"): 0}, 0, [0]).states == 1

    def test_from_partial_refuses_what_it_does_not_know(self) -> None:
        with pytest.raises(ValueError, match="unknown letter 'c' at state 0"):
            DFA.from_partial("ab", {(0, "c"): 0}, 0, [])
        with pytest.raises(ValueError, match="accepting has the state 7"):
            DFA.from_partial("ab", {(0, "a"): 0}, 0, [7])

    def test_words_are_listed_by_length_then_alphabet(self) -> None:
        dfa = DFA(("b", "a"), np.array([[0, 1], [1, 0]]), 0, frozenset({0}))
        assert ["".join(map(str, word)) for word in dfa.words(3)] == ["", "b", "bb", "aa", "bbb", "baa", "aba", "aab"]
        with pytest.raises(ValueError, match="max_length must be at least 0"):
            list(dfa.words(-1))

    def test_a_long_word_of_a_thin_language_is_found_without_trying_all(self) -> None:
        chain = DFA.from_partial("ab", {(n, "a"): n + 1 for n in range(60)}, 0, [60])
        assert list(chain.words(80)) == [("a",) * 60]

    @few
    @given(dfas())
    def test_words_are_exactly_the_accepted_ones(self, dfa: DFA) -> None:
        assert list(dfa.words(5)) == [word for word in all_words(5) if dfa(word)]

    def test_no_letters(self) -> None:
        dfa = DFA((), np.zeros((1, 0), dtype=int), 0, frozenset({0}))
        assert list(dfa.words(3)) == [()]
        assert minimised(dfa) == dfa
        assert is_universal(dfa)

    @few
    @given(dfas())
    def test_zero_one_weights_give_the_language(self, dfa: DFA) -> None:
        initial, matrices, final = weights01(dfa)
        for word in all_words(4):
            state = initial
            for symbol in word:
                state = matrices[ALPHABET.index(symbol)] @ state
            assert final @ state == int(dfa(word))


class TestDeterminism:
    @few
    @given(nfas())
    def test_determinised_keeps_the_language(self, nfa: NFA) -> None:
        dfa = determinised(nfa)
        assert language(dfa) == language(nfa)
        assert list(nfa.words(4)) == list(dfa.words(4))
        assert nfa == nfa

    def test_epsilon_cycles_and_chains(self) -> None:
        edges = frozenset({(0, None, 1), (1, None, 0), (1, None, 2), (2, "a", 2)})
        nfa = NFA(ALPHABET, 3, edges, frozenset({0}), frozenset({2}))
        assert nfa("")
        assert nfa("aa")
        assert not nfa("ab")

    def test_no_states(self) -> None:
        assert is_empty(determinised(NFA(ALPHABET, 0, frozenset(), frozenset(), frozenset())))

    def test_blow_up_is_refused_past_the_limit(self) -> None:
        edges = {(0, "a", 0), (0, "b", 0), (0, "a", 1)} | {(n, s, n + 1) for n in range(1, 12) for s in ALPHABET}
        nfa = NFA(ALPHABET, 13, frozenset(edges), frozenset({0}), frozenset({12}))
        assert determinised(nfa).states == 4096
        with pytest.raises(ValueError, match="more than limit = 1000"):
            determinised(nfa, limit=1000)


class TestMinimisation:
    @few
    @given(dfas(most_states=8))
    def test_same_language_and_every_pair_of_states_is_separable(self, dfa: DFA) -> None:
        small = minimised(dfa)
        assert small == dfa
        assert small.states <= dfa.states
        from_state = [DFA(ALPHABET, small.transitions, state, small.accepting) for state in range(small.states)]
        for first in range(small.states):
            for second in range(first):
                assert separating_word(from_state[first], from_state[second]) is not None

    @few
    @given(dfas(most_states=4), dfas(most_states=4))
    def test_equal_languages_give_identical_tables(self, first: DFA, second: DFA) -> None:
        one, other = minimised(first), minimised(second)
        identical = np.array_equal(one.transitions, other.transitions) and one.accepting == other.accepting
        assert identical == (language(first, 7) == language(second, 7))

    def test_unreachable_states_go(self) -> None:
        assert minimised(DFA(("a",), np.array([[0], [0]]), 0, frozenset({0, 1}))).states == 1

    @pytest.mark.parametrize("shape", ["random", "chain", "cycle"])
    def test_a_thousand_states_of_ten_letters(self, shape: str) -> None:
        generator = np.random.default_rng(1)
        states = np.arange(1000)
        table = {
            "random": generator.integers(0, 1000, (1000, 10)),
            "chain": np.repeat(np.minimum(states + 1, 999)[:, None], 10, axis=1),
            "cycle": (states[:, None] + np.arange(10)) % 1000,
        }[shape]
        accepting = {"random": range(500), "chain": [999], "cycle": range(0, 1000, 4)}[shape]
        small = minimised(DFA(tuple(range(10)), table, 0, frozenset(accepting)))
        assert small.states == (4 if shape == "cycle" else 1000)


class TestBooleanLaws:
    @few
    @given(dfas(), dfas())
    def test_operations_are_those_of_sets_of_words(self, a: DFA, b: DFA) -> None:
        in_a, in_b = language(a), language(b)
        assert language(a & b) == in_a & in_b == language(intersected(a, b))
        assert language(a | b) == in_a | in_b == language(united(a, b))
        assert language(a - b) == in_a - in_b == language(subtracted(a, b))
        assert language(a ^ b) == in_a ^ in_b == language(symmetric_difference(a, b))
        assert language(~a) == set(all_words(6)) - in_a == language(complemented(a))

    @few
    @given(dfas(), dfas(), dfas())
    def test_laws(self, a: DFA, b: DFA, c: DFA) -> None:
        assert ~(a & b) == ~a | ~b
        assert ~~a == a
        assert a & (b | c) == (a & b) | (a & c)
        assert a - b == a & ~b
        assert is_empty(a & ~a)
        assert is_universal(a | ~a)

    def test_alphabets_agree_as_sets(self) -> None:
        swapped = DFA(("b", "a"), np.array([[0, 1], [1, 0]]), 0, frozenset({0}))
        assert swapped == even_as()
        assert is_empty(swapped ^ even_as())
        other = DFA(("a", "c"), np.array([[0, 0]]), 0, frozenset())
        assert other != nothing()
        with pytest.raises(ValueError, match="both alphabets must have the same letters"):
            other & nothing()
        with pytest.raises(ValueError, match="both alphabets must have the same letters"):
            separating_word(other, nothing())
        assert even_as() != "even"


class TestRationalOperations:
    @few
    @given(dfas(most_states=4), dfas(most_states=4))
    def test_concatenation(self, a: DFA, b: DFA) -> None:
        joined = concatenated(a, b)
        for word in all_words(5):
            assert joined(word) == any(a(word[:cut]) and b(word[cut:]) for cut in range(len(word) + 1))

    @few
    @given(dfas(most_states=4))
    def test_star(self, a: DFA) -> None:
        repeated = starred(a)
        members = {()}
        for word in all_words(5)[1:]:
            if any(word[:cut] in members and a(word[cut:]) for cut in range(len(word))):
                members.add(word)
        assert language(repeated, 5) == members

    @few
    @given(dfas())
    def test_reversal(self, a: DFA) -> None:
        assert language(reversed_language(a)) == {word[::-1] for word in language(a)}
        assert reversed_language(reversed_language(a)) == a

    @few
    @given(dfas(most_states=4), dfas(most_states=4))
    def test_reversal_of_a_concatenation(self, a: DFA, b: DFA) -> None:
        assert reversed_language(concatenated(a, b)) == concatenated(reversed_language(b), reversed_language(a))

    @few
    @given(dfas(most_states=4))
    def test_projection(self, a: DFA) -> None:
        image = projected(a, {"a": "x", "b": "x"})
        assert image.alphabet == ("x",)
        lengths = {len(word) for word in language(a)}
        assert {len(word) for word in image.words(6)} == lengths

    @few
    @given(dfas(most_states=4))
    def test_inverse_image(self, a: DFA) -> None:
        mapping = {"x": "a", "y": "b", "z": "a"}
        before = inverse_image(a, "xyz", mapping)
        for word in all_words(4, ("x", "y", "z")):
            assert before(word) == a([mapping[symbol] for symbol in word])
        assert projected(before, mapping) == a

    def test_mappings_must_be_complete(self) -> None:
        with pytest.raises(ValueError, match="'b' has none"):
            projected(even_as(), {"a": "x"})
        with pytest.raises(ValueError, match="'z' has none"):
            inverse_image(even_as(), "xz", {"x": "a"})
        with pytest.raises(ValueError, match="got 'x' → 'q'"):
            inverse_image(even_as(), "x", {"x": "q"})


class TestQuestions:
    def test_empty_language(self) -> None:
        assert is_empty(nothing())
        assert not is_universal(nothing())
        assert shortest_word(nothing()) is None
        assert list(nothing().words(4)) == []
        assert minimised(nothing()).states == 1
        assert starred(nothing()) == only_empty_word()
        assert concatenated(nothing(), even_as()) == nothing() == reversed_language(nothing())

    def test_only_the_empty_word(self) -> None:
        assert shortest_word(only_empty_word()) == ()
        assert concatenated(only_empty_word(), even_as()) == even_as()
        assert starred(only_empty_word()) == only_empty_word() == reversed_language(only_empty_word())

    def test_unreachable_acceptance_does_not_count(self) -> None:
        assert is_empty(DFA(("a",), np.array([[0], [1]]), 0, frozenset({1})))

    @few
    @given(dfas())
    def test_shortest_word_is_the_first(self, dfa: DFA) -> None:
        assert shortest_word(dfa) == next(dfa.words(dfa.states), None)

    @few
    @given(dfas(), dfas())
    def test_a_difference_comes_with_a_shortest_word(self, a: DFA, b: DFA) -> None:
        separating = separating_word(a, b)
        assert (a == b) == (separating is None)
        if separating is not None:
            assert a(separating) != b(separating)
            assert all(a(word) == b(word) for word in all_words(len(separating) - 1))
