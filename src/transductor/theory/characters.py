"""The real irreducible representations of a finite group, by the exact eigenvalues of every element.

Burnside's class matrices have the characters as their common eigenvectors.  They are computed modulo a prime p with
p ≡ 1 modulo the exponent of the group and p > 2√|G| (Dixon), where every multiplicity of an eigenvalue is an integer
below p and hence known exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Final, Literal, final

import numpy as np

from transductor.automata.graphs import Integers
from transductor.theory.finite_monoids import FiniteMonoid
from transductor.theory.real_cyclotomic import RealCyclotomic

Kind = Literal["real", "complex", "quaternionic"]
# Indicator of Frobenius and Schur: how a complex irreducible representation sits in a real one.
_KINDS: Final[dict[int, Kind]] = {1: "real", 0: "complex", -1: "quaternionic"}
_MOST_CLASSES: Final = 64


@final
@dataclass(frozen=True)
class RealIrreducible:
    """A real irreducible representation, up to a change of basis.

    Attributes:
        dim: Its dimension: that of a complex one if ``kind`` is real, else twice as much.
        kind: Whether the complex one is real, differs from its conjugate, or needs quaternions (Schur index 2).
        eigenvalues: ``eigenvalues[class][j]`` is how often ``exp(2πij/n)`` is an eigenvalue, n the order of the class.
    """

    dim: int
    kind: Kind
    eigenvalues: tuple[tuple[int, ...], ...]

    def moved(self, of_class: int) -> int:
        """Return the rank of ``ρ(g) − 1``."""
        return self.dim - self.eigenvalues[of_class][0]

    def half_turns(self, of_class: int) -> int:
        """Return how often −1 is an eigenvalue."""
        row = self.eigenvalues[of_class]
        return 0 if len(row) % 2 else row[len(row) // 2]

    def character(self, of_class: int, exponent: int) -> RealCyclotomic:
        """Return the trace, exactly."""
        row = self.eigenvalues[of_class]
        total, step = RealCyclotomic(exponent, ()), exponent // len(row)
        for turns, times in enumerate(row):
            if times:  # eigenvalues come in conjugate pairs, so that their sum is one of cosines
                total = total + RealCyclotomic.cosine(exponent, turns * step) * times
        return total / 2


@final
class Characters:
    """The conjugacy classes of a group and its real irreducible representations."""

    def __init__(self, group: FiniteMonoid) -> None:
        if not group.is_group:
            raise ValueError(f"group must be a group; {group.name} has the idempotents {group.idempotents}")
        self.group = group
        self.class_of = _classes(group)
        self.representatives: tuple[int, ...] = tuple(np.unique(self.class_of, return_index=True)[1].tolist())
        if len(self.representatives) > _MOST_CLASSES:
            raise ValueError(
                f"group must have at most {_MOST_CLASSES} classes; {group.name} has {len(self.representatives)}"
            )
        self.exponent = math.lcm(*group.order_of)

    @cached_property
    def complex_irreducibles(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """The eigenvalues of each complex irreducible representation: by class, then multiplicities."""
        group, sizes = self.group, np.bincount(self.class_of).tolist()
        prime = next(p for p in count(1 + self.exponent, self.exponent) if _suits(p, len(group)))
        root = _primitive_root(prime, self.exponent)
        inverses = [int(self.class_of[group.inverse_of[x]]) for x in self.representatives]
        powers = [self._powers(x) for x in self.representatives]
        out = []
        for line in _common_eigenvectors(self._class_matrices(prime), prime):
            norm = sum(line[c] * line[inverses[c]] * pow(size, -1, prime) for c, size in enumerate(sizes))
            square = len(group) * pow(norm, -1, prime) % prime
            degree = next(d for d in range(1, math.isqrt(len(group)) + 1) if d * d % prime == square)
            values = [line[c] * degree * pow(size, -1, prime) % prime for c, size in enumerate(sizes)]
            rows = []
            for orbit in powers:
                order, shift = len(orbit), pow(root, -(self.exponent // len(orbit)), prime)
                sums = [sum(values[c] * pow(shift, j * m, prime) for m, c in enumerate(orbit)) for j in range(order)]
                rows.append(tuple(total * pow(order, -1, prime) % prime for total in sums))
            out.append(tuple(rows))
        return tuple(sorted(out, key=lambda rows: (sum(rows[0]), [[-times for times in row] for row in rows])))

    @cached_property
    def irreducibles(self) -> tuple[RealIrreducible, ...]:
        """All real irreducible representations, the trivial one first."""
        out: dict[tuple[tuple[int, ...], ...], RealIrreducible] = {}
        for rows in self.complex_irreducibles:
            conjugate = tuple((row[0], *row[:0:-1]) for row in rows)
            kind = "complex" if conjugate != rows else self._kind(rows)
            if kind != "real":
                rows = tuple(
                    tuple(a + b for a, b in zip(*pair, strict=True)) for pair in zip(rows, conjugate, strict=True)
                )
            out[rows] = RealIrreducible(sum(rows[0]), kind, rows)
        return tuple(out.values())

    def kernel(self, representation: Sequence[RealIrreducible]) -> frozenset[int]:
        """Return the elements that act as the identity in a sum of representations."""
        trivial = [c for c in range(len(self.representatives)) if not any(each.moved(c) for each in representation)]
        return frozenset(np.flatnonzero(np.isin(self.class_of, trivial)).tolist())

    def faithful_sums(self, allowed: Sequence[RealIrreducible]) -> Iterator[tuple[RealIrreducible, ...]]:
        """Yield faithful sums of some representations, among them all from which no summand can be left out."""
        kernels = [self.kernel([each]) for each in allowed]

        def extended(start: int, chosen: tuple[int, ...], kernel: frozenset[int]) -> Iterator[tuple[int, ...]]:
            if kernel == {0}:
                yield chosen
                return
            for place in range(start, len(allowed)):
                smaller = kernel & kernels[place]
                if smaller != kernel:
                    yield from extended(place + 1, (*chosen, place), smaller)

        for chosen in extended(0, (), frozenset(range(len(self.group)))):
            yield tuple(allowed[place] for place in chosen)

    def faults(self) -> list[str]:
        """Return what does not hold of the table that must hold of any; empty if it is right.

        The squares of the degrees sum to the order; eigenvalues of each class sum to the degree; different characters
        are orthogonal; and Frobenius' count of square roots of the identity holds.
        """
        degrees = [sum(rows[0]) for rows in self.complex_irreducibles]
        order, sizes, wrong = len(self.group), np.bincount(self.class_of).tolist(), []
        if sum(degree**2 for degree in degrees) != order:
            wrong.append(f"the squares of the degrees {degrees} do not sum to {order}")
        if any(sum(row) != sum(rows[0]) for rows in self.complex_irreducibles for row in rows):
            wrong.append("eigenvalues of a class do not sum to the degree")
        for place, one in enumerate(self.irreducibles):
            for other in self.irreducibles[:place]:
                characters = [[each.character(c, self.exponent) for c in range(len(sizes))] for each in (one, other)]
                products = (a * b * size for a, b, size in zip(*characters, sizes, strict=True))
                if sum(products, RealCyclotomic(self.exponent, ())):
                    wrong.append(f"characters of dimension {one.dim} and {other.dim} are not orthogonal")
        signs = {"real": 1, "complex": 0, "quaternionic": -1}
        count_of_roots = sum(signs[each.kind] * (each.dim // (1 if each.kind == "real" else 2))
                             for each in self.irreducibles)  # fmt: skip
        if count_of_roots != sum(power <= 2 for power in self.group.order_of):
            wrong.append(f"{count_of_roots} square roots of the identity are not as many as there are")
        return wrong

    def _powers(self, element: int) -> list[int]:
        """Return the classes of x⁰, x¹, … up to the order."""
        classes, power = [int(self.class_of[0])], element
        while power != 0:
            classes.append(int(self.class_of[power]))
            power = int(self.group.times[power, element])
        return classes

    def _kind(self, rows: Sequence[Sequence[int]]) -> Kind:
        """Return the kind of a self-conjugate representation: the mean of χ(g²), here twice its sum, is 1 or −1."""
        total = RealCyclotomic(self.exponent, ())
        sizes = np.bincount(self.class_of).tolist()
        for row, size in zip(rows, sizes, strict=True):
            for turns, times in enumerate(row):
                cosine = RealCyclotomic.cosine(self.exponent, 2 * turns * (self.exponent // len(row)))
                total = total + cosine * (times * size)
        return _KINDS[1 if total == 2 * len(self.group) else -1]

    def _class_matrices(self, prime: int) -> Iterator[Integers]:
        """Yield for each class C the matrix ``[i, k]`` of how many x in C and y in class i have ``xy`` = g_k."""
        group, classes = self.group, len(self.representatives)
        inverse = np.array(group.inverse_of)
        for members in (np.flatnonzero(self.class_of == c) for c in range(classes)):
            matrix = np.zeros((classes, classes), dtype=np.int64)
            for k, product in enumerate(self.representatives):
                others = self.class_of[group.times[inverse[members], product]]
                matrix[:, k] = np.bincount(others, minlength=classes)
            yield matrix % prime


def _classes(group: FiniteMonoid) -> Integers:
    """Return the number of the conjugacy class of every element; the identity is class 0."""
    times, inverse = group.times, np.array(group.inverse_of)
    least = np.array([times[times[inverse, x], np.arange(len(group))].min() for x in range(len(group))])
    return np.asarray(np.unique(least, return_inverse=True)[1], dtype=np.int64)


def _suits(p: int, order: int) -> bool:
    return p * p > 4 * order and order % p != 0 and all(p % q for q in range(2, math.isqrt(p) + 1))


def _primitive_root(prime: int, order: int) -> int:
    """Return an element of this order in the field of p elements."""
    for base in range(1, prime):
        root = pow(base, (prime - 1) // order, prime)
        if all(pow(root, order // q, prime) != 1 for q in range(2, order + 1) if order % q == 0):
            return root
    raise AssertionError(f"{order} must divide {prime} − 1")


def _common_eigenvectors(matrices: Iterator[Integers], prime: int) -> list[list[int]]:
    """Split the space by the eigenvalues of one matrix after the other; return the lines, scaled to begin with 1."""
    spaces: list[Integers] | None = None
    for matrix in matrices:
        if spaces is None:
            spaces = [np.eye(len(matrix), dtype=np.int64)]
        spaces = [part for space in spaces for part in _split(space, matrix, prime)]
    assert spaces is not None
    if any(len(space) != 1 for space in spaces):
        raise AssertionError("class matrices must have distinct common eigenvectors")
    return [[int(entry) * pow(int(space[0, 0]), -1, prime) % prime for entry in space[0]] for space in spaces]


def _split(space: Integers, matrix: Integers, prime: int) -> list[Integers]:
    """Return the parts of an invariant space (rows span it) on which the matrix is a number."""
    if len(space) == 1:
        return [space]
    image, parts, dims = space @ matrix.T % prime, list[Integers](), 0
    for value in range(prime):
        combinations = _left_kernel((image - value * space) % prime, prime)
        if len(combinations):
            parts.append(combinations @ space % prime)
            dims += len(combinations)
            if dims == len(space):
                break
    return parts


def _left_kernel(matrix: Integers, prime: int) -> Integers:
    """Return a basis, as rows, of the y with ``y @ matrix = 0`` modulo the prime."""
    size = len(matrix)
    rows = np.concatenate((matrix % prime, np.eye(size, dtype=np.int64)), 1)
    place = 0
    for column in range(matrix.shape[1]):
        pivots = np.flatnonzero(rows[place:, column])
        if not len(pivots):
            continue
        chosen = place + int(pivots[0])
        rows[[place, chosen]] = rows[[chosen, place]]
        rows[place] = rows[place] * pow(int(rows[place, column]), -1, prime) % prime
        others = np.arange(size) != place
        rows[others] = (rows[others] - np.outer(rows[others, column], rows[place])) % prime
        place += 1
        if place == size:
            break
    return np.asarray(rows[place:, matrix.shape[1] :])
