"""Figures of many tasks or arms at once: a map of accuracies by task and length, and small panels of dots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator, PercentFormatter

from transductor.report.study_cells import adversarial_lengths, random_lengths
from transductor.report.study_records import ArmRuns, Pick, Series, StudyRecords, Tally, at, worst_kind
from transductor.report.study_tracking import ablation_groups
from transductor.report.style import colour, label
from transductor.study_names import INJECTIONS

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
    """Draw learned beside hardened: tasks by lengths, and the worst input kind at the longest."""
    judged = sorted({length for arm in study.arms for length in _random_lengths(arm)})
    columns = [
        lengths for column in range(len(_BREAKS) + 1) if (lengths := [n for n in judged if _column(n) == column])
    ]
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
            if adversarial := adversarial_lengths(Series(arm)):
                _square(axis, len(columns) + 0.15, row, Series(arm, form).tally(worst_kind(max(adversarial))))
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
    return random_lengths(Series(arm), Series(arm, "hardened"))


def _column(length: int) -> int:
    return sum(length > edge for edge in _BREAKS)


def _square(axis: Axes, column: float, row: int, tally: Tally) -> None:
    """Draw a square coloured by the worst seed; how many seeds the mean has is written below it if some are missing."""
    style: dict[str, Any] = {"facecolor": "white", "edgecolor": "0.6", "hatch": "////", "lw": 0}
    words, tone = "–", "black"
    seeds = len(tally.values) + len(tally.absent)
    if tally.values:
        mean, least = tally.mean(), tally.least
        _, face, tone, _ = next(one for one in _CLASSES if least >= one[0] and (one[0] < 1 or not tally.absent))
        style = {"facecolor": face, "lw": 0}
        words = "100" if mean == 1 else f"{min(100 * mean, 99.9):.1f}"
        if tally.absent:
            words += f"\n{len(tally.values)} of {seeds}"
    elif not seeds:
        return
    axis.add_patch(Rectangle((column - 0.48, row - 0.45), 0.96, 0.9, **style))
    backdrop = {"facecolor": "white", "lw": 0, "pad": 1.5} if not tally.values else None
    words = f"0 of {seeds}" if not tally.values else words
    size = 10 if tally.values and tally.absent else 11.5
    placing: dict[str, Any] = {"ha": "center", "va": "center_baseline", "linespacing": 0.95}
    axis.text(column, row, words, color=tone, fontsize=size, bbox=backdrop, **placing)


def ablations_figure(study: StudyRecords) -> Figure:
    """Draw families on top, one panel for each task; the other groups below, three in a row."""
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


def injections_figure(study: StudyRecords) -> Figure:
    """Draw a panel for each task: accuracy by length with a line for each way in, on random and on the worst inputs."""
    groups = ablation_groups(study)
    tones = dict(zip(INJECTIONS, (colour("transductor_ours"), colour("transductor_paper"), "0.4"), strict=True))
    figure = Figure(figsize=(4.7 * len(groups), 5.6), layout="constrained")
    axes = figure.subplots(1, len(groups), sharey=True, squeeze=False)[0]
    for axis, (title, arms) in zip(axes, groups.items(), strict=True):
        for way, arm in arms.items():
            series, tone = Series(arm), tones[way]
            random = {length: at(length) for length in random_lengths(series)}
            hardest = {length: worst_kind(length) for length in adversarial_lengths(series)}
            for picks, style in ((random, "o-"), (hardest, "v--")):
                tallies = {length: tally for length, pick in picks.items() if (tally := series.tally(pick)).values}
                means = [tally.mean() for tally in tallies.values()]
                axis.plot(list(tallies), means, style, color=tone, lw=2.4, ms=8, mec="white", zorder=3, clip_on=False)
                if picks is random:
                    fill_band(axis, tallies, tone)
        first = next(iter(arms.values()))
        axis.axhline(first.chance, color="0.45", lw=1.4, ls=":", zorder=1)
        axis.axvline(first.trained_length, color="0.8", lw=1.2, zorder=0)
        axis.set_xscale("log")
        axis.set_xticks(list(random), list(random))
        axis.xaxis.set_minor_locator(NullLocator())
        axis.yaxis.set_major_formatter(PercentFormatter(1))
        axis.set(ylim=(0, 1.04), xlabel=f"length of the input (trained to {first.trained_length})")
        axis.set_title(title.removeprefix("Where the state enters on "))
    axes[0].set_ylabel("accuracy, every position")
    handles: list[Any] = [
        Line2D([], [], color=tone, lw=2.4, label=f"{'no' if way == 'none' else way} injection")
        for way, tone in tones.items()
    ]
    for style, marker, words in (
        ("-", "o", "random inputs, mean and range of the seeds"),
        ("--", "v", "worst input kind"),
    ):
        handles.append(Line2D([], [], color="0.3", ls=style, marker=marker, lw=1.8, ms=7, label=words))
    handles.append(Line2D([], [], color="0.45", lw=1.4, ls=":", label="chance"))
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    figure.suptitle(study.question)
    return figure


def _dots(axis: Axes, arms: Mapping[str, ArmRuns]) -> None:
    """Draw a row for every arm: the mean, with a bar from the least to the largest."""
    names = list(arms)
    for row, arm in enumerate(arms.values()):
        series = Series(arm)
        random, adversarial = random_lengths(series), adversarial_lengths(series)
        trained = [length for length in random if length <= arm.trained_length]
        blue, red = colour("transductor_ours"), colour("transformer_learned")
        asked: list[tuple[Pick, str, str, str, float]] = []
        if trained:
            asked.append((at(max(trained)), "o", "white", blue, -0.22))
        if random:
            asked.append((at(max(random)), "o", blue, blue, 0.0))
        if adversarial:
            asked.append((worst_kind(max(adversarial)), "v", red, red, 0.22))
        for pick, marker, face, edge, shift in asked:
            tally = series.tally(pick)
            if tally.values:
                axis.plot([tally.least, tally.largest], [row + shift] * 2, color=edge, lw=2.2, alpha=0.45, zorder=2)
                axis.plot(tally.mean(), row + shift, marker, ms=8, mfc=face, mec=edge, mew=1.6, zorder=3, clip_on=False)
        judged, seeds = sum(1 for _ in series.answers()), len(arm.runs) + len(arm.absent)
        if judged < seeds:
            names[row] += f" ({judged}/{seeds})"
    for level in {arm.chance for arm in arms.values()}:
        axis.axvline(level, color="0.45", lw=1.4, ls=":", zorder=1)
    axis.set_yticks(range(len(names)), names)
    axis.set(xlim=(0, 1.03), ylim=(len(names) - 0.5, -0.5), xlabel="accuracy")
    axis.xaxis.set_major_formatter(PercentFormatter(1))
    axis.set_xticks([0, 0.5, 1])
    axis.tick_params(labelsize=11.5)
    axis.grid(axis="y", color="0.92", zorder=0)


def _widths(axis: Axes, arms: Mapping[str, ArmRuns]) -> None:
    """Draw accuracy by width of the frozen features, a line for each length, and the learned state as a star."""
    by_name = {name: Series(arm) for name, arm in arms.items()}
    lengths = random_lengths(*by_name.values())
    tones = dict(zip(lengths, _shades(len(lengths)), strict=True))
    for length, tone in tones.items():
        frozen = {
            int(name.split()[-1]): tally
            for name, one in by_name.items()
            if name.startswith("frozen") and (tally := one.tally(at(length))).values
        }
        if frozen:
            axis.plot(list(frozen), [tally.mean() for tally in frozen.values()], "-o", color=tone, lw=2.2, ms=6)
            fill_band(axis, frozen, tone)
        for name, one in by_name.items():
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


def fill_band(axis: Axes, tallies: Mapping[int, Tally], tone: str, **options: Any) -> None:
    """Fill the band from the least to the largest number of each tally."""
    least, largest = [tally.least for tally in tallies.values()], [tally.largest for tally in tallies.values()]
    axis.fill_between(list(tallies), least, largest, color=tone, alpha=0.16, lw=0, **options)


def _shades(count: int) -> Sequence[str]:
    """Return one colour per length, lighter for shorter ones."""
    shades = ("#7aa6e0", "#1f5fbf", "#12224f")
    return [shades[min(place, len(shades) - 1)] for place in range(count)]
