"""What attention can return: a convex hull of values, widened by what softmax rounds.

A softmax average is ``Σ a_j v_j`` with ``a_j ≥ 0`` and ``Σ a_j = 1``, whatever scores, positions and length are.
So it lies in the convex hull of all values that can occur, and positions that act on scores alone change nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from transductor.certification.ball_arithmetic import UNIT, Array, gamma, ordered_product, sum_above, upper

_MOST_BOXES: Final = 128  # of a hull; more are put together in larger boxes
_ROUNDINGS_PER_KEY: Final = 8
_ROUNDINGS_AT_ALL: Final = 64


def average_error(keys: int, unit: float) -> float:
    """Bound the rounding of a softmax average of ``keys`` values, in units of the largest value.

    Scores, exponentials and the running maximum may be wrong at will: a kernel that divides ``Σ w_j v_j`` by ``Σ w_j``
    with the *same* positive numbers w is a convex combination.  What counts is the rounding of the two sums and of the
    division.  In a softmax that is followed by a product, and in a kernel that goes through blocks of keys and rescales
    both sums whenever the maximum rises (with block sizes of one key or more), every term of either sum is rounded at
    most ``2 T + 8`` times: one product, at most one addition a key, at most one rescaling a key, and a factor in front.
    That makes ``4 T + 16`` for numerator and denominator; twice that is taken, so that adders which cut off instead of
    rounding, and products that are put together from three shorter ones, are covered too.
    """
    return gamma(_ROUNDINGS_PER_KEY * keys + _ROUNDINGS_AT_ALL, unit)


@dataclass(frozen=True, eq=False)
class Hull:
    """The convex hull of boxes around ``points (P, N)`` with half-widths ``radii (P, N)``, all moved by ``offset (N)``.

    Attributes:
        size: ``(N)``, the largest absolute value of a coordinate, without the offset.
        seen: ``(E, P)``, which boxes each of E pairs can look at; None for all.
    """

    offset: Array
    points: Array
    radii: Array
    size: Array
    seen: Array | None = None

    @classmethod
    def around(cls, low: Array, high: Array, *, relative: float, absolute: float, seen: Array | None = None) -> Hull:
        """Return a hull of the boxes from ``low (P, N)`` to ``high (P, N)``.

        Args:
            relative: By how much an average may miss it, in units of the largest value of a coordinate.
            absolute: By how much an average may miss it besides.
            seen: ``(E, P)``, which boxes a pair can look at.
        """
        error = upper(relative * np.maximum(np.abs(low), np.abs(high)).max(0) + absolute, 4)
        if len(low) > _MOST_BOXES:
            groups = _groups(low, high)
            low = np.stack([low[group].min(0) for group in groups])
            high = np.stack([high[group].max(0) for group in groups])
            seen = None if seen is None else np.stack([seen[:, group].any(1) for group in groups], 1)
        offset = 0.5 * (low.min(0) + high.max(0))
        points = 0.5 * (low + high) - offset
        around = 0.5 * (high - low) + 4 * UNIT * (np.abs(low) + np.abs(high) + np.abs(offset))
        radii = np.asarray(upper(around + error, 8))
        return cls(offset, points, radii, np.asarray(upper((np.abs(points) + radii).max(0), 2)), seen)

    def for_pairs(self, pairs: slice) -> Hull:
        """Return the hull as these pairs see it."""
        return self if self.seen is None else replace(self, seen=self.seen[pairs])

    def range_of(self, directions: Array) -> tuple[Array, Array]:
        """Return bounds ``(E, R)`` below and above the products of ``directions (E, R, N)`` with points of the hull."""
        along, sizes = ordered_product(directions, self.points.T), np.abs(directions)
        spread = ordered_product(sizes, self.radii.T)
        least, most = along - spread, along + spread
        if self.seen is not None:
            least = np.where(self.seen[:, None, :], least, np.inf)
            most = np.where(self.seen[:, None, :], most, -np.inf)
        reach = sum_above(sizes * self.size, -1)
        slack = upper(gamma(2 * self.points.shape[1] + 4) * reach, 4)
        return least.min(-1) - slack, most.max(-1) + slack


def _groups(low: Array, high: Array) -> list[Array]:
    """Put boxes that lie side by side into one group: the widest group is halved until there are enough."""
    middle = 0.5 * (low + high)
    groups = [np.arange(len(low))]
    while len(groups) < _MOST_BOXES:
        extents = np.array([np.ptp(middle[group], 0).max() if len(group) > 1 else -1.0 for group in groups])
        group = groups.pop(int(np.argmax(extents)))
        order = group[np.argsort(middle[group, int(np.argmax(np.ptp(middle[group], 0)))], kind="stable")]
        groups += [order[: len(order) // 2], order[len(order) // 2 :]]
    return groups


def edges_in_sight(source: Array, target: Array, window: int | None) -> Array:
    """Return ``(E, E)``: whether edge b may stand at or before a position that takes edge a, as far as it looks.

    An edge is what a position reads: a letter between two nodes of a graph.  In a window of w positions it is at most
    w − 1 steps before.

    Args:
        source: ``(E)``, the node each edge leaves.
        target: ``(E)``, the node each edge reaches.
        window: How many positions are seen; None for all.
    """
    count = len(source)
    sight, step = np.eye(count, dtype=bool), np.eye(count, dtype=bool) | (source[:, None] == target)
    steps = count if window is None else min(window - 1, count)  # no shortest way is longer
    while steps:
        if steps & 1:
            sight = _after(sight, step)
        step, steps = _after(step, step), steps >> 1
    return sight


def _after(first: Array, second: Array) -> Array:
    return np.asarray(first.astype(np.float32) @ second.astype(np.float32) > 0)
