"""Norms in which a head hardly grows, each with what an error bound needs of it.

A bound is as good as its norm: rotations keep the Euclidean one, distributions the sum of absolute values, a head in
some other basis an ellipsoid, and a head that follows a finite machine the norm whose unit ball is spanned by the
anchor points of the machine's states.  All numbers given here are upper bounds, and the same on every computer.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final, final

import numpy as np

from transductor.certification.ball_arithmetic import (
    Array,
    Ball,
    gamma,
    is_positive,
    ordered_product,
    ordered_sum,
    sum_above,
    upper,
)

# Squares of growths that are tried: near 1 from both sides, then powers of two.
_NEAR_ONE: Final = [2.0**-j for j in range(2, 46)]
_GROWTHS: Final = [0.0625, 0.25, 0.5, *(1 - x for x in _NEAR_ONE), *(1 + x for x in reversed(_NEAR_ONE))]
_SQUARES: Final = [*_GROWTHS, *(2.0**j for j in range(1, 41))]


class NormError(ValueError):
    """The given arrays do not make a norm."""


class Norm(ABC):
    """A norm on states ``(D)``, known by upper bounds.  Subclasses are final.

    Attributes:
        kind: The name of the norm in a certificate.
        distortion: How much larger, relative to the factors, the rounding errors of a matrix product can be in this
            norm than entry by entry.
    """

    kind: str
    distortion: float

    @abstractmethod
    def sizes(self, vectors: Ball) -> Array:
        """Bound the norms ``(n)`` of columns ``(D, n)``."""

    @abstractmethod
    def growths(self, table: Array) -> Array:
        """Bound the operator norms ``(V)`` of matrices ``(V, D, D)``."""

    @abstractmethod
    def duals(self, functionals: Array) -> Array:
        """Bound the dual norms ``(n)`` of rows ``(n, D)``: ``|functional · state|`` for states of size 1."""

    def witness(self) -> dict[str, Array]:
        """Return the arrays that make this norm again."""
        return {}


@final
class Sum(Norm):
    """The sum of absolute values."""

    kind, distortion = "sum", 1.0

    def sizes(self, vectors: Ball) -> Array:
        """Bound the sums of absolute values."""
        return sum_above(vectors.largest(), 0)

    def growths(self, table: Array) -> Array:
        """Bound the largest sum of a column."""
        return np.asarray(sum_above(np.abs(table.astype(np.float64)), 1).max(1))

    def duals(self, functionals: Array) -> Array:
        """Return the largest entries."""
        return np.asarray(np.abs(functionals).max(1))


@final
class Largest(Norm):
    """The largest absolute value."""

    kind, distortion = "largest", 1.0

    def sizes(self, vectors: Ball) -> Array:
        """Bound the largest entries."""
        return np.asarray(vectors.largest().max(0))

    def growths(self, table: Array) -> Array:
        """Bound the largest sum of a row."""
        return np.asarray(sum_above(np.abs(table.astype(np.float64)), 2).max(1))

    def duals(self, functionals: Array) -> Array:
        """Bound the sums of absolute values."""
        return sum_above(np.abs(functionals), 1)


def _root_above(values: Array) -> Array:
    return np.asarray(upper(np.sqrt(np.maximum(values, 0.0)), 2))


def _least(proved: Callable[[float], bool], values: Sequence[float]) -> float:
    """Return about the least value for which a statement that gets easier with the value is proved; or infinity."""
    low, high = -1, len(values)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if proved(values[middle]) else (middle, high)
    if high == len(values):
        return math.inf
    above, below = values[high], values[high - 1] if high else 0.0
    for _ in range(5):
        between = 0.5 * (above + below)
        above, below = (between, below) if proved(between) else (above, between)
    return above


def _growth_between(before: Ball, after: Ball) -> float:
    """Return about the least μ for which ``μ²P − Q`` is proved positive: ``√(xᵀQx) ≤ μ √(xᵀPx)``."""

    def proved(square: float) -> bool:
        return is_positive(Ball(square * before.centre, np.abs(square * before.centre) * 2.0**-52) - after)

    return float(_root_above(np.array(_least(proved, _SQUARES))))


def spectral_above(matrix: Array) -> float:
    """Return a close upper bound of the spectral norm of a matrix of any shape."""
    tall = Ball.exactly(matrix if matrix.shape[0] >= matrix.shape[1] else matrix.T)
    return _growth_between(Ball.exactly(np.eye(tall.centre.shape[1])), tall.mT @ tall)


@final
class Euclidean(Norm):
    """The root of the sum of squares."""

    kind = "euclidean"

    def __init__(self, dim: int) -> None:
        self.distortion = float(dim)

    def sizes(self, vectors: Ball) -> Array:
        """Bound the lengths."""
        return _root_above(sum_above(vectors.largest() ** 2, 0))

    def growths(self, table: Array) -> Array:
        """Bound the spectral norms."""
        return np.array([spectral_above(matrix) for matrix in table])

    def duals(self, functionals: Array) -> Array:
        """Bound the lengths."""
        return _root_above(sum_above(functionals**2, 1))


@final
class Ellipsoid(Norm):
    """``√(xᵀPx)`` for a positive definite ``P (D, D)``."""

    kind = "ellipsoid"

    def __init__(self, form: Array) -> None:
        dim = len(form)
        if form.shape != (dim, dim) or not np.isfinite(form).all() or not np.array_equal(form, form.T):
            raise NormError(f"the form of an ellipsoid must be a symmetric matrix; got shape {form.shape}")
        self.form = Ball.exactly(form)
        eye = np.eye(dim)
        widest = float(sum_above(np.abs(form), 1).max())
        squares = [2.0**j for j in range(61)]
        inverse = _least(lambda times: is_positive(self.form - Ball.exactly(eye * (widest / times))), squares)
        if not math.isfinite(inverse):
            raise NormError("the form of an ellipsoid must be positive definite")
        self.narrowest = widest / inverse * (1 - 2.0**-50)
        roundness = math.sqrt(upper(widest / self.narrowest, 2))
        self.distortion = upper(dim * roundness**3, 6)
        self._inverse = _approximate_inverse(form)

    def witness(self) -> dict[str, Array]:
        """Return the form P of the ellipsoid."""
        return {"form": self.form.centre}

    def sizes(self, vectors: Ball) -> Array:
        """Bound the roots of the quadratic form."""
        moved = self.form @ vectors
        squares = sum_above(np.maximum(vectors.centre * moved.centre, 0), 0)
        negative = _sum_below(np.maximum(-vectors.centre * moved.centre, 0))
        spread = vectors.largest() * moved.radius + vectors.radius * moved.largest()
        return _root_above(upper(np.maximum(squares - negative, 0) + sum_above(upper(spread, 3), 0), 2))

    def growths(self, table: Array) -> Array:
        """Prove a bound for each letter."""
        letters = [Ball.exactly(matrix) for matrix in table]
        return np.array([_growth_between(self.form, letter.mT @ (self.form @ letter)) for letter in letters])

    def duals(self, functionals: Array) -> Array:
        """Bound ``√(wP⁻¹wᵀ)`` by an approximate inverse: ``2wy − yᵀPy`` and what the residual can add."""
        rows = Ball.exactly(functionals)
        near = Ball.exactly(ordered_product(functionals, self._inverse))
        moved = near @ self.form
        twice = Ball(2 * functionals, np.zeros(functionals.shape)) - moved
        products = near.centre * twice.centre
        gain = sum_above(np.maximum(products, 0), 1) - _sum_below(np.maximum(-products, 0).T)
        spread = sum_above(upper(np.abs(near.centre) * twice.radius, 2), 1)
        rest = sum_above((rows - moved).largest() ** 2, 1) / self.narrowest
        return _root_above(upper(np.maximum(gain, 0) + spread + rest, 4))


def _sum_below(values: Array) -> Array:
    """Return a lower bound of the sums of non-negative numbers along the first axis."""
    return ordered_sum(values) * (1 - 2 * gamma(len(values) + 2))


def _approximate_inverse(form: Array) -> Array:
    """Invert by Gauss–Jordan elimination in a fixed order; how good the result is shows in the residual."""
    dim = len(form)
    work = np.concatenate((form, np.eye(dim)), 1)
    for j in range(dim):
        work[j] /= work[j, j]
        factors = work[:, j].copy()
        factors[j] = 0.0
        work -= factors[:, None] * work[j]
    return work[:, dim:]


@final
class Atoms(Norm):
    """The least ``Σ|y|`` with ``x = S y``: the unit ball is spanned by the columns of ``S (D, n)`` and their negatives.

    Spanned by the anchor points of a finite machine, no letter grows by more than its own residual.

    Args:
        points: ``(D, n)``: the anchor points.
        extra: ``(D, m)``: more atoms, for the directions that the points do not span.
        inverse: ``(n + m, D)``: gives a ``y``, which need not be the least.
    """

    kind = "atoms"

    def __init__(self, points: Array, extra: Array, inverse: Array) -> None:
        if extra.ndim != 2 or len(extra) != len(points):
            raise NormError(f"extra atoms must be columns like the anchor points {points.shape}; got {extra.shape}")
        atoms = np.concatenate((points, extra), 1)
        dim, count = atoms.shape
        if inverse.shape != (count, dim) or not (np.isfinite(inverse).all() and np.isfinite(atoms).all()):
            raise NormError(f"the inverse of atoms {atoms.shape} must have shape {(count, dim)}; got {inverse.shape}")
        self.atoms, self.inverse, self.extra = Ball.exactly(atoms), Ball.exactly(inverse), extra
        missing = Ball.exactly(np.eye(dim)) - self.atoms @ self.inverse
        lost = float(sum_above(missing.largest(), 0).max())
        if not lost < 0.5:
            raise NormError("the atoms do not span the states")
        widest = float(sum_above(np.abs(inverse), 0).max())
        self._unit = upper(widest / (1 - lost), 4)
        # A = S Y R with Σ|Y| of a column at most ‖A‖, and R the true inverse, of which ours misses a share of `lost`.
        both = sum_above(upper(ordered_product(np.abs(inverse), np.abs(atoms)), dim), 0).max()
        apart = widest * float(sum_above(np.abs(atoms), 0).max())
        stretch = float(both) + apart * lost / (1 - lost)
        self.distortion = upper(max(1.0, stretch**3, apart), 16)

    def witness(self) -> dict[str, Array]:
        """Return the extra atoms and the inverse; a certificate keeps the anchor points anyway."""
        return {"form": self.inverse.centre, "extra": self.extra}

    def sizes(self, vectors: Ball) -> Array:
        """Bound ``Σ|y|`` of one y, and the size of what it misses."""
        weights = Ball.exactly((self.inverse @ vectors).centre)
        missed = vectors - self.atoms @ weights
        return np.asarray(upper(sum_above(np.abs(weights.centre), 0) + self._unit * sum_above(missed.largest(), 0), 3))

    def growths(self, table: Array) -> Array:
        """Bound where letters send the atoms; :meth:`growths_along` is tighter where the edges are known."""
        return np.asarray(self._moved(table).max(1))

    def growths_along(self, table: Array, letters: Array, sources: Array, residuals: Array) -> Array:
        """Bound the growths along edges: an atom sent to another up to a residual grows to at most ``1 + residual``."""
        moved = self._moved(table)
        moved[letters, sources] = np.minimum(moved[letters, sources], upper(1.0 + residuals))
        return np.asarray(moved.max(1))

    def _moved(self, table: Array) -> Array:
        return np.stack([self.sizes(Ball.exactly(matrix) @ self.atoms) for matrix in table])

    def duals(self, functionals: Array) -> Array:
        """Bound the largest value at an atom."""
        return np.asarray((Ball.exactly(functionals) @ self.atoms).largest().max(1))
