"""Every operation against its definition on short words, and the laws that hold between them."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest

from tests.automata.random_machines import rational_automaton, rationals
from tests.automata.test_weighted import in_semiring
from tests.properties import given, settings, st
from transductor.automata import (
    DFA,
    WEIGHTS,
    WeightedAutomaton,
    all_words,
    cascaded,
    extended,
    gated,
    left_quotient,
    only_word,
    power,
    rank,
    renamed,
    restricted,
    reversed_series,
    right_quotient,
    shuffle_product,
    starred,
    zero_series,
)

WORDS = ["".join(word) for length in range(5) for word in product("ab", repeat=length)]


def pair(seed=0, dim=3):
    rng = np.random.default_rng(seed)
    return rational_automaton(rng, dim, 2), rational_automaton(rng, 2, 2)


def splits(word):
    return [(word[:cut], word[cut:]) for cut in range(len(word) + 1)]


def test_sum_difference_and_multiple():
    a, b = pair()
    for word in WORDS:
        assert (a + b)(word) == a(word) + b(word)
        assert (a - b)(word) == a(word) - b(word)
        assert (a * 3)(word) == (Fraction(3) * a)(word) == 3 * a(word)
        assert (-a)(word) == -a(word)


def test_cauchy_product_and_power():
    a, b = pair()
    for word in WORDS:
        assert (a * b)(word) == sum(a(u) * b(v) for u, v in splits(word))
        assert (a**2)(word) == sum(a(u) * a(v) for u, v in splits(word))
    assert power(a, 0) == only_word("", "ab")


def test_star_of_proper_and_of_convergent_series():
    a, _ = pair()
    for weight in (Fraction(0), Fraction(1, 3), Fraction(-2, 3)):
        series = a + only_word("", "ab") * (weight - a(""))
        star = starred(series)
        for word in WORDS:
            # S* = 1 + S S*, and the part of S on the empty word is brought to the other side.
            rest = sum(series(u) * star(v) for u, v in splits(word) if u)
            assert (1 - weight) * star(word) == (word == "") + rest
    with pytest.raises(ValueError, match="absolute value < 1; it is 2"):
        starred(only_word("", "a") * 2)


@pytest.mark.parametrize("name", ["boolean", "max_plus", "min_plus", "log", "float"])
def test_stars_over_other_weights_satisfy_their_equation(name):
    rng = np.random.default_rng(3)
    ring = WEIGHTS[name]
    series = in_semiring(name, rng, 2)
    sign = {"max_plus": -1.0, "min_plus": 1.0, "log": -1.0, "float": 0.5, "boolean": True}[name]
    final = np.asarray([ring.one if name == "boolean" else sign, ring.zero])
    series = WeightedAutomaton([ring.one, ring.zero], series.matrices, final, "ab", weights=name)
    star = starred(series)
    for word in WORDS[1:]:
        total = ring.zero
        for u, v in splits(word):
            total = ring.plus(total, ring.times(series(u), star(v)))
        assert total == star(word) or abs(total - star(word)) < 1e-9
    if name in ("max_plus", "log"):
        with pytest.raises(ValueError, match="star converges only"):
            starred(WeightedAutomaton([1.0], [[[0.0]]], [1.0], "a", weights=name))


def test_hadamard_product_and_shuffle():
    a, b = pair()
    shuffled = shuffle_product(a, b)
    for word in WORDS:
        assert (a & b)(word) == a(word) * b(word)
        total = 0
        for size in range(len(word) + 1):
            for places in combinations(range(len(word)), size):
                first = "".join(word[i] for i in places)
                second = "".join(word[i] for i in range(len(word)) if i not in places)
                total += a(first) * b(second)
        assert shuffled(word) == total


def test_reversal_and_quotients():
    a, _ = pair()
    for word in WORDS:
        assert reversed_series(a)(word) == a(word[::-1])
        assert left_quotient(a, "ab")(word) == a("ab" + word)
        assert right_quotient(a, "ab")(word) == a(word + "ab")


def test_letters_renamed_joined_dropped_and_added():
    a = rational_automaton(np.random.default_rng(0), 3, 3)
    swapped = renamed(a, {"a": "b", "b": "a"})
    joined = renamed(a, {"c": "a"})
    for word in WORDS:
        assert swapped(word) == a(word.translate(str.maketrans("ab", "ba")))
        choices = product(*({"a": "ac", "b": "b"}[letter] for letter in word))
        assert joined(word) == sum(a(choice) for choice in choices)
        assert restricted(a, "ba")(word) == a(word)
        assert extended(a, "xabc")(word) == a(word)
    assert extended(a, "xabc")("axb") == 0
    assert joined.alphabet == ("a", "b")


def test_a_cascade_reads_the_first_state_of_before_the_letter():
    rng = np.random.default_rng(0)
    first, second = rational_automaton(rng, 2, 2), rational_automaton(rng, 3, 2)
    couplings = rationals(rng, 2, 3, 2)
    both = cascaded(first, second, couplings)
    for word in WORDS:
        h1, h2 = first.initial, second.initial
        for letter in both.indices(word):
            h1, h2 = first.matrices[letter] @ h1, second.matrices[letter] @ h2 + couplings[letter] @ h1
        assert both(word) == second.final @ h2


def test_units_and_singletons():
    a, _ = pair()
    assert (a & all_words("ab")) == a
    assert a * only_word("", "ab") == a == only_word("", "ab") * a
    assert a + zero_series("ab") == a
    assert a * zero_series("ab") == zero_series("ab")
    assert [word for word in WORDS if only_word("aba", "ab")(word)] == ["aba"]


SEEDS = st.integers(0, 10_000)


@settings(max_examples=25, deadline=None)
@given(SEEDS, st.text("ab", max_size=3), st.text("ab", max_size=3))
def test_laws(seed, u, v):
    rng = np.random.default_rng(seed)
    a, b, c = (rational_automaton(rng, int(rng.integers(0, 4)), 2, denominators=2) for _ in range(3))
    assert (a + b) * c == a * c + b * c
    assert a * (b * c) == (a * b) * c
    assert (a & b) == (b & a)
    assert (a & (b + c)) == (a & b) + (a & c)
    assert reversed_series(reversed_series(a)).identical(a)
    assert reversed_series(a * b) == reversed_series(b) * reversed_series(a)
    assert left_quotient(left_quotient(a, u), v) == left_quotient(a, u + v)
    assert right_quotient(right_quotient(a, u), v) == right_quotient(a, v + u)
    assert left_quotient(right_quotient(a, u), v) == right_quotient(left_quotient(a, v), u)
    assert shuffle_product(a, b) == shuffle_product(b, a)


@settings(max_examples=25, deadline=None)
@given(SEEDS)
def test_cascades_associate(seed):
    rng = np.random.default_rng(seed)
    a, b, c = (rational_automaton(rng, dim, 2) for dim in (2, 1, 3))
    lower, upper = rationals(rng, 2, 1, 2), rationals(rng, 2, 3, 3)
    left = cascaded(cascaded(a, b, lower), c, upper)
    right = cascaded(a, cascaded(b, c, upper[:, :, 2:]), np.concatenate((lower, upper[:, :, :2]), 1))
    assert left.identical(right)


@pytest.mark.parametrize(
    ("words", "act"),
    [
        ("same weights; got 'rational' and 'float'", lambda a, b: a + b.over("float")),
        ("'c' are in one alone", lambda a, b: a + rational_automaton(np.random.default_rng(0), 2, 3)),
        (
            "a difference needs weights",
            lambda a, b: in_semiring("boolean", np.random.default_rng(0)) - a.over("rational"),
        ),
        ("exponent must be an integer", lambda a, b: a**-1),
        ("couplings must have shape", lambda a, b: cascaded(a, b, [[[1]]])),
        ("letter must be one of", lambda a, b: renamed(a, {"z": "a"})),
        ("'a' is missing", lambda a, b: extended(a, "bc")),
        ("got 'z' at position 0", lambda a, b: only_word("z", "ab")),
        ("a weight of 'rational'", lambda a, b: a * "x"),
    ],
)
def test_bad_arguments_are_refused_by_name(words, act):
    with pytest.raises(ValueError, match=words):
        act(*pair())


def test_a_gated_stack_reads_the_state_of_before_the_letter():
    first = DFA("ab", np.array([[1, 2], [2, 0], [0, 0]]), 0, frozenset())
    rng = np.random.default_rng(0)
    gates, initial, final = rationals(rng, 2, 3, 2, 2), rationals(rng, 2), rationals(rng, 2)
    both = gated(first, gates, initial, final)
    assert both.dim == rank(both) == 6
    for word in WORDS:
        state, h2 = first.start, initial
        for letter in both.indices(word):
            state, h2 = first.transitions[state, letter], gates[letter, state] @ h2
        assert both(word) == final @ h2


def test_gates_of_another_shape_are_refused():
    first = DFA("ab", np.array([[1, 0], [0, 1]]), 0, frozenset())
    with pytest.raises(ValueError, match=r"gates must have shape \(2, 2, 3, 3\)"):
        gated(first, np.zeros((2, 3, 3, 3), dtype=int), [1, 0, 0], [1, 0, 0])
    with pytest.raises(ValueError, match="vectors of one length"):
        gated(first, np.zeros((2, 2, 3, 3), dtype=int), [1, 0, 0], [1, 0])
