"""The exact machine of a function, from its values."""

from __future__ import annotations

from fractions import Fraction

import pytest

from transductor.automata import NotRational, equivalent, interpolated, rank
from transductor.automata.library import machines

SMALL = {
    named.name: named.automaton
    for named in machines()
    if named.automaton.weights.name == "rational" and named.automaton.dim <= 8 and len(named.automaton.alphabet) <= 4
}


@pytest.mark.parametrize("name", SMALL)
def test_every_small_rational_machine_of_the_library_comes_back(name):
    wanted = SMALL[name]
    exact = interpolated(wanted, wanted.alphabet, max_length=5 if len(wanted.alphabet) == 2 else 3)
    assert equivalent(exact, wanted)
    assert exact.dim == rank(wanted)


def test_horner_from_eight_values():
    exact = interpolated(lambda word: int("0" + "".join(map(str, word)), 2), (0, 1))
    assert exact.dim == 2
    assert exact((1, 0) * 500) == int("10" * 500, 2)


def test_fractions_and_nothing():
    halves = interpolated(lambda word: Fraction(1, 2) ** len(word), "ab")
    assert halves.dim == 1
    assert halves("ab" * 50) == Fraction(1, 2**100)
    assert interpolated(lambda word: 0, "ab")("abba") == 0


def test_what_has_no_machine_is_refused():
    with pytest.raises(NotRational, match=r"a machine of \d+ states, computed from words of up to 5 letters, gives"):
        interpolated(lambda word: word.count("a") ** len(word), "ab", max_length=2)
    with pytest.raises(NotRational, match="more than max_rank = 2 states"):
        interpolated(lambda word: len(word) ** 3, "a", max_rank=2)
    with pytest.raises(ValueError, match="max_length must be a positive integer; got 0"):
        interpolated(len, "a", max_length=0)
