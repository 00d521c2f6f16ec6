"""Figures share labels, colours and markers, and are written atomically."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib.pyplot as plt
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from transductor.results import write_atomically

LABELS = {
    "transductor": "Rational Transductor",
    "transformer": "Transformer",
    "transductor_paper": "Rational Transductor, our reading of the paper",
    "transductor_ours": "Rational Transductor, ours, learned",
    "transductor_hardened": "Rational Transductor, ours, hardened",
    "transformer_learned": "Transformer, learned positions",
    "transformer_rotary": "Transformer, rotary positions",
    "transformer_relative": "Transformer, relative positions",
    "transformer_none": "Transformer, no positions",
    "transformer_paper": "Transformer, our reading of the paper",
    "lstm": "LSTM",
    "lstm_paper": "LSTM, our reading of the paper",
    "a5_two_generators": "A5, two generators",
    "a5_all_elements": "A5, all 60 elements",
    "s5_two_generators": "S5, two generators",
    "s5_swaps": "S5, swaps",
    "s5_32_random_generators": "S5, 32 random generators",
    "s5_all_elements": "S5, all 120 elements",
    "c6": "C6",
    "s3": "S3",
    "flip_flop": "flip-flop",
    "five_of_8": "five filters of 8",
    "ten_of_20": "ten filters of 20",
    "one_of_120": "one filter of 120",
}
# Cool colours mark models with an automaton, warm colours models without one.
COLOURS = {
    "transductor": "#1f5fbf",
    "transformer": "#d1495b",
    "transductor_paper": "#35b0ab",
    "transductor_ours": "#1f5fbf",
    "transductor_hardened": "#12224f",
    "transformer_learned": "#d1495b",
    "transformer_rotary": "#ee9b3a",
    "transformer_relative": "#9c2f6b",
    "transformer_none": "#e58fb1",
    "transformer_paper": "#9c2f6b",
    "lstm": "#8c6d46",
    "lstm_paper": "#8c6d46",
    "filter": "#1f5fbf",
    "five_of_8": "#7aa6e0",
    "ten_of_20": "#1f5fbf",
    "one_of_120": "#12224f",
    "orthogonal": "#35b0ab",
    "dense": "#ee9b3a",
    "columns": "#7b52ab",
}
MARKERS = {
    "transductor_paper": "s",
    "transductor_ours": "o",
    "transductor_hardened": "D",
    "transformer_learned": "^",
    "transformer_rotary": "v",
    "transformer_relative": "<",
    "transformer_none": ">",
    "transformer_paper": "<",
    "lstm": "P",
    "lstm_paper": "P",
    "transformer": "^",
    "orthogonal": "s",
    "dense": "X",
    "columns": "D",
}
# A model without a colour in COLOURS takes one of these.
SPARE = ("#4b4b9c", "#9c4b4b", "#4b9c7a", "#6b6b6b")
_DOTS_PER_INCH: Final = 144
# What tables and figures of a quick run say.
QUICK = "A quick check that everything runs: one seed, trained for a twentieth of the steps. No result."
# Text stays readable when the figure is shown at half size.
READABLE: dict[Any, Any] = {
    "font.size": 13,
    "axes.titlesize": 14,
    "axes.labelsize": 13,
    "xtick.labelsize": 12,
    "ytick.labelsize": 12,
    "legend.fontsize": 12.5,
    "figure.titlesize": 15,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def label(name: str) -> str:
    """Return the name of a model as people write it."""
    return LABELS.get(name, name.replace("_", " "))


def colour(name: str) -> str:
    """Return the colour that a model has in every figure."""
    return COLOURS.get(name, SPARE[sum(map(ord, name)) % len(SPARE)])


def percent(share: float) -> str:
    """Write a share with one decimal or more: only exactly 1 is written 100%, and only exactly 0 is written 0%."""
    if share in (0, 1):
        return f"{share:.0%}"
    for decimals in range(1, 9):
        text = f"{share:.{decimals}%}"
        if float(text.removesuffix("%")) not in (0, 100):
            return text
    return "<100%" if share > 0.5 else ">0%"


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return an interval that has the median with about 95 % certainty, for every distribution."""
    ordered, half = sorted(values), len(values) / 2
    reach = 0.98 * len(values) ** 0.5
    return ordered[max(0, math.floor(half - reach))], ordered[min(len(ordered) - 1, math.ceil(half + reach) - 1)]


def spread(values: list[float]) -> str:
    """Write the mean, and min–max where there are several seeds."""
    mean = sum(values) / len(values)
    if len(values) == 1:
        return f"{mean:.1%}"
    return f"{mean:.1%} ({min(values):.1%}–{max(values):.1%})"


def smoothed(values: Sequence[float], width: int) -> list[float]:
    """Return a centred moving mean, over fewer values at the ends; nothing is shifted."""
    half = width // 2
    windows = (values[max(0, i - half) : i + half + 1] for i in range(len(values)))
    return [sum(window) / len(window) for window in windows]


def mark_quick(figure: Figure) -> None:
    """Write across a figure that it shows a quick check, so that it is never taken for a result."""
    figure.text(
        0.5, 0.5, "quick check", rotation=28, ha="center", va="center", fontsize=64, color="#b3273b", alpha=0.16,
        weight="bold", zorder=100,
    ).set_in_layout(False)  # fmt: skip
    figure.text(0.995, 0.005, QUICK, ha="right", va="bottom", fontsize=9, color="#b3273b").set_in_layout(False)


def canvas_of(figure: Figure, dots_per_inch: int) -> Any:  # matplotlib's canvas has no types
    """Return a canvas that draws a figure once; ``savefig`` draws it a first time only to lay it out."""
    figure.set_dpi(dots_per_inch)
    return FigureCanvasAgg(figure)


def save_figure(figure: Figure, path: str | Path) -> Path:
    """Write a figure atomically, in the format of the suffix, and close it."""
    path = Path(path)
    kind, buffer = path.suffix.removeprefix(".") or "png", io.BytesIO()
    if kind == "png":
        canvas_of(figure, _DOTS_PER_INCH).print_png(buffer)
    else:
        figure.savefig(buffer, format=kind, dpi=_DOTS_PER_INCH)
    plt.close(figure)
    return write_atomically(path, buffer.getvalue())
