"""The pictures of a fit as SVG text: its machine, and how right its models are at longer lengths."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Final

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from transductor.automata.graph_drawing import GraphStyle, angles_on_circle, direction, order_on_circle
from transductor.fit_facts import walked_steps
from transductor.portraits.values import Drawn
from transductor.report.portrait_machines import draw_table

_MOST_STATES: Final = 60
_MOST_NODES: Final = 16
_LONGEST_LABEL: Final = 22
_LONGEST_NAME: Final = 12
_PLAIN_ARROWS: Final = 8  # more are told apart by the colours of the states they leave
_INKS: Final = ("#1f5fbf", "#b3273b", "#1e7d4c", "#a85d00", "#6a3fa0", "#00707a", "#6b4e2a", "#b0306f")
_FILLS: Final = ("#cfe0f5", "#f6d5c9", "#d2ecd9", "#f3e6b3", "#e2d6f0", "#cdeaea", "#e6dccf", "#f3d3e2")
_STYLE: Final = GraphStyle(
    radius=0.46,
    gap=0.03,
    arrows={"mutation_scale": 14, "color": "0.2", "lw": 1.2, "zorder": 2},
    labels={"fontsize": 9, "zorder": 3},
    box={"pad": 0.8, "alpha": 0.9},
    label_place=0.4,
    letter=(0.085, 0.2),
    loop=(0.5, 0.55, 1.4, 1.2),
    bends=(0.2, 0.06),
)
_PEER, _OURS, _CHOSEN, _BASELINE = "#ee9b3a", "#8fb3e0", "#1f5fbf", "0.75"


def _as_svg(figure: Figure) -> str:
    """Return a figure as SVG text and close it; equal figures give equal text."""
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "transductor"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # a letter the font lacks is drawn as a box
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    plt.close(figure)
    return buffer.getvalue()


def machine_svg(facts: Mapping[str, Any]) -> str | None:
    """Return the machine in the user's words and classes; None where it is too large for a picture.

    A graph, in which a word that leaves a state as it is has no arrow, nor a step that no sequence takes; a table where
    the graph would be a tangle.
    """
    machine, data = facts["machine"], facts["data"]
    if machine["states"] > _MOST_STATES:
        return None
    names = [data["classes"][label] if label >= 0 else "–" for label in machine["outputs"]]
    arrows: dict[tuple[int, int], list[str]] = {}
    walked = walked_steps(machine)
    for source, row in enumerate(machine["transitions"]):
        for letter, target in enumerate(row):
            if source != target and (source, letter) in walked:
                arrows.setdefault((source, target), []).append(data["letters"][letter])
    if machine["states"] <= _MOST_NODES and len(arrows) <= 4 * machine["states"]:
        note = "A word without an arrow leaves the state as it is"
        guessed = len(walked) < machine["states"] * len(data["letters"])
        note += ", or no sequence takes that step." if guessed else "."
        return _as_svg(_graph(machine, names, {pair: _joined(read) for pair, read in arrows.items()}, note))
    figure, axes = plt.subplots(figsize=(6.4, 6.0), layout="constrained")
    draw_table(axes, Drawn(machine["transitions"], machine["outputs"], machine["start"]), data["letters"])
    return _as_svg(figure)


def _graph(
    machine: Mapping[str, Any], names: Sequence[str], labels: Mapping[tuple[int, int], str], note: str
) -> Figure:
    """Draw states on a circle, wide enough for words on the arrows; states of one class have one colour."""
    count, start = machine["states"], machine["start"]
    circle = 0.0 if count == 1 else 1.2 + 0.34 * count
    around, order = angles_on_circle(count, math.pi / 2), order_on_circle(count, labels, start)
    angles = [around[place] for place in order]
    places = [circle * direction(angle) for angle in angles]
    size = 2 * circle + 2.6
    figure, axes = plt.subplots(figsize=(0.85 * size, 0.85 * size))
    inks = [_INKS[place % len(_INKS)] for place in order] if len(labels) > _PLAIN_ARROWS else None
    _STYLE.draw_edges(axes, places, angles, labels, inks)
    fills = {name: _FILLS[number % len(_FILLS)] for number, name in enumerate(sorted(set(names)))}
    for state, (x, y) in enumerate(places):
        axes.add_patch(
            Circle((x, y), _STYLE.radius, facecolor=fills[names[state]], edgecolor="black", lw=1.2, zorder=4)
        )
        label = names[state] if len(names[state]) <= _LONGEST_NAME else f"{names[state][: _LONGEST_NAME - 1]}…"
        for height, text, size_of_text in ((0.13, str(state), 11), (-0.12, label, 7.5)):
            axes.text(x, y + height, text, ha="center", va="center", fontsize=size_of_text, zorder=5, parse_math=False)
    _STYLE.draw_arrow_in(axes, places[start] + 1.0 * direction(angles[start]), places[start])
    axes.set_xlim(-size / 2, size / 2)
    axes.set_ylim(-size / 2, size / 2)
    axes.set_aspect("equal")
    axes.set_axis_off()
    axes.text(0, -size / 2 + 0.2, note, ha="center", fontsize=9, color="0.35")
    return figure


def _joined(read: Sequence[str]) -> str:
    """Write all words of an arrow, or the first of many."""
    shown = ""
    for place, word in enumerate(read):
        if place and len(shown) + len(word) > _LONGEST_LABEL:
            return f"{shown}, … ({len(read)})"
        shown += f", {word}" if place else word
    return shown


def accuracy_svg(facts: Mapping[str, Any]) -> str | None:
    """Return bars: how right each model is at each multiple of the trained length; None where labels are numbers."""
    recipes = [each for each in facts["recipes"] if each["failed"] is None]
    if facts["data"]["goal"] == "regression" or not recipes:
        return None
    names = [facts["baseline"]["name"], *(each["name"] for each in recipes)]
    shares = [facts["baseline"]["bands"], *(each["bands"] for each in recipes)]
    colours = [_BASELINE] + [
        _PEER if each["peer"] else _CHOSEN if each["name"] == facts["chosen"]["name"] else _OURS for each in recipes
    ]
    count = len(facts["bands"])
    figure, panels = plt.subplots(
        1, count, figsize=(1.5 + 3.2 * count, 1.2 + 0.34 * len(names)), sharey=True, squeeze=False, layout="constrained"
    )
    for place, axes in enumerate(panels[0]):
        rights = [each[place]["right"] / max(1, each[place]["count"]) for each in shares]
        below = [max(0.0, right - each[place]["low"]) for right, each in zip(rights, shares, strict=True)]
        above = [max(0.0, each[place]["high"] - right) for right, each in zip(rights, shares, strict=True)]
        axes.barh(names, rights, color=colours, xerr=[below, above], error_kw={"lw": 1, "capsize": 2})
        axes.set_xlim(0, 1)
        axes.set_xlabel("share of labels that are right")
        axes.set_title(f"{facts['bands'][place]} (n = {shares[0][place]['count']:,})")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0][0].invert_yaxis()
    return _as_svg(figure)
