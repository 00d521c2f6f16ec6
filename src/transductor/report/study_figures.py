"""The figure of each study: readable at half size, with chance, trained lengths and min–max bands."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import matplotlib

matplotlib.use("Agg")
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator, PercentFormatter

from transductor.report.study_cells import by_digit_order, counted, inputs_of, lengths_of, model
from transductor.report.study_claims import CLAIMS
from transductor.report.study_code_figure import code_figure
from transductor.report.study_excess_figure import excess_figure
from transductor.report.study_maps import ablations_figure, fill_band, injections_figure, state_tracking_figure
from transductor.report.study_records import Pick, Series, StudyRecords, Tally, at, worst_kind
from transductor.report.style import MARKERS, READABLE, colour, label
from transductor.study_names import CODE_STUDIES

_LEAST_ERROR: Final = 1e-33  # below this, float64 cannot tell a squared error from zero
_LARGEST_ERROR: Final = 1e3


def study_figure(study: StudyRecords) -> Figure:
    """Draw the figure of a study from the runs there are; any study has a figure without being named."""
    draw: Callable[[StudyRecords], Figure] = {
        "long_addition": _long_addition,
        "state_tracking": state_tracking_figure,
        "ablations": ablations_figure,
        "deep_injection": injections_figure,
        **dict.fromkeys(CODE_STUDIES, code_figure),
        "tracking": excess_figure,
        "tracking_wide": excess_figure,
        "tracking_more": excess_figure,
        "tracking_inside": excess_figure,
        "hidden_swaps": excess_figure,
    }.get(study.name, _values if study.of_numbers else _by_input)
    with matplotlib.rc_context(READABLE):
        if not any(True for series in study.series() for _ in series.answers()):
            figure = Figure(figsize=(8, 2))
            figure.text(0.5, 0.5, f"{study.name}: no run has been judged", ha="center", va="center")
            return figure
        return draw(study)


def _by_input(study: StudyRecords) -> Figure:
    series = study.series()
    names = inputs_of(series)
    columns = min(2, len(names))
    rows = math.ceil(len(names) / columns)
    figure = Figure(figsize=(5.6 * columns, 3.1 * rows + 1.9), layout="constrained")
    axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flatten()
    for axis, name in zip(axes, names, strict=False):
        lengths = lengths_of(series, kinds=name.__eq__)
        _against_length(axis, series, {length: at(length, kind=name) for length in lengths})
        axis.set_title({"random": "random, fair coins"}.get(name, name))
        _mark(axis, study)
    for axis in axes[len(names) :]:
        axis.remove()
    for place, axis in enumerate(axes[: len(names)]):
        if place % columns == 0:
            axis.set_ylabel("accuracy,\nevery position")
        if place + columns >= len(names):
            axis.set_xlabel("length of the input")
            axis.tick_params(labelbottom=True)
    _legend(figure, study, series, chance="chance")
    figure.suptitle(study.question)
    return figure


def _long_addition(study: StudyRecords) -> Figure:
    series = study.series()
    lengths = lengths_of(series)
    panels: dict[str, dict[int, Pick]] = {
        "random operands": {length: at(length, "exact") for length in lengths},
        "carries passed on, p = 0.9": {length: at(length, "exact", "p = 0.9") for length in lengths},
        "worst adversarial family": {length: worst_kind(length, "exact") for length in lengths},
    }
    figure = Figure(figsize=(12.5, 5.2), layout="constrained")
    axes = figure.subplots(1, len(panels), sharex=True, sharey=True)
    for axis, (title, picks) in zip(axes, panels.items(), strict=True):
        _against_length(axis, series, picks)
        _mark(axis, study, lambda chance: 0.0)
        axis.set_title(title)
        axis.set_xlabel("digits")
    axes[0].set_ylabel("exact match of the whole sum")
    _legend(figure, study, series, chance="chance, about 0%")
    figure.suptitle(study.question)
    return figure


def _against_length(axis: Axes, series: Sequence[Series], picks: dict[int, Pick]) -> None:
    for order, one in enumerate(_ours_on_top(series)):
        tallies = {length: tally for length, pick in picks.items() if (tally := one.tally(pick)).values}
        _line(axis, one, tallies, order)
    axis.set_ylim(-0.04, 1.06)
    axis.yaxis.set_major_formatter(PercentFormatter(1))
    if picks and max(picks) > 20 * min(picks):
        axis.set_xscale("log")
        axis.xaxis.set_major_locator(LogLocator(10))
        axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def _ours_on_top(series: Sequence[Series]) -> list[Series]:
    layers = {"baseline": 0, "paper": 1, "ours": 2}
    return sorted(series, key=lambda one: (layers.get(one.arm.column, 0), one.form == "hardened"))


def _line(axis: Axes, one: Series, tallies: dict[int, Tally], order: int, every: float | None = None) -> None:
    """Draw the mean with a marker and min–max as a band."""
    if not tallies:
        return
    means = [tally.mean() for tally in tallies.values()]
    axis.plot(list(tallies), means, zorder=3 + order, markevery=every, **_look(one))
    fill_band(axis, tallies, colour(model(one)), zorder=2)


def _look(one: Series) -> dict[str, Any]:
    """Return the style of a line: later lines are thinner, so that all show; the recipe of the paper is dashed."""
    name, hardened = model(one), one.form == "hardened"
    size, width = {"paper": (11, 3.6), "ours": (5, 1.6) if hardened else (8, 3)}.get(one.arm.column, (9, 2.6))
    return {
        "color": colour(name),
        "marker": MARKERS.get(name, "o"),
        "ms": size,
        "lw": width,
        "ls": (0, (2.2, 1)) if name.endswith("_paper") else "-",
        "markeredgecolor": "white",
        "markeredgewidth": 0.8,
    }


def _mark(axis: Axes, study: StudyRecords, chance: Callable[[float], float] = lambda chance: chance) -> None:
    """Mark the chance level, and the lengths that were trained on."""
    for level in sorted({chance(arm.chance) for arm in study.arms}):
        axis.axhline(level, color="0.45", lw=1.4, ls=":", zorder=1)
    trained = max(arm.trained_length for arm in study.arms)
    left = axis.get_xlim()[0]
    axis.axvspan(min(left, trained * 0.8), trained, color="0.9", zorder=0, lw=0)
    longest = max(lengths_of(study.series()))
    axis.set_xlim(min(left, trained * 0.8), longest * (2 if axis.get_xscale() == "log" else 1.05))


def _legend(figure: Figure, study: StudyRecords, series: Sequence[Series], *, chance: str) -> None:
    """Draw one legend for all panels; a model with fewer seeds than the study says so, even if nothing is drawn."""
    handles: list[Any] = [Line2D([], [], label=_legend_label(study, one), **_look(one)) for one in series]
    if len(levels := {arm.chance for arm in study.arms}) == 1 and chance == "chance":
        chance = f"chance, {levels.pop():.0%}"
    trained = max(arm.trained_length for arm in study.arms)
    handles.append(Line2D([], [], color="0.45", lw=1.4, ls=":", label=chance))
    handles.append(Patch(color="0.9", label=f"trained to {trained:,}"))
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False, handlelength=3)


def _legend_label(study: StudyRecords, *series: Series) -> str:
    """Return the name of a model, and how many seeds are drawn in each panel where some are not."""
    name = label(model(series[0]))
    judged, seeds = [sum(1 for _ in one.answers()) for one in series], len(study.seeds)
    if series[0].form == "hardened" and not series[0].arm.hardens:
        return f"{name} (not asked for)"
    return name if set(judged) == {seeds} else f"{name} ({' and '.join(map(str, judged))} of {counted(seeds)})"


def _values(study: StudyRecords) -> Figure:
    panels = by_digit_order(study)
    figure = Figure(figsize=(6.2 * len(panels), 6.6), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    drawn: dict[str, list[Series]] = {}
    for axis, (order, series) in zip(axes, panels.items(), strict=True):
        learned = [one for one in series if one.form == "learned"]
        for one in learned:
            drawn.setdefault(model(one), []).append(one)
        for place, one in enumerate(_ours_on_top(learned)):
            _line(axis, one, _by_position(one), place, every=0.12)
        axis.set(xscale="log", yscale="log", xlabel="position t")
        axis.set_title("\n".join([order, *(_exactly(one, study) for one in series if one.form == "hardened")]))
        axis.xaxis.set_major_locator(LogLocator(2))
        axis.xaxis.set_minor_locator(NullLocator())
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axis.axhline(study.arms[0].chance, color="0.45", lw=1.4, ls=":", zorder=1)
    for trained, style in zip(sorted({arm.trained_length for arm in study.arms}), ("-.", "--", ":"), strict=False):
        for axis in axes:
            axis.axvline(trained, color="0.6", lw=1.4, ls=style, zorder=1)
    axes[0].set_ylabel("mean squared error of value / $2^t$")
    _value_legend(figure, study, [*drawn.values()], axes)
    figure.suptitle(study.question)
    return figure


def _exactly(one: Series, study: StudyRecords) -> str:
    """Return a title for the hardened model, which has no error to draw."""
    exact = [min(entry["exact"] for entry in entries) == 1 for _, entries in one.answers()]
    lengths = " and ".join(f"{length:,}" for length in lengths_of([one]))
    if not one.arm.hardens:
        return "not hardened"
    return f"hardened: exact integers at {lengths or 'no length'}, {sum(exact)} of {counted(len(study.seeds))}"


def _by_position(one: Series) -> dict[int, Tally]:
    """Return the errors by position of the longest input that each run was judged on."""
    errors: dict[int, dict[int, float]] = {}
    for seed, entries in one.answers():
        longest = max((entry for entry in entries if "mse" in entry), key=lambda entry: entry["length"])
        for end, error in longest["curve"]:
            errors.setdefault(int(end), {})[seed] = min(max(error, _LEAST_ERROR), _LARGEST_ERROR)
    return {end: Tally(values, {}) for end, values in sorted(errors.items())}


def _value_legend(figure: Figure, study: StudyRecords, drawn: Sequence[Sequence[Series]], axes: Sequence[Axes]) -> None:
    handles = [Line2D([], [], label=_legend_label(study, *series), **_look(series[0])) for series in drawn]
    for value in sorted({claim.value for claim in CLAIMS.get(study.name, ())}):
        whose = [claim.says.split(":")[0] for claim in CLAIMS[study.name] if claim.value == value]
        tone = colour("transductor_paper" if "Rational Transductor" in whose else "lstm")
        for axis in axes:
            axis.axhline(value, color=tone, lw=2, ls=(0, (1, 1.5)), zorder=1)
        handles.append(
            Line2D([], [], color=tone, lw=2, ls=(0, (1, 1.5)), label=f"the paper says: {value:.1e}, {', '.join(whose)}")
        )
    handles.append(Line2D([], [], color="0.45", lw=1.4, ls=":", label=f"chance, {study.arms[0].chance:.1e}"))
    by_length: dict[int, list[str]] = {}
    for arm in study.arms:
        by_length.setdefault(arm.trained_length, []).append(arm.column)
    for (trained, columns), style in zip(sorted(by_length.items()), ("-.", "--", ":"), strict=False):
        whose_length = "ours" if set(columns) == {"ours"} else "the others" if len(by_length) > 1 else "all"
        handles.append(Line2D([], [], color="0.6", lw=1.4, ls=style, label=f"trained to {trained:,} ({whose_length})"))
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False, handlelength=3)
