"""Random automata for the tests, from a seeded generator."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from transductor.automata import WeightedAutomaton

LETTERS = "abcde"


def rationals(rng, *shape, largest=3, denominators=3):
    """Small fractions."""
    size = int(np.prod(shape))
    pairs = zip(rng.integers(-largest, largest + 1, size), rng.integers(1, denominators + 1, size), strict=True)
    out = np.empty(size, dtype=object)
    for place, (top, bottom) in enumerate(pairs):
        out[place] = Fraction(int(top), int(bottom))
    return out.reshape(shape)


def rational_automaton(rng, dim, letters, **options):
    values = (rationals(rng, *shape, **options) for shape in ((dim,), (letters, dim, dim), (dim,)))
    return WeightedAutomaton(*values, tuple(LETTERS[:letters]))


def similar(rng, automaton):
    """The same series in other coordinates: P M P⁻¹, P triangular with ones on the diagonal, permuted."""
    dim = automaton.dim
    lower = np.tril(rng.integers(-1, 2, (dim, dim)), -1) + np.eye(dim, dtype=int)
    change = np.array([[Fraction(int(x)) for x in row] for row in lower], dtype=object).reshape(dim, dim)
    inverse = np.array([[Fraction(int(i == j)) for j in range(dim)] for i in range(dim)], dtype=object).reshape(
        dim, dim
    )
    for i in range(dim):
        for j in range(i):
            inverse[i] = inverse[i] - change[i, j] * inverse[j]
    order = rng.permutation(dim)
    change, inverse = change[order], inverse[:, order]
    return WeightedAutomaton(
        change @ automaton.initial,
        [change @ matrix @ inverse for matrix in automaton.matrices],
        automaton.final @ inverse,
        automaton.alphabet,
    )


def inflated(rng, automaton, extra):
    """The same series with parts that cancel, in other coordinates: ``2 extra`` more states."""
    if extra:
        other = rational_automaton(rng, extra, len(automaton.alphabet))
        automaton = automaton + other - similar(rng, other)
    return similar(rng, automaton)
