"""How figures look, and how they are written."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from transductor.results import write_atomically

__all__ = ["COLOURS", "LABELS", "save_figure", "smoothed", "spread"]

LABELS = {"transductor": "Rational Transductor", "transformer": "Transformer"}
COLOURS = {"transductor": "#1f5fbf", "transformer": "#d1495b"}


def spread(values: list[float]) -> str:
    """Mean, and min–max where there are several seeds."""
    mean = sum(values) / len(values)
    if len(values) == 1:
        return f"{mean:.1%}"
    return f"{mean:.1%} ({min(values):.1%}–{max(values):.1%})"


def smoothed(values: Sequence[float], width: int) -> list[float]:
    """A centred moving mean, shorter at the ends; nothing is shifted."""
    half = width // 2
    return [
        sum(values[max(0, i - half) : i + half + 1]) / len(values[max(0, i - half) : i + half + 1])
        for i in range(len(values))
    ]


def save_figure(figure: Figure, path: str | Path) -> Path:
    """Write a figure atomically, in the format of the suffix, and close it."""
    path = Path(path)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=path.suffix.removeprefix(".") or "png", dpi=144)
    plt.close(figure)
    return write_atomically(path, buffer.getvalue())
