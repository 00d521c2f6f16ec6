"""Whether two rational series are equal: asked modulo random primes, and proved over the integers.

Modulo a prime every number has 31 bits, whatever its denominator.  A word whose weights differ there differs, and its
weights are then computed exactly.  If none does, the proof is a space ``U`` of pairs of states that holds the pair of
initial states, is closed under every letter and is orthogonal to ``(final, −final)``: then all weights agree.  ``U`` is
the space that words reach, written in reduced echelon form.  That form does not depend on the words, so its fractions
are as short as the space allows; they are put together from their remainders, and the three properties are checked
over the integers, each letter and column with a denominator of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Final

import numpy as np

from transductor.automata.closure import reachable_words
from transductor.automata.modular import Residues, combined, product, random_primes, reconstructed, reduced_residues
from transductor.automata.weighted import WeightedAutomaton
from transductor.automata.weights import Array

Letters = tuple[int, ...]

_WITNESSES: Final = 3
"""Primes by which ``rank`` and a shortest word are decided.  A prime errs if it divides one integer; of the 5 · 10⁷
primes that one is drawn from, an integer of a million bits has at most 33 000."""


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
        view = _vectors(final, mirrored, seen, prime)
        ranks.append(len(reachable_words(initial, matrices, prime, view)) if seen else 0)
        if len(ranks) == _WITNESSES or ranks[-1] == automaton.dim:
            return max(ranks)
    raise AssertionError("there are more primes than denominators have")


def differing_word(a: WeightedAutomaton, b: WeightedAutomaton) -> tuple[Letters | None, int]:
    """Return a word (letters by index in ``a``) on which two rational series differ, and how many words were compared.

    None means that they are equal, which has been proved.  No shorter word differs modulo any of three random primes.
    """
    if b.alphabet != a.alphabet:
        b = b.with_alphabet(a.alphabet)
    sides = IntegerColumns.of(a), IntegerColumns.of(b)
    spaces = _Spaces(sides)
    shortest: Letters | None = None
    asked = compared = 0
    for prime in random_primes():
        parts = _difference(sides, prime)
        if parts is None:
            continue
        asked += 1
        initial, matrices, final = parts
        # Before all witnesses have been asked, and from time to time later, the basis of words is chosen again.
        words = reachable_words(initial, matrices, prime) if asked <= _WITNESSES or spaces.refused else spaces.words
        vectors = _vectors(initial, matrices, words, prime)
        values = product(vectors, final[:, None], prime)[:, 0]
        compared = max(compared, len(words))
        if values.any():
            word = words[int(np.flatnonzero(values)[0])]
            shortest = word if shortest is None or len(word) < len(shortest) else shortest
        if shortest is not None:
            if asked >= _WITNESSES:
                return shortest, compared
        elif spaces.proved(words, vectors, prime):
            return None, compared
    raise AssertionError("there are more primes than digits")


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


class _Spaces:
    """The space that words reach, modulo more and more primes, until its echelon form is known and checked.

    Two echelon forms are followed: with the coordinates of the first automaton as pivots where possible, and with those
    of the second.  One can be much shorter than the other: a machine's states are short in terms of its own words.
    """

    def __init__(self, sides: tuple[IntegerColumns, IntegerColumns]) -> None:
        self.sides = sides
        self.words: list[Letters] = []
        self.refused = False  # a space was determined and is not closed: the words may be too few
        self._forms = _Echelon(), _Echelon()

    def proved(self, words: list[Letters], vectors: Residues, prime: int) -> bool:
        """Take the vectors of words modulo another prime; return whether they now prove equality."""
        if len(words) < len(self.words):
            return False  # the prime hides a direction
        if len(words) > len(self.words):
            self.words, self.refused, self._forms = words, False, (_Echelon(), _Echelon())
        last = vectors.shape[1] - 1
        for form, order in zip(self._forms, (slice(None), slice(None, None, -1)), strict=True):
            rows, pivots = _echelon(vectors[:, order], prime)
            if len(pivots) < len(words) or not form.grown(rows, pivots, prime):
                continue
            fractions = form.fractions()
            if fractions is None:
                continue
            places = np.array(pivots, dtype=np.int64) if order.step is None else last - np.array(pivots, dtype=np.int64)
            if _is_invariant(self.sides, fractions[0][:, order], fractions[1], places):
                return True
            self.refused = True
        return False


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


def _vectors(initial: Residues, matrices: Residues, words: Sequence[Letters], prime: int) -> Residues:
    """Return where words lead, a row for each; every word's prefixes are among the words."""
    known: dict[Letters, Residues] = {(): initial}
    for word in words:
        if word:
            known[word] = product(matrices[word[-1]], known[word[:-1]][:, None], prime)[:, 0]
    return np.stack([known[word] for word in words]) if words else np.zeros((0, len(initial)), dtype=np.int64)


def _echelon(rows: Residues, prime: int) -> tuple[Residues, tuple[int, ...]]:
    """Return the reduced echelon form of independent rows modulo a prime, and the columns of its pivots."""
    work, pivots = rows % prime, list[int]()
    for step in range(len(work)):
        columns = np.flatnonzero(work[step:].any(axis=0))
        if len(columns) == 0:
            break
        column = int(columns[0])
        chosen = step + int(np.flatnonzero(work[step:, column])[0])
        if chosen != step:
            work[[step, chosen]] = work[[chosen, step]]
        work[step] = work[step] * pow(int(work[step, column]), -1, prime) % prime
        factors = work[:, column].copy()
        factors[step] = 0
        work = (work - factors[:, None] * work[step] % prime) % prime
        pivots.append(column)
    return work, tuple(pivots)


def _is_invariant(
    sides: tuple[IntegerColumns, IntegerColumns], rows: Array, denominators: list[int], pivots: Residues
) -> bool:
    """Whether the space of ``rows / denominators`` proves equality, over the integers.

    Each row is one at its own pivot and zero at those of others, so a vector ``v`` of the space is ``Σ_j v[pivot_j] ·
    row_j`` and no other combination.
    """
    first, second = sides
    dim = len(first.initial)
    common = math.lcm(1, *denominators)
    basis = rows * np.array([common // each for each in denominators], dtype=object)[:, None]  # common · rows

    def inside(vectors: Array) -> bool:
        return np.array_equal(common * vectors, _integer_product(vectors[:, pivots], basis))

    starts = np.concatenate((first.initial * second.start, second.initial * first.start))
    if not inside(starts[None, :]):
        return False
    ends = _integer_product(basis[:, :dim], first.final[:, None]) * second.stop
    if np.any(ends != _integer_product(basis[:, dim:], second.final[:, None]) * first.stop):
        return False
    for letter in range(len(first.matrices)):
        step = math.lcm(1, *first.steps[letter], *second.steps[letter])
        images = []
        for side, part in ((first, rows[:, :dim]), (second, rows[:, dim:])):
            scaled = part * np.array([step // each for each in side.steps[letter]], dtype=object)
            images.append(_integer_product(scaled, side.matrices[letter].T))
        if not inside(np.concatenate(images, axis=1)):
            return False
    return True


def _integer_product(left: Array, right: Array) -> Array:
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
