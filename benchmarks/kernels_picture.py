"""Draw ``docs/figures/kernels.png``: how a row is cut, and what is computed in which order."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.patches import FancyArrowPatch, Rectangle

from transductor.report.style import save_figure

BLUE, RED, GREY = "#1f5fbf", "#d1495b", "0.45"
CHUNKS, GROUPS = 8, 2


def boxes(axis, y, count, text, colour, *, filled):
    width = 16 / count
    for k in range(count):
        axis.add_patch(
            Rectangle(
                (k * width + 0.06, y), width - 0.12, 0.62, facecolor=colour if filled else "white", edgecolor=colour
            )
        )
        axis.text(
            (k + 0.5) * width, y + 0.31, text.format(k + 1), ha="center", va="center", fontsize=9,
            color="white" if filled else colour,
        )  # fmt: skip


def arrow(axis, start, end, colour):
    axis.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=9, color=colour, lw=1.1))


def main():
    figure, axis = plt.subplots(figsize=(9.5, 4.4), layout="constrained")
    axis.set(xlim=(-5.4, 16.2), ylim=(-0.35, 5.6))
    axis.axis("off")
    for x in range(64):
        axis.add_patch(Rectangle((x / 4 + 0.02, 0), 0.21, 0.4, facecolor="0.85"))
    boxes(axis, 1.1, CHUNKS, "$P_{}$", BLUE, filled=False)
    boxes(axis, 2.3, GROUPS, "$G_{}$", BLUE, filled=False)
    boxes(axis, 3.6, CHUNKS, "$h$ before {}", RED, filled=False)
    for x in range(64):
        axis.add_patch(Rectangle((x / 4 + 0.02, 4.9), 0.21, 0.4, facecolor=RED))
    for k in range(CHUNKS):
        arrow(axis, (2 * k + 1, 0.42), (2 * k + 1, 1.08), BLUE)
        arrow(axis, (2 * k + 1, 4.24), (2 * k + 1, 4.88), RED)
    for k in range(GROUPS):
        arrow(axis, (8 * k + 4, 1.74), (8 * k + 4, 2.28), BLUE)
        arrow(axis, (8 * k + 4, 2.94), (8 * k + 4, 3.58), RED)
    labels = [
        (0.2, "tokens $x_1 … x_T$", GREY),
        (1.4, "1  products of chunks\n    matrix units, float64", BLUE),
        (2.6, "2  products of groups", BLUE),
        (3.9, "3  entering states: a walk\n    over groups, then chunks", RED),
        (5.1, "4  all states, chunk by chunk\n    $h_t = M_{x_t} h_{t-1}$", RED),
    ]
    for y, text, colour in labels:
        axis.text(-5.3, y, text, va="center", fontsize=9.5, color=colour)
    print(save_figure(figure, Path(__file__).parent.parent / "docs" / "figures" / "kernels.png"))


if __name__ == "__main__":
    main()
