"""The space that words can reach, exactly: a basis that is as short as the space allows, and the machine in it.

Modulo a prime every number has 31 bits, whatever its denominator.  Words are chosen there whose states are independent;
they are then independent over the rationals too.  Their space is written in reduced echelon form, which does not depend
on the words.  Its fractions are put together from their remainders modulo as many primes as they need, and *checked
over the integers*: the space holds the initial state and is closed under every letter, each letter and column with a
denominator of its own.  A space that fails the check is not given; the words are chosen again by other primes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from importlib.util import find_spec
from typing import Final

import numpy as np

from transductor.automata.modular import (
    Residues,
    combined,
    echelon,
    product,
    random_primes,
    reconstructed,
    reduced_residues,
)
from transductor.automata.weighted import WeightedAutomaton
from transductor.automata.weights import Array

Letters = tuple[int, ...]

WITNESSES: Final = 3
"""Primes by which ``rank``, a basis of words and a shortest word are decided.  A prime errs if it divides one integer;
of the 5 · 10⁷ primes that one is drawn from, an integer of a million bits has at most 33 000."""


@dataclass(frozen=True, eq=False)
class IntegerColumns:
    """A rational automaton as integers, with a denominator for each vector and each column of each matrix."""

    initial: Array  # (D)
    matrices: Array  # (V, D, D)
    final: Array  # (D)
    start: int
    steps: Array  # (V, D), of the columns
    stop: int

    @classmethod
    def of(cls, automaton: WeightedAutomaton) -> IntegerColumns:
        """Return the numerators over the least common denominators."""
        initial, start = _over_one_denominator(automaton.initial)
        final, stop = _over_one_denominator(automaton.final)
        matrices = np.zeros(automaton.matrices.shape, dtype=object)
        steps = np.ones(automaton.matrices.shape[::2], dtype=object)
        for letter, source in np.ndindex(steps.shape):
            column, steps[letter, source] = _over_one_denominator(automaton.matrices[letter, :, source])
            matrices[letter, :, source] = column
        return cls(initial, matrices, final, start, steps, stop)

    def residues(self, prime: int) -> tuple[Residues, Residues, Residues] | None:
        """Return the automaton modulo a prime; None if the prime divides a denominator."""
        steps = reduced_residues(self.steps, prime)
        if not (steps.all() and self.start % prime and self.stop % prime):
            return None
        inverses = {value: pow(value, -1, prime) for value in set(steps.reshape(-1).tolist())}
        scales = np.array([inverses[value] for value in steps.reshape(-1).tolist()], dtype=np.int64).reshape(
            steps.shape
        )
        return (
            reduced_residues(self.initial, prime) * pow(self.start, -1, prime) % prime,
            reduced_residues(self.matrices, prime) * scales[:, None, :] % prime,
            reduced_residues(self.final, prime) * pow(self.stop, -1, prime) % prime,
        )


def reachable_words(initial: Residues, matrices: Residues, prime: int, view: Residues | None = None) -> list[Letters]:
    """Return words whose vectors are a basis of the reachable space modulo a prime, in length-lexicographic order.

    With a ``view (R, D)`` it is the space of ``view @ state``.  Letters must respect the view: states that look alike
    must look alike after every letter.
    """
    dim = len(initial) if view is None else len(view)
    rows, pivots = np.zeros((0, dim), dtype=np.int64), np.zeros(0, dtype=np.int64)
    words: list[Letters] = []
    level: list[tuple[Letters, Residues]] = [((), initial)]
    while level and len(words) < dim:
        following = []
        for word, vector in level:
            seen = vector if view is None else product(view, vector[:, None], prime)[:, 0]
            rest = (seen - product(seen[None, pivots], rows, prime)[0]) % prime if len(rows) else seen % prime
            places = np.flatnonzero(rest)
            if len(places) == 0:
                continue
            rest = rest * pow(int(rest[places[0]]), -1, prime) % prime
            if len(rows):
                rows = (rows - rows[:, places[0], None] * rest % prime) % prime
            rows, pivots = np.concatenate((rows, rest[None])), np.append(pivots, places[0])
            words.append(word)
            following.append((word, vector))
        level = [
            ((*word, letter), product(matrix, vector[:, None], prime)[:, 0])
            for word, vector in following
            for letter, matrix in enumerate(matrices)
        ]
    return words


def states_after(initial: Residues, matrices: Residues, words: Sequence[Letters], prime: int) -> Residues:
    """Return where words lead, a row for each; every word's prefixes are among the words."""
    known: dict[Letters, Residues] = {(): initial}
    for word in words:
        if word:
            known[word] = product(matrices[word[-1]], known[word[:-1]][:, None], prime)[:, 0]
    return np.stack([known[word] for word in words]) if words else np.zeros((0, len(initial)), dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Basis:
    """A basis in echelon form: ``rows / denominators``, of which each is one at its own pivot and zero at the others'.

    So a vector ``v`` of the space is ``Σ_j v[pivots[j]] · row_j`` and no other combination.
    """

    rows: Array  # (r, D)
    denominators: list[int]
    pivots: Residues  # (r)


class ReachableSpace:
    """The space that words reach in one automaton, or in several side by side: modulo more and more primes, until its
    echelon form is known and checked.

    Several orders of the coordinates may be tried.  One form can be much shorter than the other: a machine's states are
    short in terms of its own words.
    """

    def __init__(self, sides: Sequence[IntegerColumns], orders: Sequence[slice] = (slice(None),)) -> None:
        self._sides = sides
        self._orders = orders
        self._forms = [_Echelon() for _ in orders]
        self._words: list[Letters] = []
        self._asked = 0
        self._refused = False  # a space was determined and is not closed: the words may be too few

    def words(self, initial: Residues, matrices: Residues, prime: int) -> list[Letters]:
        """Return words that span the space modulo a prime: chosen by it while that is in doubt, else those known."""
        self._asked += 1
        if self._asked <= WITNESSES or self._refused:
            return reachable_words(initial, matrices, prime)
        return self._words

    def basis(self, words: list[Letters], states: Residues, prime: int) -> Basis | None:
        """Take the states after words modulo another prime; return the basis once it is determined and closed."""
        if len(words) < len(self._words):
            return None  # the prime hides a direction
        if len(words) > len(self._words):
            self._words, self._refused, self._forms = words, False, [_Echelon() for _ in self._orders]
        last = states.shape[1] - 1
        for form, order in zip(self._forms, self._orders, strict=True):
            rows, pivots = echelon(states[:, order], prime)
            if len(pivots) < len(words) or not form.grown(rows, pivots, prime):
                continue
            fractions = form.fractions()
            if fractions is None:
                continue
            places = np.array(pivots, dtype=np.int64)
            basis = Basis(fractions[0][:, order], fractions[1], places if order.step is None else last - places)
            if _is_closed(self._sides, basis):
                return basis
            self._refused = True
        return None


def reachable_part(automaton: WeightedAutomaton) -> WeightedAutomaton:
    """Return a rational automaton on the space that its words reach; itself if that is the space of all states."""
    columns = IntegerColumns.of(automaton)
    space = ReachableSpace((columns,))
    for prime in random_primes():
        parts = columns.residues(prime)
        if parts is None:
            continue
        initial, matrices, _ = parts
        words = space.words(initial, matrices, prime)
        if len(words) == automaton.dim:
            return automaton
        basis = space.basis(words, states_after(initial, matrices, words, prime), prime)
        if basis is not None:
            return _restricted(automaton, columns, basis)
    raise AssertionError("there are more primes than digits")


def _restricted(automaton: WeightedAutomaton, columns: IntegerColumns, basis: Basis) -> WeightedAutomaton:
    """Return the automaton in the coordinates of a closed space: a state's are its numbers at the pivots."""
    dim = len(basis.pivots)
    matrices = np.empty((len(automaton.alphabet), dim, dim), dtype=object)
    for letter, (steps, matrix) in enumerate(zip(columns.steps, columns.matrices, strict=True)):
        step = math.lcm(1, *steps)
        scaled = basis.rows * np.array([step // each for each in steps], dtype=object)
        after = integer_product(scaled, matrix[basis.pivots].T)
        for (source, to), value in np.ndenumerate(after):
            matrices[letter, to, source] = Fraction(int(value), int(step * basis.denominators[source]))
    ends = integer_product(basis.rows, columns.final[:, None])[:, 0]
    final = [Fraction(int(end), columns.stop * each) for end, each in zip(ends, basis.denominators, strict=True)]
    return WeightedAutomaton(automaton.initial[basis.pivots], matrices, final, automaton.alphabet, weights="rational")


def _is_closed(sides: Sequence[IntegerColumns], basis: Basis) -> bool:
    """Whether the space holds the initial state and what every letter makes of its vectors, over the integers."""
    common = math.lcm(1, *basis.denominators)
    rows = basis.rows * np.array([common // each for each in basis.denominators], dtype=object)[:, None]

    def inside(vectors: Array) -> bool:
        return np.array_equal(common * vectors, integer_product(vectors[:, basis.pivots], rows))

    start = math.lcm(1, *(side.start for side in sides))
    if not inside(np.concatenate([side.initial * (start // side.start) for side in sides])[None, :]):
        return False
    parts = np.split(basis.rows, np.cumsum([len(side.initial) for side in sides])[:-1], axis=1)
    for letter in range(len(sides[0].matrices)):
        step = math.lcm(1, *(each for side in sides for each in side.steps[letter]))
        images = []
        for side, part in zip(sides, parts, strict=True):
            scaled = part * np.array([step // each for each in side.steps[letter]], dtype=object)
            images.append(integer_product(scaled, side.matrices[letter].T))
        if not inside(np.concatenate(images, axis=1)):
            return False
    return True


@dataclass(eq=False)
class _Echelon:
    """An echelon form modulo several primes; ``pivots`` are the least that any prime has shown."""

    pivots: tuple[int, ...] | None = None
    rows: list[Residues] = field(default_factory=list)
    moduli: list[int] = field(default_factory=list)
    wanted: int = 1  # primes to collect before the fractions are tried

    def grown(self, rows: Residues, pivots: tuple[int, ...], prime: int) -> bool:
        """Take one prime more; return whether it is time to try."""
        if self.pivots is None or pivots < self.pivots:
            self.pivots, self.rows, self.moduli = pivots, [], []
        elif pivots > self.pivots:
            return False  # the prime divides a minor
        self.rows.append(rows)
        self.moduli.append(prime)
        if len(self.moduli) < self.wanted:
            return False
        self.wanted = len(self.moduli) + max(1, len(self.moduli) // 2)
        return True

    def fractions(self) -> tuple[Array, list[int]] | None:
        """Return integers with a denominator for each row, if the remainders determine them."""
        integers, modulus = combined(self.rows, self.moduli)
        numerators, denominators = np.empty(integers.shape, dtype=object), []
        for place, row in enumerate(integers):
            fractions = reconstructed(row, modulus)
            if fractions is None:
                return None
            numerators[place] = fractions[0]
            denominators.append(int(fractions[1]))
        return numerators, denominators


def integer_product(left: Array, right: Array) -> Array:
    """Return the product of matrices of integers of any size, by python-flint where it is installed."""
    if 0 in (*left.shape, right.shape[1]):  # numpy gets it wrong when the inner dimension is 0
        return np.zeros((left.shape[0], right.shape[1]), dtype=object)
    if find_spec("flint") is None or left.size < 100:
        return np.asarray(left @ right, dtype=object)
    import flint

    one, two = (flint.fmpz_mat([[int(value) for value in row] for row in matrix]) for matrix in (left, right))
    out = np.empty((left.shape[0], right.shape[1]), dtype=object)
    out[:] = [[int(value) for value in row] for row in (one * two).tolist()]
    return out


def _over_one_denominator(values: Array) -> tuple[Array, int]:
    denominator = math.lcm(1, *(value.denominator for value in values))
    numerators = np.empty(len(values), dtype=object)
    numerators[:] = [value.numerator * (denominator // value.denominator) for value in values]
    return numerators, denominator
