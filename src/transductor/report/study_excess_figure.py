"""The figure of ``tracking`` and ``tracking_wide``: excess over Bayes by length, a panel for each automaton."""

from __future__ import annotations

import math
from textwrap import fill
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from transductor.report.study_cells import counted, random_lengths
from transductor.report.study_excess import GOAL, by_process, process_label
from transductor.report.study_maps import fill_band
from transductor.report.study_records import ArmRuns, Series, StudyRecords, Tally, at
from transductor.report.style import MARKERS, colour, label

_LEAST: Final = 2e-4
_LARGEST: Final = 10.0
_COLUMNS: Final = 2


def excess_figure(study: StudyRecords) -> Figure:
    """Draw the mean and the range of the seeds; what is larger than the frame leaves it at the top."""
    processes = by_process(study)
    columns = min(_COLUMNS, len(processes))
    rows = math.ceil(len(processes) / columns)
    figure = Figure(figsize=(6.2 * columns, 3.7 * rows + 1.9), layout="constrained")
    axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flatten()
    lengths = random_lengths(*map(Series, study.arms))
    for axis, (process, arms) in zip(axes, processes.items(), strict=False):
        for tracker, arm in arms.items():
            _line(axis, tracker, arm, lengths)
        axis.set_title(process_label(process))
        _frame(axis, lengths, max(arm.trained_length for arm in study.arms))
    for place, axis in enumerate(axes[: len(processes)]):
        if place % columns == 0:
            axis.set_ylabel("loss beyond Bayes'")
        if place + columns >= len(processes):
            axis.set_xlabel("length of the word")
            axis.tick_params(labelbottom=True)
    for axis in axes[len(processes) :]:
        axis.remove()
    _legend(figure, study, 2 * columns)
    figure.suptitle(fill(study.question, 50 * columns))
    return figure


def _line(axis: Axes, tracker: str, arm: ArmRuns, lengths: list[int]) -> None:
    tallies = {n: tally for n in lengths if (tally := Series(arm).tally(at(n, "excess"))).values}
    if not tallies:
        return
    # Far outside the frame, but numbers that can be drawn.
    drawn = {n: Tally({seed: min(value, 1e30) for seed, value in t.values.items()}, {}) for n, t in tallies.items()}
    axis.plot(list(drawn), [tally.mean() for tally in drawn.values()], **_look(tracker))
    fill_band(axis, drawn, colour(tracker), zorder=2)


def _look(tracker: str) -> dict[str, Any]:
    return {
        "color": colour(tracker),
        "marker": MARKERS.get(tracker, "o"),
        "ms": 8,
        "lw": 3 if tracker == "filter" else 2,
        "markeredgecolor": "white",
        "markeredgewidth": 0.8,
        "zorder": 5 if tracker == "filter" else 4,
    }


def _frame(axis: Axes, lengths: list[int], trained: int) -> None:
    axis.set(xscale="log", yscale="log", ylim=(_LEAST, _LARGEST))
    axis.set_xlim(min(lengths) * 0.75, max(lengths) * 1.3)
    axis.axvspan(min(lengths) * 0.5, trained, color="0.9", zorder=0, lw=0)
    axis.axhline(GOAL, color="0.35", lw=1.6, ls=(0, (4, 2)), zorder=1)
    axis.annotate(
        "Bayes: 0",
        xy=(0.5, 0.0),
        xytext=(0.5, 0.05),
        xycoords="axes fraction",
        ha="center",
        fontsize=12,
        color="0.35",
        arrowprops={"arrowstyle": "->", "color": "0.35"},
    )
    axis.xaxis.set_major_locator(FixedLocator(lengths))
    axis.yaxis.set_major_locator(FixedLocator([10.0**power for power in range(-3, 2)]))
    for scale in (axis.xaxis, axis.yaxis):
        scale.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:,g}%"))


def _legend(figure: Figure, study: StudyRecords, columns: int) -> None:
    """Draw one legend; models with fewer seeds than the study somewhere say so."""
    judged: dict[str, list[int]] = {}
    for arms in by_process(study).values():
        for tracker, arm in arms.items():
            judged.setdefault(tracker, []).append(sum(1 for _ in Series(arm).answers()))
    handles: list[Any] = []
    for tracker, counts in judged.items():
        few = f" ({min(counts)} of {counted(len(study.seeds))})" if min(counts) < len(study.seeds) else ""
        handles.append(Line2D([], [], label=f"{label(tracker)}{few}", **_look(tracker)))
    handles.append(Line2D([], [], color="0.35", lw=1.6, ls=(0, (4, 2)), label=f"the goal, {GOAL:.0%}"))
    trained = max(arm.trained_length for arm in study.arms)
    handles.append(Patch(color="0.9", label=f"trained to {trained:,}"))
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, handlelength=2.5)
