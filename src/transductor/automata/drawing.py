"""Pictures of automata: by Graphviz where its program ``dot`` is installed, otherwise on a circle by matplotlib.

An arrow from nowhere enters the initial states, final states have a double ring; zeros are not drawn, ones not written,
and arcs between the same states share an arrow.
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
import numpy.typing as npt

from transductor.automata.finite_automata import DFA, NFA
from transductor.automata.formats import dot
from transductor.automata.formats.graph import arcs_of, as_weighted
from transductor.automata.formats.labels import arc_label, weight_label
from transductor.automata.operators import operator
from transductor.automata.weighted import WeightedAutomaton
from transductor.results import write_atomically

MAX_STATES: Final = 60
_SUFFIXES: Final = (".svg", ".png", ".pdf", ".dot")
_SECONDS: Final = 15
_MAX_ARROWS: Final = 250
"""Graphviz needs minutes for more, and no layout makes them clear."""

Point = npt.NDArray[np.float64]


class TooLargeToDrawError(ValueError, NotImplementedError):
    """More states than a picture can show; a notebook takes NotImplementedError for 'show the text instead'."""


@operator(DFA, "svg")
@operator(NFA, "svg")
@operator(WeightedAutomaton, "svg")
def svg(automaton: object, *, force: bool = False) -> str:
    """A picture as SVG text.

    Args:
        automaton: A weighted automaton, a DFA or an NFA.
        force: Draw more than ``MAX_STATES`` states, too.
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
    """What Graphviz makes of it; None where it fails or takes too long, as it may on dense machines."""
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
    """States on a circle, where a straight arrow never crosses a third state."""
    from matplotlib.figure import Figure

    dim, ring = machine.dim, machine.weights
    radius = 0.7 + 0.35 * dim if dim > 1 else 0.0
    size = 2 * radius + 3
    figure = Figure(figsize=(size, size))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_aspect("equal")
    axes.set_xlim(-size / 2, size / 2)
    axes.set_ylim(-size / 2, size / 2)
    places = [radius * _direction(math.pi - 2 * math.pi * state / max(dim, 1)) for state in range(dim)]
    outward = [_direction(math.pi - 2 * math.pi * state / max(dim, 1)) for state in range(dim)]
    edges: dict[tuple[int, int], list[tuple[Any, Any]]] = {}
    for source, letter, to, weight in arcs_of(machine):
        edges.setdefault((source, to), []).append((machine.alphabet[letter], weight))
    for (source, to), read in edges.items():
        label = arc_label(ring, read)
        if source == to:
            _loop(axes, places[source], _turned(outward[source], -0.7), label)
        else:
            _arrow(axes, places[source], places[to], label, bend=0.25 if (to, source) in edges else 0.0)
    for state in range(dim):
        _state(axes, places[state], str(state), bool(machine.final[state] != ring.zero))
        if machine.final[state] != ring.zero and (shown := weight_label(ring, machine.final[state])):
            _text(axes, places[state] + 0.45 * _turned(outward[state], 0.9), f"→ {shown}")
        if machine.initial[state] != ring.zero:
            away = places[state] + 0.75 * outward[state]
            _arrow(axes, away, places[state], weight_label(ring, machine.initial[state]), tail=0.0)
    if dim == 0:
        _text(axes, np.zeros(2), "no states")
    picture = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # a letter the font lacks is drawn as a box
        figure.savefig(picture, format=kind, dpi=150, bbox_inches="tight")
    return picture.getvalue()


_RING: Final = 0.24


def _direction(angle: float) -> Point:
    return np.array([math.cos(angle), math.sin(angle)])


def _turned(direction: Point, angle: float) -> Point:
    return _direction(math.atan2(direction[1], direction[0]) + angle)


def _state(axes: Any, place: Point, name: str, final: bool) -> None:
    from matplotlib.patches import Circle

    axes.add_patch(Circle((place[0], place[1]), _RING, facecolor="white", edgecolor="black", zorder=2))
    if final:
        axes.add_patch(Circle((place[0], place[1]), 0.82 * _RING, fill=False, edgecolor="black", zorder=3))
    axes.text(*place, name, ha="center", va="center", fontsize=10, zorder=4, parse_math=False)


def _arrow(axes: Any, begin: Point, end: Point, label: str, *, bend: float = 0.0, tail: float = _RING) -> None:
    from matplotlib.patches import FancyArrowPatch

    along = (end - begin) / max(float(np.linalg.norm(end - begin)), 1e-9)
    left = np.array([-along[1], along[0]])
    control = (begin + end) / 2 + bend * left * np.linalg.norm(end - begin)
    first, last = _toward(begin, control, tail), _toward(end, control, _RING)
    curve = _curve(first, control, last)
    axes.add_patch(FancyArrowPatch(path=curve, arrowstyle="-|>", mutation_scale=12, color="black", zorder=1))
    # Nearer to the beginning: in the middle of a circle, arrows cross.  An arrow from nowhere has its label there.
    at = 0.38 if tail else -0.12
    _text(axes, (1 - at) ** 2 * first + 2 * at * (1 - at) * control + at**2 * last, label)


def _loop(axes: Any, place: Point, outward: Point, label: str) -> None:
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path as Curve

    begin, end = place + _RING * _turned(outward, 0.45), place + _RING * _turned(outward, -0.45)
    far_begin, far_end = place + 0.85 * _turned(outward, 0.5), place + 0.85 * _turned(outward, -0.5)
    curve = Curve([begin, far_begin, far_end, end], [Curve.MOVETO, Curve.CURVE4, Curve.CURVE4, Curve.CURVE4])
    axes.add_patch(FancyArrowPatch(path=curve, arrowstyle="-|>", mutation_scale=12, color="black", zorder=1))
    _text(axes, place + 0.78 * outward, label)


def _toward(origin: Point, target: Point, distance: float) -> Point:
    gap = target - origin
    return np.asarray(origin + distance * gap / max(float(np.linalg.norm(gap)), 1e-9))


def _curve(begin: Point, control: Point, end: Point) -> Any:
    from matplotlib.path import Path as Curve

    return Curve([begin, control, end], [Curve.MOVETO, Curve.CURVE3, Curve.CURVE3])


def _text(axes: Any, place: Point, text: str) -> None:
    if text:
        box = {"facecolor": "white", "edgecolor": "none", "pad": 1.0, "alpha": 0.85}
        # Letters are text: a dollar sign begins no formula.
        axes.text(*place, text, ha="center", va="center", fontsize=8, bbox=box, zorder=5, parse_math=False)
