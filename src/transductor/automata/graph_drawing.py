"""Graphs on matplotlib axes: nodes on a circle, bent arrows between them, loops, and labels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Point = NDArray[np.float64]


def direction(angle: float) -> Point:
    """Return the unit vector at an angle."""
    return np.array([math.cos(angle), math.sin(angle)])


def angles_on_circle(count: int, first: float) -> list[float]:
    """Return the angles of ``count`` nodes, clockwise from ``first``: a straight arrow never crosses a third node."""
    return [first - 2 * math.pi * number / count for number in range(count)]


@dataclass(frozen=True)
class GraphStyle:
    """How the arrows and labels of a graph look; lengths are in the units of the axes.

    Attributes:
        radius: Radius of a node.
        gap: Distance between the head of an arrow and the node that it points to.
        arrows: Options of matplotlib's arrows.
        labels: Options of matplotlib's texts.
        box: Options of the white box behind a label.
        label_place: How far along an arrow its label stands, from 0 to 1.
        loop: Of a loop: the angles between its middle and its ends, at the node and far from it; then how far from the
            node's centre the loop and its label reach.
    """

    radius: float
    gap: float
    arrows: Mapping[str, Any]
    labels: Mapping[str, Any]
    box: Mapping[str, Any]
    label_place: float
    loop: tuple[float, float, float, float]

    def draw_arrow(
        self, axes: Any, begin: Point, end: Point, label: str, bend: float = 0.0, *, from_node: bool = True
    ) -> None:
        """Draw an arrow between nodes, bent to the left by a share of its length."""
        along = end - begin
        control = (begin + end) / 2 + bend * np.array([-along[1], along[0]])
        first = _toward(begin, control, self.radius if from_node else 0.0)
        last = _toward(end, control, self.radius + self.gap)
        self._draw_curve(axes, [first, control, last])
        at = self.label_place if from_node else -0.12  # an arrow that comes from no node has its label before it
        self.draw_label(axes, (1 - at) ** 2 * first + 2 * at * (1 - at) * control + at**2 * last, label)

    def draw_loop(self, axes: Any, place: Point, angle: float, label: str) -> None:
        """Draw an arrow from a node to itself, on its side at ``angle``."""
        near, far, reach, label_reach = self.loop
        ends = (self.radius, near), (reach, far), (reach, -far), (self.radius + self.gap, -near)
        self._draw_curve(axes, [place + length * direction(angle + turn) for length, turn in ends])
        self.draw_label(axes, place + label_reach * direction(angle), label)

    def draw_label(self, axes: Any, place: Point, text: str) -> None:
        """Write a text on a white box; a dollar sign begins no formula."""
        if text:
            box = {"facecolor": "white", "edgecolor": "none", **self.box}
            axes.text(*place, text, ha="center", va="center", bbox=box, parse_math=False, **self.labels)

    def _draw_curve(self, axes: Any, points: list[Point]) -> None:
        from matplotlib.patches import FancyArrowPatch
        from matplotlib.path import Path

        kind = {3: Path.CURVE3, 4: Path.CURVE4}[len(points)]
        curve = Path(points, [Path.MOVETO, *[kind] * (len(points) - 1)])
        axes.add_patch(FancyArrowPatch(path=curve, arrowstyle="-|>", **self.arrows))


def _toward(origin: Point, target: Point, distance: float) -> Point:
    gap = target - origin
    return np.asarray(origin + distance * gap / max(float(np.linalg.norm(gap)), 1e-9))
