"""Ball arithmetic: arrays with an error bound, and upper bounds that are never too small.

Everything is float64 in a fixed order of operations (no BLAS, no sums whose order a library may choose), so that a
certificate checked on another computer gives the same digits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

UNIT: Final = 2.0**-53
_TINY: Final = 2.0**-960  # more than underflow can take from a sum of fewer than 2⁶⁰ terms


def gamma(terms: int, unit: float = UNIT) -> float:
    """Return ``n u / (1 − n u)``: the relative error of a sum of ``terms`` products in any order, fused or not."""
    product = terms * unit
    return math.inf if product >= 0.5 else upper(product / (1 - product), 4)


def upper(value: Any, terms: int = 1) -> Any:
    """Return an upper bound of a non-negative number (or array) that was computed with at most ``terms`` roundings."""
    return value * (1.0 + 4.0 * (terms + 2) * UNIT) + _TINY


def ordered_product(left: Array, right: Array) -> Array:
    """Return ``(..., N, K) @ (..., K, M)``, summed in the order of k: the same digits on every computer."""
    out = np.zeros(np.broadcast_shapes(left.shape[:-1], (*right.shape[:-2], 1)) + right.shape[-1:])
    products = np.empty_like(out)  # once: to ask the system for a large array takes longer than the products
    for k in range(left.shape[-1]):
        np.multiply(left[..., :, k, None], right[..., k, None, :], out=products)
        out += products
    return out


def ordered_sum(values: Array, axis: int = 0) -> Array:
    """Sum along ``axis`` in order: the same digits on every computer."""
    values = np.moveaxis(values, axis, 0)
    total = np.zeros(values.shape[1:])
    for value in values:
        total += value
    return total


def sum_above(values: Array, axis: int = 0) -> Array:
    """Return an upper bound of a sum of non-negative numbers along ``axis``."""
    return np.asarray(upper(ordered_sum(values, axis), values.shape[axis]))


def power_above(base: float, exponent: int) -> float:
    """Return an upper bound of ``base ** exponent`` for a base of at least 0, by squaring."""
    out, square = 1.0, base
    while exponent:
        if exponent & 1:
            out = upper(out * square)
        exponent >>= 1
        if exponent:
            square = upper(square * square)
    return out


@dataclass(frozen=True, eq=False)
class Ball:
    """All arrays within ``radius`` of ``centre``, entry by entry."""

    centre: Array
    radius: Array

    @classmethod
    def exactly(cls, values: Array) -> Ball:
        """Return the ball that holds only these values."""
        centre = np.asarray(values, dtype=np.float64)
        return cls(centre, np.zeros(centre.shape))

    def largest(self) -> Array:
        """Return the largest absolute value that each entry can have."""
        return np.asarray(upper(np.abs(self.centre) + self.radius))

    def __matmul__(self, other: Ball) -> Ball:
        terms = self.centre.shape[-1]
        centre = ordered_product(self.centre, other.centre)
        size = np.abs(other.centre)
        spread = ordered_product(np.abs(self.centre), gamma(terms + 1) * size + other.radius)
        if self.radius.any():
            spread = spread + ordered_product(self.radius, size + other.radius)
        return Ball(centre, np.asarray(upper(spread, 2 * terms + 4)))

    def __add__(self, other: Ball) -> Ball:
        centre = self.centre + other.centre
        return Ball(centre, np.asarray(upper(self.radius + other.radius + 2 * UNIT * np.abs(centre), 3)))

    def __sub__(self, other: Ball) -> Ball:
        return self + Ball(-other.centre, other.radius)

    def widened(self, by: Array | float) -> Ball:
        """Return the ball with ``by`` added to its radius."""
        return Ball(self.centre, np.asarray(upper(self.radius + by, 2)))

    @property
    def mT(self) -> Ball:
        """The transpose of the last two dimensions."""
        return Ball(np.swapaxes(self.centre, -1, -2), np.swapaxes(self.radius, -1, -2))

    def __getitem__(self, index: Any) -> Ball:
        return Ball(self.centre[index], self.radius[index])


def is_positive(matrix: Ball) -> bool:
    """Prove that every symmetric matrix of the ball is positive semidefinite; False where there is no proof.

    A Cholesky factorisation in floating point that runs to its end proves it, once the diagonal is lowered by what
    rounding can add to an eigenvalue (Rump, *Verification of positive definiteness*, 2006).
    """
    dim = len(matrix.centre)
    work = 0.5 * (matrix.centre + matrix.centre.T)
    trace = float(sum_above(np.abs(np.diagonal(work))))
    around = float(sum_above(matrix.radius + 2 * UNIT * np.abs(matrix.centre), 1).max(initial=0.0))
    lowered = upper(2 * gamma(dim + 3) * trace + around, 4)
    if not math.isfinite(lowered):
        return False
    diagonal = np.arange(dim)
    work[diagonal, diagonal] -= lowered
    work[diagonal, diagonal] -= 2 * UNIT * np.abs(work[diagonal, diagonal])
    for j in range(dim):
        pivot = work[j, j]
        if not pivot > 0:
            return False
        column = work[j + 1 :, j] / np.sqrt(pivot)
        work[j + 1 :, j + 1 :] -= column[:, None] * column[None, :]
    return True
