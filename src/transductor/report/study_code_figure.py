"""The figure of studies of source code: differences, bits by position, choices by distance, quality by throughput."""

from __future__ import annotations

from textwrap import fill
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from transductor.report.study_cells import arm_label
from transductor.report.study_code import (
    DISTANCES,
    code_arms,
    entry_of,
    lengths_of_files,
    paired,
    reference_of,
    right_share,
)
from transductor.report.study_records import ArmRuns, StudyRecords
from transductor.report.style import SPARE

_FEW: Final = 20  # choices, below which a share says nothing
_LOOKS: Final = {
    "transformer": ("#d1495b", "^"),
    "learned": ("#35b0ab", "s"),
    "forgetting": ("#1f5fbf", "o"),
    "universal": ("#7b52ab", "D"),
    "filter": ("#6b6b6b", "v"),
    "frozen": ("#12224f", "*"),
    "placebo": ("#e58fb1", "X"),
    "lstm": ("#8c6d46", "P"),
    "before": ("#8c6d46", "<"),
    "linear": ("#c9a15b", "<"),
    "fast": ("#35b0ab", "s"),
    "slow": ("#2a8782", "s"),
    "slower": ("#145653", "s"),
    "half": ("#7fb069", "o"),
    "four": ("#6d9dd1", "o"),
    "stochastic": ("#a97bd1", "D"),
}


def code_figure(study: StudyRecords) -> Figure:
    """Draw what the tables hold; by position and by distance only models with a window."""
    arms = code_arms(study)
    figure = Figure(figsize=(13, 9.6), layout="constrained")
    axes = figure.subplots(2, 2)
    _differences(axes[0, 0], study, arms)
    drawn = [arm for arm in arms if not arm.name.endswith(("_full", "_long", "_30m"))]
    _by_position(axes[0, 1], drawn)
    _by_distance(axes[1, 0], drawn)
    _by_throughput(axes[1, 1], arms)
    handles = [Line2D([], [], label=arm_label(arm), **_look(arm)) for arm in drawn]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle(fill(study.question, 90))
    return figure


def _look(arm: ArmRuns) -> dict[str, Any]:
    colour, marker = _LOOKS.get(arm.name.partition("_")[0], (SPARE[sum(map(ord, arm.name)) % len(SPARE)], "o"))
    return {"color": colour, "marker": marker, "ms": 7, "lw": 2}


def _differences(axis: Axes, study: StudyRecords, arms: list[ArmRuns]) -> None:
    """Draw every arm's paired difference to its Transformer, with its interval."""
    shown = [arm for arm in arms if reference_of(study, arm) is not None]
    for place, arm in enumerate(reversed(shown)):
        other = reference_of(study, arm)
        assert other is not None
        measured = paired(arm, other, lengths_of_files(arm)[0])
        if measured is None:
            continue
        mean, low, high, _ = measured
        look = _look(arm)
        axis.plot([low, high], [place, place], color=look["color"], lw=3)
        axis.plot([mean], [place], color=look["color"], marker=look["marker"], ms=9)
    axis.set_yticks(range(len(shown)), [arm_label(arm) for arm in reversed(shown)], fontsize=10)
    axis.axvline(0, color="0.4", lw=1.4, ls=(0, (4, 2)))
    axis.set_xlabel("bits a byte more than its Transformer, 95 %")


def _by_position(axis: Axes, arms: list[ArmRuns]) -> None:
    trained = max((arm.trained_length for arm in arms), default=1)
    for arm in arms:
        length = lengths_of_files(arm)[-1]
        entries = [entry for run in arm.runs if (entry := entry_of(arm, run.seed, length)) is not None]
        ends = [end for end, _ in entries[0]["curve"]]
        means = [sum(entry["curve"][place][1] for entry in entries) / len(entries) for place in range(len(ends))]
        axis.plot(ends, means, **_look(arm))
    axis.axvspan(axis.get_xlim()[0] if arms else 0, trained, color="0.9", zorder=0, lw=0)
    axis.set(xscale="log", xlabel="position in the file (grey: trained)", ylabel="bits a byte")
    axis.set_title("attention in a window")


def _by_distance(axis: Axes, arms: list[ArmRuns]) -> None:
    for arm in arms:
        length = lengths_of_files(arm)[-1]
        counts = _counts(arm, length)
        points = [(part, right_share(arm, "bracket", length, part)) for part in range(len(DISTANCES))]
        points = [(part, tally) for part, tally in points if tally.values and counts[part] >= _FEW]
        axis.plot([part for part, _ in points], [tally.mean() for _, tally in points], **_look(arm))
    axis.set_xticks(range(len(DISTANCES)), DISTANCES)
    axis.axvline(2.5, color="0.4", lw=1.4, ls=(0, (4, 2)))
    axis.annotate("window", xy=(2.5, 0.02), xycoords=("data", "axes fraction"), ha="right", fontsize=11)
    axis.set(xlabel="bytes back to the bracket that was opened", ylabel="right closing bracket")


def _counts(arm: ArmRuns, length: int) -> list[int]:
    """Return how many closing brackets there were in each bin."""
    for run in arm.runs:
        if (entry := entry_of(arm, run.seed, length)) is not None and "bracket" in entry.get("choices", {}):
            return [count for count, _ in entry["choices"]["bracket"]]
    return [0] * len(DISTANCES)


def _by_throughput(axis: Axes, arms: list[ArmRuns]) -> None:
    for arm in arms:
        points = []
        for run in arm.runs:
            entry, costs = entry_of(arm, run.seed, lengths_of_files(arm)[0]), run.record.measurements.get("costs")
            if entry is not None and costs:
                points.append((costs["tokens_per_second"], entry["bits"]))
        filled = "none" if arm.name.endswith("_full") else _look(arm)["color"]
        if points:
            speeds, bits = zip(*points, strict=True)
            look = _look(arm) | {"lw": 0, "markerfacecolor": filled}
            axis.plot([max(speeds)], [sum(bits) / len(bits)], **look)
    axis.set(xlabel="bytes a second in training (hollow: full attention)", ylabel="bits a byte")
