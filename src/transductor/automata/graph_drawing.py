"""Graphs on matplotlib axes: nodes on a circle, ordered so that few arrows cross, with labels where there is room."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Point = NDArray[np.float64]
Curve = NDArray[np.float64]  # (n, 2): points along an arrow

_ORDERED_UP_TO: Final = 24  # nodes; of more, every order of the circle is a tangle
_BENT: Final = (1.0, 0.6, 0.35)  # shares of the bend that are tried
_CLEAR: Final = 1.5  # an arrow keeps this many radii away from a node that is neither of its ends
_SAMPLED: Final = 24  # points of a curve that labels keep away from
_PLACES: Final = tuple(0.14 + 0.03 * step for step in range(25))  # where along an arrow a label may stand
_ON_LABEL, _ON_NODE, _ON_CURVE, _FROM_BEST = 20.0, 20.0, 1.0, 2.0  # how bad it is for a label to stand there


def direction(angle: float) -> Point:
    """Return the unit vector at an angle."""
    return np.array([math.cos(angle), math.sin(angle)])


def angles_on_circle(count: int, first: float) -> list[float]:
    """Return the angles of ``count`` nodes, clockwise from ``first``: a straight arrow never crosses a third node."""
    return [first - 2 * math.pi * number / count for number in range(count)]


def order_on_circle(count: int, pairs: Iterable[tuple[int, int]], first: int = 0) -> list[int]:
    """Return the place of each node on a circle, such that few chords cross and chords are short; ``first`` is at 0.

    Nodes are exchanged, or moved to another place, as long as that helps.
    """
    order = [(first + number) % count for number in range(count)]
    ends = np.array(sorted({(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]})).reshape(-1, 2)
    if count <= _ORDERED_UP_TO and len(ends) > 1:
        best, improved = _tangle(order, ends), True
        while improved:
            improved = False
            for one, other in permutations(range(1, count), 2):
                moved = order.copy()
                moved.insert(other, moved.pop(one))
                exchanged = order.copy()
                exchanged[one], exchanged[other] = order[other], order[one]
                for tried in (moved, exchanged):
                    if (cost := _tangle(tried, ends)) < best - 1e-9:
                        best, order, improved = cost, tried, True
    return [order.index(node) for node in range(count)]


def _tangle(order: Sequence[int], ends: NDArray[np.int64]) -> float:
    """Return how many chords between places of a circle cross, and a little for their lengths."""
    count = len(order)
    place = np.empty(count, dtype=np.int64)
    place[list(order)] = np.arange(count)
    low, high = np.sort(place[ends], axis=1).T
    crosses = (low[:, None] < low) & (low < high[:, None]) & (high[:, None] < high)
    gaps = np.minimum(high - low, count - (high - low))
    return float(crosses.sum() + 0.3 * gaps.sum())


@dataclass(frozen=True)
class GraphStyle:
    """How the arrows and labels of a graph look; lengths are in the units of the axes.

    Attributes:
        radius: Radius of a node.
        gap: Distance between the head of an arrow and the node that it points to.
        arrows: Options of matplotlib's arrows.
        labels: Options of matplotlib's texts.
        box: Options of the white box behind a label.
        label_place: How far along an arrow its label stands if there is room, from 0 to 1.
        letter: Width and height of a character of a label.
        loop: Of a loop: the angles between its middle and its ends, at the node and far from it; then how far from the
            node's centre the loop and its label reach.
        bends: How much arrows bend: those with an arrow back, and others.
    """

    radius: float
    gap: float
    arrows: Mapping[str, Any]
    labels: Mapping[str, Any]
    box: Mapping[str, Any]
    label_place: float
    letter: tuple[float, float]
    loop: tuple[float, float, float, float]
    bends: tuple[float, float]

    def draw_edges(
        self,
        axes: Any,
        places: Sequence[Point],
        loop_angles: Sequence[float],
        labels: Mapping[tuple[int, int], str],
        colours: Sequence[Any] | None = None,
    ) -> None:
        """Draw the arrows of a graph, then their labels where they cover least.

        Args:
            axes: Of matplotlib.
            places: Where the nodes are.
            loop_angles: On which side of each node its loop is.
            labels: What is written on the arrow from one node to another.
            colours: The colour of the arrows out of each node; that of the style if not given.
        """
        curves: dict[tuple[int, int], Curve] = {}
        for (source, target), label in labels.items():
            own: dict[str, Any] = {} if colours is None else {"color": colours[source]}
            if source == target:
                self._draw_loop(axes, places[source], loop_angles[source], label, own)
                continue
            points, curves[source, target] = self._clear_curve(places, source, target, (target, source) in labels)
            self._draw_curve(axes, points, own)
        taken: list[tuple[Point, Point]] = []
        for pair in sorted(curves, key=lambda pair: (-len(labels[pair]), pair)):
            if labels[pair]:
                centre = self._label_place(pair, labels[pair], curves, places, taken)
                taken.append((centre, self._half(labels[pair])))
                self.draw_label(axes, centre, labels[pair], {} if colours is None else {"color": colours[pair[0]]})

    def _clear_curve(
        self, places: Sequence[Point], source: int, target: int, has_way_back: bool
    ) -> tuple[list[Point], Curve]:
        """Return the three points of an arrow, and points along it, bent as the style says or less to miss nodes."""
        others = [place for node, place in enumerate(places) if node not in (source, target)]
        tried: list[tuple[float, list[Point], Curve]] = []
        for share in _BENT:
            control = _control(places[source], places[target], share * self.bends[0 if has_way_back else 1])
            first = _toward(places[source], control, self.radius)
            last = _toward(places[target], control, self.radius + self.gap)
            times = np.linspace(0, 1, _SAMPLED)[:, None]
            curve = (1 - times) ** 2 * first + 2 * times * (1 - times) * control + times**2 * last
            room = min((float(np.linalg.norm(curve - place, axis=1).min()) for place in others), default=math.inf)
            tried.append((room, [first, control, last], curve))
            if room > _CLEAR * self.radius:
                break
        return max(tried, key=lambda each: min(each[0], _CLEAR * self.radius))[1:]

    def _half(self, label: str) -> Point:
        lines = label.splitlines() or [""]
        return np.array([self.letter[0] * max(map(len, lines)), self.letter[1] * len(lines)]) / 2

    def _label_place(
        self,
        pair: tuple[int, int],
        label: str,
        curves: Mapping[tuple[int, int], Curve],
        nodes: Sequence[Point],
        taken: Sequence[tuple[Point, Point]],
    ) -> Point:
        """Return the place along an arrow at which its label covers the fewest other labels, nodes and arrows."""
        half, own = self._half(label), curves[pair]
        others = np.concatenate([np.zeros((0, 2)), *(curve for key, curve in curves.items() if key != pair)])

        def cost(at: float) -> float:
            centre = _along(own, at)
            on_labels = sum(bool((np.abs(centre - other) < half + room).all()) for other, room in taken)
            on_nodes = sum(bool((np.abs(centre - node) < half + self.radius).all()) for node in nodes)
            on_curves = int((np.abs(others - centre) < half).all(axis=1).sum())
            return (
                _ON_LABEL * on_labels
                + _ON_NODE * on_nodes
                + _ON_CURVE * on_curves
                + _FROM_BEST * abs(at - self.label_place)
            )

        return _along(own, min(_PLACES, key=cost))

    def draw_arrow_in(self, axes: Any, begin: Point, end: Point, label: str = "", *, bend: float = 0.0) -> None:
        """Draw an arrow to a node that comes from none; its label is before it."""
        control = _control(begin, end, bend)
        self._draw_curve(axes, [begin, control, _toward(end, control, self.radius + self.gap)], {})
        self.draw_label(axes, begin - 0.12 * (end - begin), label)

    def _draw_loop(self, axes: Any, place: Point, angle: float, label: str, own: Mapping[str, Any]) -> None:
        """Draw an arrow from a node to itself, on its side at ``angle``."""
        near, far, reach, label_reach = self.loop
        ends = (self.radius, near), (reach, far), (reach, -far), (self.radius + self.gap, -near)
        self._draw_curve(axes, [place + length * direction(angle + turn) for length, turn in ends], own)
        # A long label begins where the loop ends, on either side of it.
        aside = max(0.0, self._half(label)[0] - self.letter[0]) * math.cos(angle)
        self.draw_label(axes, place + label_reach * direction(angle) + np.array([aside, 0.0]), label, own)

    def draw_label(self, axes: Any, place: Point, text: str, own: Mapping[str, Any] | None = None) -> None:
        """Write a text on a white box; a dollar sign begins no formula."""
        if text:
            box = {"facecolor": "white", "edgecolor": "none", **self.box}
            axes.text(
                *place, text, ha="center", va="center", bbox=box, parse_math=False, **{**self.labels, **(own or {})}
            )

    def _draw_curve(self, axes: Any, points: list[Point], own: Mapping[str, Any]) -> None:
        from matplotlib.patches import FancyArrowPatch
        from matplotlib.path import Path

        kind = {3: Path.CURVE3, 4: Path.CURVE4}[len(points)]
        curve = Path(points, [Path.MOVETO, *[kind] * (len(points) - 1)])
        axes.add_patch(FancyArrowPatch(path=curve, arrowstyle="-|>", **{**self.arrows, **own}))


def _control(begin: Point, end: Point, bend: float) -> Point:
    """Return the point that an arrow bends toward: to the left, by a share of its length."""
    along = end - begin
    return np.asarray((begin + end) / 2 + bend * np.array([-along[1], along[0]]))


def _along(curve: Curve, at: float) -> Point:
    """Return the point of a sampled curve at a share of its way."""
    return np.array([np.interp(at * (len(curve) - 1), np.arange(len(curve)), axis) for axis in curve.T])


def _toward(origin: Point, target: Point, distance: float) -> Point:
    gap = target - origin
    return np.asarray(origin + distance * gap / max(float(np.linalg.norm(gap)), 1e-9))
