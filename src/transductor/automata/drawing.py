"""Pictures of automata: by Graphviz where its program ``dot`` is installed, otherwise on a circle by matplotlib.

An arrow that comes from no state enters the initial states, and final states have a double ring.  Weights of zero are
not drawn, ones are not written, and arcs between the same states share an arrow.  On the circle the states are ordered
so that few arrows cross; where there are many, arrows and their labels have a colour for each state they leave.
"""

from __future__ import annotations

import io
import math
import shutil
import subprocess
import warnings
from pathlib import Path
from typing import Any, Final

import numpy as np

from transductor.automata.finite_automata import DFA, NFA
from transductor.automata.formats import dot
from transductor.automata.formats.graph import as_weighted, edges_of
from transductor.automata.formats.labels import arc_label, weight_label
from transductor.automata.graph_drawing import GraphStyle, Point, angles_on_circle, direction, order_on_circle
from transductor.automata.operators import operator
from transductor.automata.weighted import WeightedAutomaton
from transductor.results import write_atomically

MAX_STATES: Final = 60
_SUFFIXES: Final = (".svg", ".png", ".pdf", ".dot")
_SECONDS: Final = 15
_MAX_ARROWS: Final = 250
"""Graphviz needs minutes for more, and no layout makes them clear."""


class TooLargeToDrawError(ValueError, NotImplementedError):
    """There are more states than a picture can show; on NotImplementedError a notebook shows the text instead."""


@operator(DFA, "svg")
@operator(NFA, "svg")
@operator(WeightedAutomaton, "svg")
def svg(automaton: object, *, force: bool = False) -> str:
    """Return a picture as SVG text.

    Args:
        automaton: A weighted automaton, a DFA or an NFA.
        force: Also draw more than ``MAX_STATES`` states.
    """
    return _picture(automaton, "svg", force).decode()


def draw(automaton: object, path: str | Path, *, force: bool = False) -> Path:
    """Write a picture to a file whose suffix is .svg, .png, .pdf or .dot (which can be read back)."""
    suffix = Path(path).suffix.lower()
    if suffix not in _SUFFIXES:
        raise ValueError(f"path must end in one of {', '.join(_SUFFIXES)}; got {str(path)!r}")
    if suffix == ".dot":
        return write_atomically(path, dot.render(automaton))
    return write_atomically(path, _picture(automaton, suffix[1:], force))


def _picture(automaton: object, kind: str, force: bool) -> bytes:
    machine = as_weighted(automaton)
    if machine.dim > MAX_STATES and not force:
        raise TooLargeToDrawError(
            f"automaton must have at most {MAX_STATES} states to be drawn; it has {machine.dim}; force=True draws it"
        )
    arrows = int((~machine.weights.is_zero(machine.matrices)).any(axis=0).sum())
    program = shutil.which("dot") if arrows <= _MAX_ARROWS else None
    picture = None if program is None else _by_graphviz(program, machine, kind)
    return _by_matplotlib(machine, kind) if picture is None else picture


def _by_graphviz(program: str, machine: WeightedAutomaton, kind: str) -> bytes | None:
    """Return the picture by Graphviz; None where it fails or takes too long, as it may on dense machines."""
    resolution = ["-Gdpi=150"] if kind == "png" else []
    try:
        done = subprocess.run(
            [program, f"-T{kind}", *resolution],
            input=dot.render(machine),
            capture_output=True,
            timeout=_SECONDS,
            check=True,
        )
    except (subprocess.SubprocessError, OSError, ValueError):
        return None
    return done.stdout or None


def _by_matplotlib(machine: WeightedAutomaton, kind: str) -> bytes:
    """Return a picture with the states on a circle."""
    from matplotlib.figure import Figure

    dim, ring = machine.dim, machine.weights
    circle = 0.75 + 0.3 * dim if dim > 1 else 0.0
    size = 2 * circle + 3
    figure = Figure(figsize=(size, size))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_aspect("equal")
    axes.set_xlim(-size / 2, size / 2)
    axes.set_ylim(-size / 2, size / 2)
    edges = edges_of(machine)
    starts = [state for state in range(dim) if machine.initial[state] != ring.zero]
    around, order = angles_on_circle(dim, math.pi), order_on_circle(dim, edges, starts[0] if starts else 0)
    angles = [around[place] for place in order]
    places = [circle * direction(angle) for angle in angles]
    labels = {pair: arc_label(machine, read) for pair, read in edges.items()}
    colours = [_INKS[place % len(_INKS)] for place in order] if len(edges) > _PLAIN_ARROWS else None
    _STYLE.draw_edges(axes, places, [angle - 0.7 for angle in angles], labels, colours)
    for state in range(dim):
        initial, final = machine.initial[state], machine.final[state]
        _draw_state(
            axes, places[state], str(state), bool(final != ring.zero), None if colours is None else colours[state]
        )
        if final != ring.zero and (shown := weight_label(ring, final)):
            _STYLE.draw_label(axes, places[state] + 0.52 * direction(angles[state] + 0.9), f"→ {shown}")
        if initial != ring.zero:
            away = places[state] + 0.8 * direction(angles[state])
            _STYLE.draw_arrow_in(axes, away, places[state], weight_label(ring, initial))
    if dim == 0:
        _STYLE.draw_label(axes, np.zeros(2), "no states")
    picture = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # a letter the font lacks is drawn as a box
        figure.savefig(picture, format=kind, dpi=150, bbox_inches="tight")
    return picture.getvalue()


# Labels stand nearer to the beginning of an arrow: in the middle of a circle, arrows cross.
_STYLE: Final = GraphStyle(
    radius=0.27,
    gap=0.0,
    arrows={"mutation_scale": 13, "color": "black", "zorder": 1},
    labels={"fontsize": 10, "zorder": 5},
    box={"pad": 0.8, "alpha": 0.9},
    label_place=0.38,
    letter=(0.09, 0.2),
    loop=(0.45, 0.5, 0.92, 0.9),
    bends=(0.25, 0.0),
)
# More arrows than this are told apart by the colours of the states they leave; all are dark enough for a label.
_PLAIN_ARROWS: Final = 12
_INKS: Final = ("#1f5fbf", "#b3273b", "#1e7d4c", "#a85d00", "#6a3fa0", "#00707a", "#6b4e2a", "#b0306f", "#3d3d3d")


def _draw_state(axes: Any, place: Point, name: str, final: bool, colour: str | None) -> None:
    from matplotlib.patches import Circle

    radius, ink = _STYLE.radius, colour or "black"
    axes.add_patch(Circle((place[0], place[1]), radius, facecolor="white", edgecolor=ink, lw=1.3, zorder=2))
    if final:
        axes.add_patch(Circle((place[0], place[1]), 0.82 * radius, fill=False, edgecolor=ink, zorder=3))
    axes.text(*place, name, ha="center", va="center", fontsize=11, zorder=4, parse_math=False)
