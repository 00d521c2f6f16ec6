"""Small machines are drawn as graphs on a circle, larger ones as tables, in the colours of the figure's states."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import matplotlib
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, to_rgba
from matplotlib.patches import Circle
from matplotlib.ticker import MaxNLocator

from transductor.automata.graph_drawing import GraphStyle, angles_on_circle, direction

if TYPE_CHECKING:
    from transductor.portraits.values import Drawn

MOST_STATES: Final = 10
MOST_ARROWS: Final = 30
_EIGHT: Final = ("#1f5fbf", "#d1495b", "#35a06b", "#ee9b3a", "#7b52ab", "#35b0ab", "#8c6d46", "#e58fb1")


def state_colours(count: int) -> list[tuple[float, float, float, float]]:
    """Return one colour for each state: distinct ones for few states, a wheel for many."""
    if count <= len(_EIGHT):
        return [to_rgba(colour) for colour in _EIGHT[:count]]
    wheel = matplotlib.colormaps["turbo"]
    return [wheel(0.03 + 0.94 * state / (count - 1)) for state in range(count)]


def draw_machine(axes: Axes, machine: Drawn, letters: Sequence[str]) -> None:
    """Draw a graph whose nodes show labels, or a table of successors."""
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
    angles = angles_on_circle(count, math.pi / 2)
    places = [(0.0 if count == 1 else 1.0) * direction(angle) for angle in angles]
    size = 0.22 if count <= 6 else 0.17
    style = GraphStyle(
        radius=size,
        gap=0.02,
        arrows={"mutation_scale": 15, "color": "0.25", "lw": 1.3, "zorder": 2},
        labels={"fontsize": 12, "zorder": 3},
        box={"pad": 1.5, "alpha": 0.9},
        label_place=0.3,
        loop=(0.5, 0.55, 3.4 * size, 2.75 * size),
    )
    for (source, target), read in arrows.items():
        if source == target:
            style.draw_loop(axes, places[source], angles[source], short(read))
        else:
            bend = 0.32 if (target, source) in arrows else 0.08
            style.draw_arrow(axes, places[source], places[target], short(read), bend=bend)
    for state, (x, y) in enumerate(places):
        axes.add_patch(Circle((x, y), size, facecolor=colours[state], edgecolor="black", lw=1.2, zorder=4))
        axes.text(x, y, _label(machine, state), ha="center", va="center", color="white", weight="bold", zorder=5)
    begin = places[machine.start]
    away = begin + 0.62 * direction(angles[machine.start] - 0.95)
    style.draw_arrow(axes, away, begin, "", bend=0.08, from_node=False)
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
    """Write letters in a few characters."""
    complete = ", ".join(read)
    if len(complete) <= 7:
        return complete
    first = read[0] if len(read[0]) <= 6 else f"{read[0][:5]}…"
    return first if len(read) == 1 else f"{first}, … ({len(read)})"


def draw_table(axes: Axes, machine: Drawn, letters: Sequence[str]) -> None:
    """Draw a row per state and a column per letter; a cell has the colour of the next state, the last its own."""
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
