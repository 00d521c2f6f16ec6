"""Whether two rational series are equal: asked modulo random primes, and proved over the integers.

A word whose weights differ modulo a prime differs, and its weights are then computed exactly.  If none does, the proof
is a space of pairs of states that holds the pair of initial states, is closed under every letter (both are checked by
``closure``) and is orthogonal to ``(final, −final)``: then all weights agree.
"""

from __future__ import annotations

import numpy as np

from transductor.automata.closure import (
    WITNESSES,
    Basis,
    IntegerColumns,
    Letters,
    ReachableSpace,
    integer_product,
    reachable_words,
    states_after,
)
from transductor.automata.modular import Residues, product, random_primes
from transductor.automata.weighted import WeightedAutomaton


def rank_by_primes(automaton: WeightedAutomaton) -> int:
    """Return the rank of the Hankel matrix modulo three random primes, the largest of the three.

    It is never more than the rank over the rationals, and equal to it unless all three primes divide one minor.
    """
    columns, ranks = IntegerColumns.of(automaton), list[int]()
    for prime in random_primes():
        parts = columns.residues(prime)
        if parts is None:
            continue
        initial, matrices, final = parts
        mirrored = matrices.transpose(0, 2, 1)
        seen = reachable_words(final, mirrored, prime)
        view = states_after(final, mirrored, seen, prime)
        ranks.append(len(reachable_words(initial, matrices, prime, view)) if seen else 0)
        if len(ranks) == WITNESSES or ranks[-1] == automaton.dim:
            return max(ranks)
    raise AssertionError("there are more primes than denominators have")


def differing_word(a: WeightedAutomaton, b: WeightedAutomaton) -> tuple[Letters | None, int]:
    """Return a word (letters by index in ``a``) on which two rational series differ, and how many words were compared.

    None means that they are equal, which has been proved.  No shorter word differs modulo any of three random primes.
    """
    if b.alphabet != a.alphabet:
        b = b.with_alphabet(a.alphabet)
    sides = IntegerColumns.of(a), IntegerColumns.of(b)
    # With the coordinates of the first automaton as pivots where possible, and with those of the second.
    space = ReachableSpace(sides, (slice(None), slice(None, None, -1)))
    shortest: Letters | None = None
    asked = compared = 0
    for prime in random_primes():
        parts = _difference(sides, prime)
        if parts is None:
            continue
        asked += 1
        initial, matrices, final = parts
        words = space.words(initial, matrices, prime)
        states = states_after(initial, matrices, words, prime)
        values = product(states, final[:, None], prime)[:, 0]
        compared = max(compared, len(words))
        if values.any():
            word = words[int(np.flatnonzero(values)[0])]
            shortest = word if shortest is None or len(word) < len(shortest) else shortest
        if shortest is not None:
            if asked >= WITNESSES:
                return shortest, compared
            continue
        basis = space.basis(words, states, prime)
        if basis is not None and _is_orthogonal(sides, basis):
            return None, compared
    raise AssertionError("there are more primes than digits")


def _difference(sides: tuple[IntegerColumns, IntegerColumns], prime: int) -> tuple[Residues, Residues, Residues] | None:
    """Return the automaton of the difference modulo a prime; None if the prime divides a denominator."""
    one, two = (side.residues(prime) for side in sides)
    if one is None or two is None:
        return None
    (initial, matrices, final), (other_initial, other_matrices, other_final) = one, two
    dim, letters = len(initial), len(matrices)
    both = np.zeros((letters, dim + len(other_initial), dim + len(other_initial)), dtype=np.int64)
    both[:, :dim, :dim], both[:, dim:, dim:] = matrices, other_matrices
    return np.concatenate((initial, other_initial)), both, np.concatenate((final, -other_final % prime))


def _is_orthogonal(sides: tuple[IntegerColumns, IntegerColumns], basis: Basis) -> bool:
    """Whether both automata give every pair of states of the space the same final weight."""
    (first, second), dim = sides, len(sides[0].initial)
    ends = integer_product(basis.rows[:, :dim], first.final[:, None]) * second.stop
    return np.array_equal(ends, integer_product(basis.rows[:, dim:], second.final[:, None]) * first.stop)
