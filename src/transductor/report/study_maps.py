"""Figures of many tasks or arms at once: a map of who is right where, and small panels of dots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator, PercentFormatter

from transductor.report.study_cells import lengths_of
from transductor.report.study_records import ArmRuns, Pick, Series, StudyRecords, Tally, at, is_family, worst_family
from transductor.report.study_tracking import ablation_groups
from transductor.report.style import colour, label

# Least accuracy of a class, its colour and the colour of words on it.
_CLASSES: Final = (
    (1.0, "#12224f", "white", "100%, every seed"),
    (0.99, "#1f5fbf", "white", "worst seed ≥ 99%"),
    (0.9, "#7aa6e0", "black", "worst seed ≥ 90%"),
    (0.5, "#f3d9a4", "black", "worst seed ≥ 50%"),
    (0.0, "#e08b7a", "black", "worst seed < 50%"),
)
_IN_A_ROW: Final = 3  # groups of arms
_BREAKS: Final = (100, 300, 2000, 20_000)  # lengths between two of these share a column


def state_tracking_figure(study: StudyRecords) -> Figure:
    """Learned beside hardened: tasks by lengths, and the worst adversarial family at the longest."""
    found = sorted({length for arm in study.arms for length in _random_lengths(arm)})
    columns = [lengths for column in range(len(_BREAKS) + 1) if (lengths := [n for n in found if _column(n) == column])]
    headings = [f"{low[0]:,}" if low[0] == low[-1] else f"{low[0]:,}–\n{low[-1]:,}" for low in columns]
    if columns and columns[0][-1] <= max(arm.trained_length for arm in study.arms):
        headings[0] = "trained:\n" + headings[0].replace("\n", "")
    headings.append("worst\nfamily,\nlongest")
    height = 0.44 * len(study.arms) + 2.6
    figure = Figure(figsize=(13, height), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for axis, form in zip(axes, ("learned", "hardened"), strict=True):
        for row, arm in enumerate(study.arms):
            for column, lengths in enumerate(columns):
                asked = [length for length in _random_lengths(arm) if length in lengths]
                if asked:
                    _square(axis, column, row, Series(arm, form).tally(at(max(asked))))
            adversarial = lengths_of([Series(arm)], given=lambda name: is_family({"input": name}))
            if adversarial:
                _square(axis, len(columns) + 0.15, row, Series(arm, form).tally(worst_family(max(adversarial))))
        axis.set(xlim=(-0.5, len(columns) + 0.68), ylim=(len(study.arms) - 0.5, -0.5))
        axis.set_xticks([*range(len(columns)), len(columns) + 0.15], headings)
        axis.xaxis.tick_top()
        axis.tick_params(length=0, labelsize=12)
        axis.set_title(f"ours, {form}", pad=10)
        axis.spines[:].set_visible(False)
    axes[0].set_yticks(range(len(study.arms)), [f"{label(arm.name)}  ({arm.chance:.0%})" for arm in study.arms])
    handles = [Patch(facecolor=tone, label=words) for _, tone, _, words in _CLASSES]
    handles.append(Patch(facecolor="white", edgecolor="0.6", hatch="////", label="no seed: refused or failed"))
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    trained = sorted({arm.trained_length for arm in study.arms})
    figure.suptitle(
        f"{study.question}\nmean accuracy over seeds, in percent, at every position of inputs of that length; "
        f"trained to {' or '.join(map(str, trained))}; (chance)",
        fontsize=13,
    )
    return figure


def _random_lengths(arm: ArmRuns) -> list[int]:
    return lengths_of([Series(arm), Series(arm, "hardened")], given="random".__eq__)


def _column(length: int) -> int:
    return sum(length > edge for edge in _BREAKS)


def _square(axis: Axes, column: float, row: int, tally: Tally) -> None:
    """Coloured by the worst seed; a seed that is missing from the mean is counted below it."""
    style: dict[str, Any] = {"facecolor": "white", "edgecolor": "0.6", "hatch": "////", "lw": 0}
    words, tone = "–", "black"
    everyone = len(tally.values) + len(tally.absent)
    if tally.values:
        mean, least = tally.mean(), min(tally.values.values())
        _, face, tone, _ = next(one for one in _CLASSES if least >= one[0] and (one[0] < 1 or not tally.absent))
        style = {"facecolor": face, "lw": 0}
        words = "100" if mean == 1 else f"{min(100 * mean, 99.9):.1f}"
        if tally.absent:
            words += f"\n{len(tally.values)} of {everyone}"
    elif not everyone:
        return
    axis.add_patch(Rectangle((column - 0.48, row - 0.45), 0.96, 0.9, **style))
    backdrop = {"facecolor": "white", "lw": 0, "pad": 1.5} if not tally.values else None
    words = f"0 of {everyone}" if not tally.values else words
    size = 10 if tally.values and tally.absent else 11.5
    axis.text(
        column,
        row,
        words,
        ha="center",
        va="center_baseline",
        color=tone,
        fontsize=size,
        bbox=backdrop,
        linespacing=0.95,
    )


def ablations_figure(study: StudyRecords) -> Figure:
    """Families on top, one panel for each task; the other groups below, three in a row."""
    groups = ablation_groups(study)
    families = {title: arms for title, arms in groups.items() if title.startswith("Families on")}
    others = {title: arms for title, arms in groups.items() if title not in families}
    rows = [families] if families else []
    titles = list(others)
    for begin in range(0, len(titles), _IN_A_ROW):
        rows.append({title: others[title] for title in titles[begin : begin + _IN_A_ROW]})
    heights = [0.36 * max(len(arms) for arms in row.values()) + 1.2 for row in rows]
    figure = Figure(figsize=(14, sum(heights) + 1.6), layout="constrained")
    bands = figure.subfigures(len(rows), 1, height_ratios=heights, squeeze=False)[:, 0]
    for band, row in zip(bands, rows, strict=True):
        axes = band.subplots(1, len(row) if row is families else _IN_A_ROW, squeeze=False, sharey=row is families)[0]
        for axis in axes[len(row) :]:
            axis.set_axis_off()
        for axis, (title, arms) in zip(axes, row.items(), strict=False):
            if title.startswith("Frozen"):
                _widths(axis, arms)
            else:
                _dots(axis, arms)
            first = next(iter(arms.values()))
            axis.set_title(f"{fill(title, 25)}\n(trained to {first.trained_length})", fontsize=12.5)
    handles = [
        Line2D([], [], color=colour("transductor_ours"), marker=marker, ls="", ms=9, mfc=face, label=words)
        for marker, face, words in (
            ("o", "white", "random, trained length"),
            ("o", colour("transductor_ours"), "random, longest"),
        )
    ]
    worst = colour("transformer_learned")
    handles.append(Line2D([], [], color=worst, marker="v", ls="", ms=9, label="worst adversarial family, longest"))
    handles.append(Line2D([], [], color="0.45", lw=1.4, ls=":", label="chance"))
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle(study.question)
    return figure


def _dots(axis: Axes, arms: Mapping[str, ArmRuns]) -> None:
    """Every arm a row: mean with a bar from the least to the largest."""
    names = list(arms)
    for row, arm in enumerate(arms.values()):
        series = Series(arm)
        random = lengths_of([series], given="random".__eq__)
        adversarial = lengths_of([series], given=lambda name: is_family({"input": name}))
        trained = [length for length in random if length <= arm.trained_length]
        blue, red = colour("transductor_ours"), colour("transformer_learned")
        asked: list[tuple[Pick, str, str, str, float]] = []
        if trained:
            asked.append((at(max(trained)), "o", "white", blue, -0.22))
        if random:
            asked.append((at(max(random)), "o", blue, blue, 0.0))
        if adversarial:
            asked.append((worst_family(max(adversarial)), "v", red, red, 0.22))
        for pick, marker, face, edge, shift in asked:
            tally = series.tally(pick)
            if tally.values:
                least, largest = min(tally.values.values()), max(tally.values.values())
                axis.plot([least, largest], [row + shift] * 2, color=edge, lw=2.2, alpha=0.45, zorder=2)
                axis.plot(tally.mean(), row + shift, marker, ms=8, mfc=face, mec=edge, mew=1.6, zorder=3, clip_on=False)
        judged, everyone = sum(1 for _ in series.answers()), len(arm.runs) + len(arm.absent)
        if judged < everyone:
            names[row] += f" ({judged}/{everyone})"
    for level in {arm.chance for arm in arms.values()}:
        axis.axvline(level, color="0.45", lw=1.4, ls=":", zorder=1)
    axis.set_yticks(range(len(names)), names)
    axis.set(xlim=(0, 1.03), ylim=(len(names) - 0.5, -0.5), xlabel="accuracy")
    axis.xaxis.set_major_formatter(PercentFormatter(1))
    axis.set_xticks([0, 0.5, 1])
    axis.tick_params(labelsize=11.5)
    axis.grid(axis="y", color="0.92", zorder=0)


def _widths(axis: Axes, arms: Mapping[str, ArmRuns]) -> None:
    """Accuracy by width of the frozen features, a line for each length; the learned state as a star at its width."""
    found = {name: Series(arm) for name, arm in arms.items()}
    lengths = lengths_of(found.values(), given="random".__eq__)
    tones = dict(zip(lengths, _shades(len(lengths)), strict=True))
    for length, tone in tones.items():
        frozen = {
            int(name.split()[-1]): tally
            for name, one in found.items()
            if name.startswith("frozen") and (tally := one.tally(at(length))).values
        }
        if frozen:
            axis.plot(list(frozen), [tally.mean() for tally in frozen.values()], "-o", color=tone, lw=2.2, ms=6)
            axis.fill_between(
                list(frozen),
                [min(tally.values.values()) for tally in frozen.values()],
                [max(tally.values.values()) for tally in frozen.values()],
                color=tone,
                alpha=0.16,
                lw=0,
            )
        for name, one in found.items():
            tally = one.tally(at(length))
            if name.startswith("learned") and tally.values:
                axis.plot(int(name.split()[-1]), tally.mean(), "*", color=tone, ms=17, mec="white", zorder=4)
    handles: list[Any] = [Line2D([], [], color=tone, lw=2.2, label=f"length {n}") for n, tone in tones.items()]
    handles.append(Line2D([], [], color="0.3", marker="*", ls="", ms=13, label="learned"))
    axis.legend(handles=handles, fontsize=10.5, frameon=False, loc="best")
    for level in {arm.chance for arm in arms.values()}:
        axis.axhline(level, color="0.45", lw=1.4, ls=":", zorder=1)
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_locator(LogLocator(4))
    axis.yaxis.set_major_formatter(PercentFormatter(1))
    axis.set(ylim=(0, 1.06), xlabel="width of the state")
    axis.tick_params(labelsize=11.5)


def _shades(count: int) -> Sequence[str]:
    """Lighter is shorter."""
    shades = ("#7aa6e0", "#1f5fbf", "#12224f")
    return [shades[min(place, len(shades) - 1)] for place in range(count)]
