"""Can a hyperplane through the origin separate labelled points?  Decided with a certificate on either side.

With ``z_i`` the points times their labels ±1, non-negative least squares for ``Σ λ_i (z_i, 1) = (0, 1)`` decides it
(Gordan's alternative).  Where the residual is not zero, its conditions of optimality say ``z_i · u > 0`` for all i with
``u = Σ λ_i z_i``: a separating direction.  Where it is zero, a convex combination of the ``z_i`` is 0, and no direction
has all of them on one side.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# A convex combination this short, of points of length 1, leaves every unit direction a margin of at most this.
_SHORT: Final = 1e-9
# Directions of the points that are this much shorter than the longest are rounding.
_ROUNDING: Final = 1e-12
_ATTEMPTS: Final = 5
_CAREFUL_STEPS: Final = 200
_REFRESHED: Final = 64  # changes of the active set after which its inverse is computed again


def separable(points: Floats, labels: Floats) -> bool:
    """Return whether some w has ``labels_i · (w · points_i) > 0`` for all i, with a margin that is no rounding.

    Args:
        points: ``(N, d)``.
        labels: ``(N)`` of ±1.

    Raises:
        ArithmeticError: If neither a direction nor a convex combination could be certified.
    """
    if points.ndim != 2 or labels.shape != points.shape[:1]:
        raise ValueError(f"points must be (N, d) and labels (N); got {points.shape} and {labels.shape}")
    if not len(points):
        return True
    signed = _whitened(points) * labels[:, None]
    lengths = np.linalg.norm(signed, axis=1)
    if not lengths.all():
        return False  # the origin has no side
    unit = signed / lengths[:, None]
    orders = (np.random.default_rng(attempt).permutation(len(unit)) for attempt in range(_ATTEMPTS))
    for order in orders:  # another order visits other active sets, where rounding spoilt one
        answer = _decided(unit[order])
        if answer is not None:
            return answer
    raise ArithmeticError(f"neither separated nor enclosed {len(unit)} points of dimension {unit.shape[1]} to {_SHORT}")


def _whitened(points: Floats) -> Floats:
    """Return coordinates in which the points are spread equally: no linear map changes what can be separated."""
    left, sizes, _ = np.linalg.svd(points, full_matrices=False)
    return np.asarray(left[:, sizes > _ROUNDING * sizes.max(initial=0.0)])


def _decided(points: Floats) -> bool | None:
    """Run Lawson and Hanson's active sets on unit points; None where neither answer could be certified.

    The inverse of the active Gram matrix is kept until rounding hides what a point adds; from then on the equations of
    the active points are solved again at every step, which is slower and squares no condition.
    """
    count, dim = points.shape
    active: list[int] = []
    weights, threshold = np.zeros(count), 64 * dim * np.finfo(np.float64).eps
    inverse: Floats = np.zeros((0, 0))
    changes = careful = 0
    for step in range(20 * (count + dim)):
        if careful == 0 and step > 6 * dim + 40:
            careful = 1  # rounding lets it go in circles
        if careful > _CAREFUL_STEPS:
            return None
        answer, gradient = _certified(points, weights, threshold)
        if answer is not None:
            return answer
        gradient[active] = -np.inf
        entering, bordered = int(gradient.argmax()), None
        if len(active) == count or gradient[entering] <= 4 * np.finfo(np.float64).eps:
            if careful:
                return None
        else:
            if not careful:
                column = points[[*active, entering]] @ points[entering] + 1.0
                bordered = _bordered(inverse, column[:-1], float(column[-1]))
            active.append(entering)
        careful += careful > 0 or bordered is None
        inverse, changes = (inverse if bordered is None else bordered), changes + 1
        while True:
            if changes >= _REFRESHED and not careful:
                inverse = np.asarray(np.linalg.inv(points[active] @ points[active].T + 1.0))
                changes = 0
            wanted: Floats = _solved(points[active]) if careful else inverse.sum(1)
            present = weights[active]
            falling = np.flatnonzero(wanted <= 0)
            if len(falling) == 0:
                weights[active] = wanted
                break
            steps = present[falling] / np.maximum(present[falling] - wanted[falling], 1e-300)
            leaving = int(falling[int(steps.argmin())])
            weights[active] = np.maximum(present + float(steps.min()) * (wanted - present), 0.0)
            inverse = inverse if careful else _without(inverse, leaving)
            weights[active.pop(leaving)] = 0.0
            changes += 1
    return None


def _solved(points: Floats) -> Floats:
    """Return the least-squares weights of the active points from their own equations."""
    system = np.concatenate((points, np.ones((len(points), 1))), 1).T
    ending = np.zeros(len(system))
    ending[-1] = 1.0
    return np.asarray(np.linalg.lstsq(system, ending, rcond=None)[0])


def _certified(points: Floats, weights: Floats, threshold: float) -> tuple[bool | None, Floats]:
    """Return what these weights show, None where they show nothing, and the gradient of the least squares."""
    direction = points.T @ weights
    margins, total, length = points @ direction, float(weights.sum()), float(np.linalg.norm(direction))
    gradient = 1.0 - total - margins
    if length > 0 and margins.min() > threshold * length:
        return True, gradient
    return (False if total > 0 and length <= _SHORT * total else None), gradient


def _bordered(inverse: Floats, column: Floats, corner: float) -> Floats | None:
    """Return the inverse of a symmetric matrix with one row and column more; None if they depend on the others."""
    image = inverse @ column
    rest = corner - float(column @ image)
    if rest < _ROUNDING * corner:
        return None
    size = len(inverse)
    out = np.empty((size + 1, size + 1))
    out[:size, :size] = inverse + np.outer(image, image) / rest
    out[:size, size] = out[size, :size] = -image / rest
    out[size, size] = 1 / rest
    return out


def _without(inverse: Floats, place: int) -> Floats:
    """Return the inverse of a symmetric matrix with one row and column less."""
    kept = np.delete(np.arange(len(inverse)), place)
    column = inverse[kept, place]
    return np.asarray(inverse[np.ix_(kept, kept)] - np.outer(column, column) / inverse[place, place])


def cover_probability(points: int, dim: int) -> Fraction:
    """Return the probability that random labels of points in general position can be separated through the origin.

    Cover's count: ``2 Σ_{k < d} C(N − 1, k)`` of the ``2^N`` labellings.
    """
    if points < 1 or dim < 1:
        raise ValueError(f"points and dim must be positive integers; got {points!r} and {dim!r}")
    return Fraction(sum(math.comb(points - 1, k) for k in range(min(dim, points))), 2 ** (points - 1))
