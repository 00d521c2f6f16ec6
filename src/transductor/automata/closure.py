"""The space that words can reach, exactly: a basis of words, and every letter's matrix in it.

The basis is chosen modulo a prime, the matrices are solved for modulo many primes and put together by Chinese
remainders, and then *checked over the integers*: ``N_a F = F X_a`` holds or the answer is not given.  A prime for which
the check fails is replaced by the next.  Where python-flint is installed (the extra ``exact``) it solves the equations;
the check is the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from importlib.util import find_spec

import numpy as np

from transductor.automata.modular import Residues, combined, primes, product, reconstructed, reduced_residues, solved
from transductor.automata.weighted import WeightedAutomaton
from transductor.automata.weights import Array


@dataclass(frozen=True)
class IntegerForm:
    """A rational automaton without fractions: ``initial / start``, ``matrices / step``, ``final / stop``."""

    initial: Array
    matrices: Array
    final: Array
    start: int
    step: int
    stop: int


def integer_form(automaton: WeightedAutomaton) -> IntegerForm:
    """Return the automaton over common denominators."""
    parts = [_over_one_denominator(part) for part in (automaton.initial, automaton.matrices, automaton.final)]
    return IntegerForm(*(numbers for numbers, _ in parts), *(denominator for _, denominator in parts))  # type: ignore[arg-type]


def _over_one_denominator(values: Array) -> tuple[Array, int]:
    denominator = math.lcm(1, *(value.denominator for value in values.reshape(-1)))
    out = np.empty(values.shape, dtype=object)
    for place, value in np.ndenumerate(values):
        out[place] = value.numerator * (denominator // value.denominator)
    return out, denominator


@dataclass(frozen=True)
class Closure:
    """A basis of the reachable space.

    Attributes:
        words: ``r`` words (letters by index), shortest first, each a letter longer than an earlier one.
        vectors: ``(D, r)`` integers: where the words lead; ``(R, r)`` through a view.
        coordinates: ``(V, r, r)`` Fractions: ``matrices[a] @ vectors = vectors @ coordinates[a]``, checked.
    """

    words: tuple[tuple[int, ...], ...]
    vectors: Array
    coordinates: Array


def reachable_words(
    initial: Residues, matrices: Residues, prime: int, view: Residues | None = None
) -> list[tuple[int, ...]]:
    """Return words whose vectors are a basis of the reachable space modulo a prime, in length-lexicographic order.

    With a ``view (R, D)`` it is the space of ``view @ state``.  Letters must respect the view: states that look alike
    must look alike after every letter.
    """
    dim = len(initial) if view is None else len(view)
    rows, pivots = np.zeros((0, dim), dtype=np.int64), np.zeros(0, dtype=np.int64)
    words: list[tuple[int, ...]] = []
    level: list[tuple[tuple[int, ...], Residues]] = [((), initial)]
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


def forward_closure(form: IntegerForm, *, view: Array | None = None, coordinates: bool = True) -> Closure:
    """Return the reachable space of an automaton in integer form.

    Args:
        view: Integers ``(R, D)`` whose rows span a space that is closed under the letters from the right.  The closure
            is then of ``view @ state``.
        coordinates: Whether to solve for the matrices and check them; otherwise the basis is not proved yet.
    """
    for prime in primes():
        view_residues = None if view is None else reduced_residues(view, prime)
        residues = reduced_residues(form.matrices, prime)
        words = reachable_words(reduced_residues(form.initial, prime), residues, prime, view_residues)
        states = _states(form, words)
        vectors = states if view is None else _integer_product(view, states)
        if not coordinates:
            return Closure(tuple(words), vectors, np.zeros((0, 0, 0), dtype=object))
        after = [_integer_product(matrix, states) for matrix in form.matrices]
        solution = _coordinates(vectors, after if view is None else [_integer_product(view, each) for each in after])
        if solution is not None:
            return Closure(tuple(words), vectors, solution)
    raise AssertionError("there are more primes than words")


def _integer_product(left: Array, right: Array) -> Array:
    """Return the product of arrays of integers; numpy gets it wrong when the inner dimension is 0."""
    if left.shape[1] == 0:
        return np.zeros((left.shape[0], right.shape[1]), dtype=object)
    return np.asarray(left @ right, dtype=object)


def _states(form: IntegerForm, words: list[tuple[int, ...]]) -> Array:
    """Return where the words lead: ``(D, r)``."""
    known: dict[tuple[int, ...], Array] = {(): form.initial}
    for word in words:
        if word:
            known[word] = form.matrices[word[-1]] @ known[word[:-1]]
    out = np.empty((len(form.initial), len(words)), dtype=object)
    for place, word in enumerate(words):
        out[:, place] = known[word]
    return out


def _coordinates(vectors: Array, after: list[Array]) -> Array | None:
    """Return ``X_a`` with ``after[a] = vectors @ X_a``; None if the vectors turn out not to be closed."""
    letters, rank = len(after), vectors.shape[1]
    if rank == 0 or letters == 0:
        return np.zeros((letters, rank, rank), dtype=object)
    targets = np.concatenate(after, 1)
    fractions = _eliminated(vectors, targets) if find_spec("flint") else _by_remainders(vectors, targets)
    if fractions is None:
        return None
    numerators, denominator = fractions
    if not np.array_equal(denominator * targets, vectors @ numerators):
        raise AssertionError("the solution of a linear system does not solve it")
    out = np.empty((letters, rank, rank), dtype=object)
    for place, value in np.ndenumerate(numerators):
        letter, column = divmod(place[1], rank)
        out[letter, place[0], column] = Fraction(int(value), int(denominator))
    return out


def _eliminated(vectors: Array, targets: Array) -> tuple[Array, int] | None:
    """Return X, over one denominator, with ``vectors @ X = targets``, by python-flint; None if there is none."""
    import flint

    joined = np.concatenate((vectors, targets), 1)
    echelon, denominator, joined_rank = flint.fmpz_mat([[int(value) for value in row] for row in joined]).rref()
    rank = vectors.shape[1]
    if joined_rank > rank:
        return None
    rows = [[int(echelon[i, j]) for j in range(rank, joined.shape[1])] for i in range(rank)]
    return np.array(rows, dtype=object).reshape(rank, -1), int(denominator)


def _by_remainders(vectors: Array, targets: Array) -> tuple[Array, int] | None:
    """Solve the same system modulo primes, until the remainders determine fractions that solve it."""
    residues: list[Residues] = []
    moduli: list[int] = []
    wanted = 1
    for prime in primes():
        columns, right = reduced_residues(vectors, prime), reduced_residues(targets, prime)
        answer = solved(columns, right, prime)
        if answer is None:
            continue  # the prime divides a determinant
        if not np.array_equal(product(columns, answer, prime), right):
            return None
        residues.append(answer)
        moduli.append(prime)
        if len(moduli) < wanted:
            continue
        wanted = len(moduli) + max(1, len(moduli) // 2)
        fractions = reconstructed(*combined(residues, moduli))
        if fractions is not None and np.array_equal(fractions[1] * targets, vectors @ fractions[0]):
            return fractions
    raise AssertionError("there are more primes than digits")
