"""Small machines as graphs on a circle, larger ones as tables, in the colours that states have in the whole figure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import matplotlib
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, to_rgba
from matplotlib.patches import Circle, FancyArrowPatch
from matplotlib.path import Path as Curve
from matplotlib.ticker import MaxNLocator

if TYPE_CHECKING:
    from transductor.portraits.values import Drawn

MOST_STATES: Final = 10
MOST_ARROWS: Final = 30
_EIGHT: Final = ("#1f5fbf", "#d1495b", "#35a06b", "#ee9b3a", "#7b52ab", "#35b0ab", "#8c6d46", "#e58fb1")

Point = tuple[float, float]


def state_colours(count: int) -> list[tuple[float, float, float, float]]:
    """One colour for each state: distinct ones for few, a wheel for many."""
    if count <= len(_EIGHT):
        return [to_rgba(colour) for colour in _EIGHT[:count]]
    wheel = matplotlib.colormaps["turbo"]
    return [wheel(0.03 + 0.94 * state / (count - 1)) for state in range(count)]


def draw_machine(axes: Axes, machine: Drawn, letters: Sequence[str]) -> None:
    """A graph whose nodes show labels, or a table of successors."""
    arrows: dict[tuple[int, int], list[str]] = {}
    for source, row in enumerate(machine.transitions):
        for letter, target in enumerate(row):
            arrows.setdefault((source, target), []).append(letters[letter])
    if machine.states <= MOST_STATES and len(arrows) <= MOST_ARROWS:
        _graph(axes, machine, arrows)
    else:
        draw_table(axes, machine, letters)


def _graph(axes: Axes, machine: Drawn, arrows: dict[tuple[int, int], list[str]]) -> None:
    count, colours = machine.states, state_colours(machine.states)
    angles = [math.pi / 2 - 2 * math.pi * state / count for state in range(count)]
    ring = 0.0 if count == 1 else 1.0
    places = [(ring * math.cos(angle), ring * math.sin(angle)) for angle in angles]
    size = 0.22 if count <= 6 else 0.17
    for (source, target), read in arrows.items():
        if source == target:
            _loop(axes, places[source], angles[source], short(read), size)
        else:
            _arrow(axes, places[source], places[target], short(read), size, both=(target, source) in arrows)
    for state, (x, y) in enumerate(places):
        axes.add_patch(Circle((x, y), size, facecolor=colours[state], edgecolor="black", lw=1.2, zorder=4))
        axes.text(x, y, _label(machine, state), ha="center", va="center", color="white", weight="bold", zorder=5)
    begin = places[machine.start]
    inward = angles[machine.start] - 0.95
    away = (begin[0] + 0.62 * math.cos(inward), begin[1] + 0.62 * math.sin(inward))
    _arrow(axes, away, begin, "", size, tail=0.0)
    axes.set_xlim(-1.75, 1.75)
    axes.set_ylim(-1.6, 1.7)
    axes.set_aspect("equal")
    axes.set_axis_off()


def _label(machine: Drawn, state: int) -> str:
    if machine.labels is None:
        return str(state)
    label = machine.labels[state]
    return "–" if label is None else str(label)


def short(read: Sequence[str]) -> str:
    """Letters in at most a few characters."""
    shown = ", ".join(read)
    if len(shown) <= 7:
        return shown
    first = read[0] if len(read[0]) <= 6 else f"{read[0][:5]}…"
    return first if len(read) == 1 else f"{first}, … ({len(read)})"


def _arrow(
    axes: Axes, begin: Point, end: Point, label: str, size: float, *, both: bool = False, tail: float | None = None
) -> None:
    (x0, y0), (x1, y1) = begin, end
    length = math.hypot(x1 - x0, y1 - y0)
    left = (-(y1 - y0) / length, (x1 - x0) / length)
    bend = 0.32 * length if both else 0.08 * length
    control = ((x0 + x1) / 2 + bend * left[0], (y0 + y1) / 2 + bend * left[1])
    first, last = _toward(begin, control, size if tail is None else tail), _toward(end, control, size + 0.02)
    curve = Curve([first, control, last], [Curve.MOVETO, Curve.CURVE3, Curve.CURVE3])
    axes.add_patch(FancyArrowPatch(path=curve, arrowstyle="-|>", mutation_scale=15, color="0.25", lw=1.3, zorder=2))
    if label:
        # Nearer to the beginning: in the middle of a circle, arrows cross.
        weights = (0.49, 0.42, 0.09)
        x, y = (
            sum(w * point[axis] for w, point in zip(weights, (first, control, last), strict=True)) for axis in (0, 1)
        )
        _text(axes, (x, y), label)


def _loop(axes: Axes, place: Point, outward: float, label: str, size: float) -> None:
    def beside(distance: float, angle: float) -> Point:
        return place[0] + distance * math.cos(outward + angle), place[1] + distance * math.sin(outward + angle)

    points = [beside(size, 0.5), beside(3.4 * size, 0.55), beside(3.4 * size, -0.55), beside(size + 0.02, -0.5)]
    curve = Curve(points, [Curve.MOVETO, Curve.CURVE4, Curve.CURVE4, Curve.CURVE4])
    axes.add_patch(FancyArrowPatch(path=curve, arrowstyle="-|>", mutation_scale=15, color="0.25", lw=1.3, zorder=2))
    _text(axes, beside(2.75 * size, 0.0), label)


def _toward(origin: Point, target: Point, distance: float) -> Point:
    gap = (target[0] - origin[0], target[1] - origin[1])
    length = max(math.hypot(*gap), 1e-9)
    return origin[0] + distance * gap[0] / length, origin[1] + distance * gap[1] / length


def _text(axes: Axes, place: Point, text: str) -> None:
    box = {"facecolor": "white", "edgecolor": "none", "pad": 1.5, "alpha": 0.9}
    axes.text(*place, text, ha="center", va="center", fontsize=12, bbox=box, zorder=3, parse_math=False)


def draw_table(axes: Axes, machine: Drawn, letters: Sequence[str]) -> None:
    """Rows are states, columns letters; a cell has the colour of the next state, the last column that of the row."""
    colours = ListedColormap(state_colours(machine.states))
    width = max(1, len(letters) // 10)
    rows = [[*row, *[state] * width] for state, row in enumerate(machine.transitions)]
    axes.imshow(rows, cmap=colours, vmin=-0.5, vmax=machine.states - 0.5, aspect="auto", interpolation="nearest")
    axes.axvline(len(letters) - 0.5, color="white", lw=4)
    every = max(1, math.ceil(len(letters) / 7))
    places = list(range(0, len(letters), every))
    axes.set_xticks(
        [*places, len(letters) + (width - 1) / 2], [*(short([letters[place]]) for place in places), "itself"]
    )
    axes.yaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.set_xlabel("letter")
    axes.set_ylabel("state; colour: the next")
    axes.tick_params(length=0)
