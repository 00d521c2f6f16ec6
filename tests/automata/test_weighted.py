"""The value: what it computes over every semiring, what it refuses, that it cannot change."""

from __future__ import annotations

import math
import pickle
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest

from tests.automata.random_machines import rational_automaton
from transductor.automata import WEIGHTS, WeightedAutomaton

COUNT = WeightedAutomaton([1, 0], {"a": [[1, 0], [1, 1]], "b": [[1, 0], [0, 1]]}, [0, 1])
# Not symmetric: a transposed matrix shows.
ASYMMETRIC = {"a": [[0, 2], [0, 0]], "b": [[0, 0], [3, 0]]}


def path_sum(automaton, word):
    """The definition: over all paths, the sum of the products along them."""
    ring = automaton.weights
    total = ring.zero
    letters = automaton.indices(word)
    for path in product(range(automaton.dim), repeat=len(word) + 1):
        weight = automaton.initial[path[0]]
        for letter, (source, to) in zip(letters, pairwise(path), strict=True):
            weight = ring.times(automaton.matrices[letter][to, source], weight)
        total = ring.plus(total, ring.times(weight, automaton.final[path[-1]]))
    return total


def in_semiring(name, rng, dim=3):
    """A random automaton with some zeros."""
    ring = WEIGHTS[name]

    def draw(*shape):
        values = np.empty(shape, dtype=object)
        for place, _ in np.ndenumerate(values):
            zero = rng.random() < 0.3
            number = {"boolean": lambda: True, "rational": lambda: Fraction(int(rng.integers(-5, 6)), 3)}.get(
                name, lambda: float(rng.normal())
            )()
            values[place] = ring.zero if zero else number
        return ring.array(values)

    return WeightedAutomaton(draw(dim), draw(2, dim, dim), draw(dim), "ab", weights=name)


@pytest.mark.parametrize("name", WEIGHTS)
def test_a_word_weighs_the_sum_over_its_paths(name):
    rng = np.random.default_rng(0)
    for _ in range(5):
        automaton = in_semiring(name, rng)
        words = ["".join(word) for length in range(5) for word in product("ab", repeat=length)]
        batch = automaton.batch(words)
        for word, in_batch in zip(words, batch, strict=True):
            expected = path_sum(automaton, word)
            for value in (automaton(word), in_batch):
                close = math.isclose(value, expected, rel_tol=1e-12, abs_tol=1e-12)
                assert value == expected or (not automaton.weights.exact and close)


def test_numbers_of_python_come_out():
    assert COUNT("abaa") == 3
    assert type(COUNT("a")) is Fraction
    assert type(COUNT.over("float")("a")) is float
    assert type(COUNT.over("float").over("rational")("a")) is Fraction


def test_columns_are_states_before_and_rows_states_after():
    automaton = WeightedAutomaton([0, 1], ASYMMETRIC, [1, 0])
    assert automaton("a") == 2
    assert automaton("b") == 0
    assert list(automaton.trajectory("ab")[-1]) == [0, 6]


def test_trajectory_and_support():
    assert COUNT.trajectory("aba").tolist() == [[1, 0], [1, 1], [1, 1], [1, 2]]
    assert COUNT.trajectory("").shape == (1, 2)
    assert list(COUNT.support(2)) == [(("a",), 1), (("a", "a"), 2), (("a", "b"), 1), (("b", "a"), 1)]
    assert [word for word, _ in COUNT.support(3)] == [word for word in COUNT.words(3) if "a" in word]


def test_letters_may_be_anything_hashable_and_none_at_all():
    automaton = WeightedAutomaton([1], {(0, 1): [[2]], 7: [[3]]}, [1])
    assert automaton([(0, 1), 7]) == 6
    assert WeightedAutomaton([2], [], [3], ())(()) == 6
    assert WeightedAutomaton([], [[]], [], "a")("aaa") == 0


def test_it_is_a_value():
    for change in (
        lambda: setattr(COUNT, "alphabet", "ba"),
        lambda: COUNT.matrices.__setitem__((0, 0, 0), Fraction(5)),
    ):
        with pytest.raises((AttributeError, ValueError)):
            change()
    given = np.array([1.0, 0.0])
    automaton = WeightedAutomaton(given, [np.eye(2)], given, "a", weights="float")
    given[0] = 7
    assert automaton("a") == 1
    assert pickle.loads(pickle.dumps(COUNT)).identical(COUNT)
    with pytest.raises(TypeError, match="unhashable"):
        hash(COUNT)


def test_it_says_what_it_is():
    assert repr(COUNT) == "<WeightedAutomaton: 2 states over {'a', 'b'}, rational>"


@pytest.mark.parametrize(
    ("words", "build"),
    [
        ("one of 'rational', 'float'", lambda: WeightedAutomaton([1], [[[1]]], [1], "a", weights="complex")),
        ("alphabet must be given", lambda: WeightedAutomaton([1], [[[1]]], [1])),
        ("'a' is there twice", lambda: WeightedAutomaton([1], [[[1]], [[1]]], [1], "aa")),
        ("must name the letters of matrices", lambda: WeightedAutomaton([1], {"a": [[1]]}, [1], "b")),
        (r"shape \(2, 1, 1\), one for each of the 2 letters", lambda: WeightedAutomaton([1], [[[1]]], [1], "ab")),
        ("vectors of one length", lambda: WeightedAutomaton([1], [[[1]]], [1, 2], "a")),
        ("must be finite", lambda: WeightedAutomaton([math.nan], [[[1]]], [1], "a", weights="float")),
        ("must be a rational number", lambda: WeightedAutomaton([math.inf], [[[1]]], [1], "a")),
        ("must be a rational number", lambda: WeightedAutomaton(["one"], [[[1]]], [1], "a")),
        ("finite, or -inf", lambda: WeightedAutomaton([math.inf], [[[1.0]]], [1], "a", weights="max_plus")),
        ("True or False", lambda: WeightedAutomaton([2], [[[1]]], [1], "a", weights="boolean")),
        (r"letters \{'a', 'b'\}; got 'c' at position 1", lambda: COUNT("ac")),
        ("letter must be one of", lambda: COUNT.letter_index("z")),
        ("cannot be read as 'log'", lambda: COUNT.over("log")),
        ("must hold the letters", lambda: COUNT.with_alphabet("ac")),
    ],
)
def test_bad_input_is_refused_by_name(words, build):
    with pytest.raises(ValueError, match=words):
        build()


def test_the_order_of_letters_is_no_part_of_the_series():
    automaton = rational_automaton(np.random.default_rng(1), 3, 3)
    turned = automaton.with_alphabet("cab")
    assert not turned.identical(automaton)
    assert turned("abcca") == automaton("abcca")
    assert turned == automaton
