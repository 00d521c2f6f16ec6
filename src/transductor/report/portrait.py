"""The portrait of a head is drawn as one figure."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Circle
from PIL import Image

from transductor.report.portrait_machines import draw_machine, draw_table, short, state_colours
from transductor.report.style import READABLE, canvas_of
from transductor.results import write_atomically

if TYPE_CHECKING:
    from transductor.portraits.values import Portrait

_DOTS_PER_INCH: Final = 120
_MOST_BARS: Final = 24
_MOST_DECADES: Final = 1e30  # between the ends of an axis
_LETTER_COLOURS: Final = ("#1f5fbf", "#d1495b", "#35a06b", "#ee9b3a", "#7b52ab", "#35b0ab")
_MARKERS: Final = "osD^vP"


def portrait_figure(portrait: Portrait, path: str | Path) -> Path:
    """Draw trajectory, eigenvalues, leak, drift, and the learned machine beside the target; returns the file.

    Args:
        portrait: What ``transductor.portraits.portrait`` or ``read_portrait`` returned.
        path: File to write; the suffix .png, .svg or .pdf is the format.
    """
    if Path(path).suffix.lower() not in (".png", ".svg", ".pdf"):
        raise ValueError(f"path must end in .png, .svg or .pdf; got {str(path)!r}")
    with matplotlib.rc_context(READABLE):
        return write_atomically(path, _rendered(_figure(portrait), Path(path).suffix.lower()[1:]))


def _rendered(figure: Figure, kind: str) -> bytes:
    """Return the content of the file; 256 colours are enough for a picture of few, and take a third of the bytes."""
    buffer = io.BytesIO()
    if kind == "png":
        canvas = canvas_of(figure, _DOTS_PER_INCH)
        canvas.draw()
        picture = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
        picture.quantize(256, dither=Image.Dither.NONE).save(buffer, format=kind, optimize=True)
    else:
        figure.savefig(buffer, format=kind, dpi=_DOTS_PER_INCH)
    return buffer.getvalue()


def _figure(portrait: Portrait) -> Figure:
    figure = Figure(figsize=(15, 9.6), layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12))
    panels = figure.subplot_mosaic([["trajectory", "eigenvalues", "leak"], ["drift", "learned", "target"]])
    _trajectory(panels["trajectory"], portrait)
    _eigenvalues(panels["eigenvalues"], portrait)
    _leak(panels["leak"], portrait)
    _drift(panels["drift"], portrait)
    _learned(panels["learned"], portrait)
    if portrait.target is not None:
        panels["target"].set_title(f"the target: {_count(portrait.target.shown)}")
        draw_machine(panels["target"], portrait.target, portrait.letters)
    elif portrait.learned is not None:
        panels["target"].set_title("its successors")
        draw_table(panels["target"], portrait.learned, portrait.letters)
    else:
        panels["target"].set_axis_off()
    figure.suptitle(portrait.title + (f"\n{portrait.summary}" if portrait.summary else ""))
    return figure


def _count(states: int) -> str:
    return "1 state" if states == 1 else f"{states} states"


def _trajectory(axes: Axes, portrait: Portrait) -> None:
    trajectory = portrait.trajectory
    kept = [time for time, point in enumerate(trajectory.points) if point is not None]
    xs, ys = ([trajectory.points[time][axis] for time in kept] for axis in (0, 1))  # type: ignore[index]
    axes.plot(xs[:40], ys[:40], color="0.8", lw=0.8, zorder=1)
    if trajectory.states is None:
        axes.scatter(xs, ys, c=kept, cmap="viridis", s=22, zorder=2)
        coloured = "coloured by time"
    else:
        machine = portrait.learned or portrait.target
        colours = state_colours(0 if machine is None else machine.states)
        point_colours = [colours[trajectory.states[time]] for time in kept]
        axes.scatter(xs, ys, color=point_colours, s=22, alpha=0.75, lw=0, zorder=2)
        coloured = "coloured by state"
    if trajectory.centres:
        across, up = zip(*trajectory.centres, strict=True)
        axes.scatter(across, up, s=150, facecolors="none", edgecolors="black", lw=1.5, zorder=3)
    axes.set_title(f"a random word of {len(trajectory.word)} letters,\n{coloured}")
    axes.set_xlabel(f"principal coordinates, {_share(trajectory.share)} of the variance")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.margins(0.12)
    axes.set_aspect("equal", adjustable="datalim")


def _share(share: float) -> str:
    return f"{share:.0%}" if share < 0.995 or share >= 0.99999 else "over 99%"


def _eigenvalues(axes: Axes, portrait: Portrait) -> None:
    axes.add_patch(Circle((0, 0), 1, fill=False, color="0.6", lw=1.2))
    axes.axhline(0, color="0.9", lw=1, zorder=0)
    axes.axvline(0, color="0.9", lw=1, zorder=0)
    largest = max((math.hypot(*value) for row in portrait.eigenvalues for value in row), default=0.0)
    few = len(portrait.eigenvalues) <= len(_LETTER_COLOURS)
    for letter, values in enumerate(portrait.eigenvalues):
        xs, ys = zip(*values, strict=True)
        look: Any = {"color": _LETTER_COLOURS[letter], "marker": _MARKERS[letter]} if few else {"color": "#1f5fbf"}
        axes.scatter(
            xs, ys, s=95 - 12 * letter if few else 18, facecolors="none" if few else None, lw=2 if few else 0,
            alpha=1 if few else 0.35, label=short([portrait.letters[letter]]), zorder=2, **look,
        )  # fmt: skip
    reach = 1.15 * max(1.0, largest)
    axes.set_xlim(-reach, reach)
    axes.set_ylim(-reach, reach)
    axes.set_aspect("equal")
    axes.set_title(f"eigenvalues of every letter's matrix,\nthe largest of modulus {_beside_one(largest)}")
    axes.set_xlabel("real")
    axes.set_ylabel("imaginary")
    if few:
        axes.legend(title="letter", loc="center left", bbox_to_anchor=(1, 0.5), handletextpad=0.2, frameon=False)


def _beside_one(value: float) -> str:
    off = value - 1
    if abs(off) > 0.01:
        return f"{value:.3g}"
    return "1" if abs(off) < 1e-12 else f"1 {'+' if off > 0 else '−'} {abs(off):.1e}"


def _leak(axes: Axes, portrait: Portrait) -> None:
    axes.set_title("leak per letter: how far\none step misses the next state")
    if portrait.leak is None or portrait.drift is None:
        _nothing(axes, "no machine, no leak")
        return
    known = [letter for letter, leak in enumerate(portrait.leak.worst) if leak is not None]
    worst = {letter: portrait.leak.worst[letter] or 0.0 for letter in known}
    mean = {letter: portrait.leak.mean[letter] or 0.0 for letter in known}
    if not any(worst.values()):
        _nothing(axes, "0 for every letter:\nthe matrices are the machine")
        return
    drawn = sorted(sorted(known, key=lambda letter: -worst[letter])[:_MOST_BARS])
    places = range(len(drawn))
    axes.bar(places, [worst[letter] for letter in drawn], color="#9db8e0", width=0.7, label="worst state")
    axes.bar(places, [mean[letter] for letter in drawn], color="#1f5fbf", width=0.4, label="mean")
    axes.axhline(portrait.drift.limit, color="#d1495b", lw=1.5, ls="--", label="half-way to another state")
    axes.set_yscale("log")
    least = min(value for value in (*worst.values(), *mean.values()) if value)
    most = max(portrait.drift.limit, *worst.values())
    floor = max(least / 4, most / _MOST_DECADES)
    axes.set_ylim(floor, most * (most / floor) ** 0.6)  # room for the legend
    every = max(1, math.ceil(len(drawn) / 12))
    axes.set_xticks([*places][::every], [short([portrait.letters[letter]]) for letter in drawn][::every])
    axes.set_xlabel("letter" if len(drawn) == len(known) else f"letter: the worst {len(drawn)} of {len(known)}")
    axes.set_ylabel("distance, typical state = 1")
    axes.set_xlim(-0.9, len(drawn) - 0.1)
    axes.legend(frameon=False, loc="upper left").set_in_layout(False)


def _drift(axes: Axes, portrait: Portrait) -> None:
    axes.set_title("drift against length, random words\nand powers of a letter")
    drift = portrait.drift
    if drift is None:
        _nothing(axes, "no machine, no drift")
        return
    curves = [drift.median, drift.worst, *drift.powers.values()]
    positive = [value for curve in curves for value in curve if value]
    if not positive:
        _nothing(axes, f"0 at every length up to {drift.lengths[-1]:,}:\nthe state is exact")
        return
    # The first letters may be much nearer, or exact; the axis is chosen for the later ones.
    later = [value for curve in curves for value in curve[len(curve) // 4 :] if value]
    most = max(*positive, drift.limit)
    floor = max(min(later or positive) / 2, most / _MOST_DECADES)

    def plot(values: Sequence[float | None], **look: Any) -> None:
        axes.plot(drift.lengths, [math.nan if value is None else max(value, floor / 9) for value in values], **look)

    plot(drift.worst, color="0.6", lw=1.8, ls=":", label=f"worst of {drift.words} words")
    plot(drift.median, color="black", lw=2.2, label="median word")
    for place, (letter, values) in enumerate(drift.powers.items()):
        plot(values, color=_LETTER_COLOURS[place], lw=1.8, label=f"{short([portrait.letters[int(letter)]])}ⁿ")
    axes.axhline(drift.limit, color="#d1495b", lw=1.5, ls="--", label="half-way")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(floor, most * (most / floor) ** 0.8)  # room for the legend
    axes.set_xlabel(f"letters read ({drift.precision})")
    axes.set_ylabel("distance, typical state = 1")
    axes.legend(frameon=False, loc="upper left", ncols=2, columnspacing=1.2).set_in_layout(False)


def _learned(axes: Axes, portrait: Portrait) -> None:
    if portrait.learned is None:
        axes.set_title("no machine is near")
        _nothing(axes, "\n".join(textwrap.wrap(portrait.refusal, 40)), fontsize=12.5)
        return
    verdict, word = "", portrait.separating_word
    if portrait.compared and word is None:
        verdict = ",\nwith the target's labels on " + (
            "words like those given" if portrait.words_like_given else "every word"
        )
    elif word is not None:
        verdict = f";\nother than the target after {_word(word, portrait.letters)}"
    axes.set_title(f"the learned machine: {_count(portrait.learned.shown)}{verdict}")
    draw_machine(axes, portrait.learned, portrait.letters)


def _word(word: Sequence[int], letters: Sequence[str]) -> str:
    spelled = " ".join(letters[letter] for letter in word)
    return spelled if len(spelled) <= 16 else f"{spelled[:12]} … ({len(word)} letters)"


def _nothing(axes: Axes, why: str, fontsize: float = 14) -> None:
    axes.set_axis_off()
    axes.text(
        0.5, 0.5, why, ha="center", va="center", transform=axes.transAxes, color="0.35", fontsize=fontsize,
        parse_math=False,
    )  # fmt: skip
