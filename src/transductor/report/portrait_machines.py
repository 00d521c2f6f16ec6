"""Small machines are drawn as graphs on a circle, larger ones as tables, in the colours of the figure's states."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import matplotlib
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, to_rgba
from matplotlib.patches import Circle
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from transductor.automata.graph_drawing import GraphStyle, angles_on_circle, direction, order_on_circle

if TYPE_CHECKING:
    from transductor.portraits.values import Drawn

MOST_STATES: Final = 10
MOST_ARROWS: Final = 30
MOST_COVERED: Final = 0.22  # share of the circle that labels may cover; more would overlap
_LETTER: Final = (0.062, 0.12)  # width and height of a character, where the circle has radius 1
_NAMED_ROWS: Final = 12  # a table of more states shows their numbers alone
_PLAIN: Final = 10  # more arrows than these have the colour of the state they leave
_EIGHT: Final = ("#1f5fbf", "#d1495b", "#35a06b", "#ee9b3a", "#7b52ab", "#35b0ab", "#8c6d46", "#e58fb1")


def state_colours(count: int) -> list[tuple[float, float, float, float]]:
    """Return one colour for each state: distinct ones for few states, a wheel for many."""
    if count <= len(_EIGHT):
        return [to_rgba(colour) for colour in _EIGHT[:count]]
    wheel = matplotlib.colormaps["turbo"]
    return [wheel(0.03 + 0.94 * state / (count - 1)) for state in range(count)]


def draw_machine(axes: Axes, machine: Drawn, letters: Sequence[str]) -> None:
    """Draw a graph whose nodes show labels, or a table of successors; the sink and what leads there is left out."""
    arrows: dict[tuple[int, int], list[str]] = {}
    for source, row in enumerate(machine.transitions):
        for letter, target in enumerate(row):
            if machine.sink not in (source, target):
                arrows.setdefault((source, target), []).append(letters[letter])
    covered = sum(len(short(read)) * _LETTER[0] * _LETTER[1] for read in arrows.values())
    if machine.shown <= MOST_STATES and len(arrows) <= MOST_ARROWS and covered <= MOST_COVERED * math.pi:
        _graph(axes, machine, arrows)
    else:
        draw_table(axes, machine, letters)


def _graph(axes: Axes, machine: Drawn, arrows: dict[tuple[int, int], list[str]]) -> None:
    colours = state_colours(machine.states)
    nodes = [state for state in range(machine.states) if state != machine.sink]
    number = {state: place for place, state in enumerate(nodes)}
    labels = {(number[source], number[target]): short(read) for (source, target), read in arrows.items()}
    around = angles_on_circle(len(nodes), math.pi / 2)
    angles = [around[place] for place in order_on_circle(len(nodes), labels, number[machine.start])]
    places = [(0.0 if len(nodes) == 1 else 1.0) * direction(angle) for angle in angles]
    size = 0.22 if len(nodes) <= 6 else 0.17
    style = GraphStyle(
        radius=size,
        gap=0.02,
        arrows={"mutation_scale": 15, "color": "0.25", "lw": 1.3, "zorder": 2},
        labels={"fontsize": 10.5, "zorder": 3},
        box={"pad": 0.6, "alpha": 0.9},
        label_place=0.35,
        letter=_LETTER,
        loop=(0.5, 0.55, 3.4 * size, 2.75 * size),
        bends=(0.32, 0.08),
    )
    inks = [tuple(0.72 * part for part in colours[state][:3]) for state in nodes] if len(labels) > _PLAIN else None
    style.draw_edges(axes, places, angles, labels, inks)
    for state, (x, y) in zip(nodes, places, strict=True):
        axes.add_patch(Circle((x, y), size, facecolor=colours[state], edgecolor="black", lw=1.2, zorder=4))
        label = _label(machine, state)
        text = axes.text(
            x, y, label if len(label) <= 8 else f"{label[:7]}…", ha="center", va="center", color="white",
            weight="bold", zorder=5, parse_math=False, fontsize=12 if len(label) <= 4 else 8,
        )  # fmt: skip
        # A name may be wider than its node; an outline keeps it legible over arrows.
        text.set_path_effects([withStroke(linewidth=2, foreground=tuple(0.7 * part for part in colours[state][:3]))])
    begin, angle = places[number[machine.start]], angles[number[machine.start]]
    style.draw_arrow_in(axes, begin + 0.62 * direction(angle - 0.95), begin, bend=0.08)
    axes.set_xlim(-1.6, 1.6)
    axes.set_ylim(-1.55, 1.72)
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
    """Draw a row per state and a column per letter; a cell has the colour of the next state, the last its own.

    The sink has no row, and what leads there is white.
    """
    colours = ListedColormap(state_colours(machine.states)).with_extremes(bad="white")
    width = max(1, len(letters) // 10)
    nodes = [state for state in range(machine.states) if state != machine.sink]
    rows = [[math.nan if to == machine.sink else to for to in [*machine.transitions[state], *[state] * width]]
            for state in nodes]  # fmt: skip
    axes.imshow(rows, cmap=colours, vmin=-0.5, vmax=machine.states - 0.5, aspect="auto", interpolation="nearest")
    axes.axvline(len(letters) - 0.5, color="white", lw=4)
    every = max(1, math.ceil(len(letters) / 7))
    places = list(range(0, len(letters), every))
    axes.set_xticks(
        [*places, len(letters) + (width - 1) / 2], [*(short([letters[place]]) for place in places), "itself"]
    )
    if machine.labels is not None and len(nodes) <= _NAMED_ROWS:
        axes.set_yticks(range(len(nodes)), [f"{state}: {_label(machine, state)[:10]}" for state in nodes])
    else:
        axes.yaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.set_xlabel("letter")
    axes.set_ylabel("state; colour: the next")
    axes.tick_params(length=0)
