"""The figures of the pages on theory, drawn from the records of its statements and of three studies."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import matplotlib

matplotlib.use("Agg")
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from transductor.report.groups_map import map_figure
from transductor.report.style import READABLE

Plain = Mapping[str, Any]

_OURS, _PAPER, _TRUTH, _THIRD = "#1f5fbf", "#d1495b", "#12224f", "#35b0ab"
_MANY: Final = ("#d1495b", "#ee9b3a", "#35b0ab", "#1f5fbf", "#4b4b9c", "#12224f", "#9c2f6b")
_MARKERS: Final = (("o", _OURS), ("s", _THIRD), ("v", "#ee9b3a"), ("^", _PAPER))


def _figure(width: float, height: float, panels: int = 1) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(figure.subplots(1, panels, squeeze=False)[0])


def _plain_ticks(axis: Any, places: Sequence[float]) -> None:
    axis.set_major_locator(FixedLocator(places))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}"))


def _hankel_ranks(measurements: Plain) -> Figure:
    """Rank against d₁ + d₂ and d₁ d₂, one mark for each stack."""
    figure, (axes,) = _figure(8.4, 5.2)
    kinds = {
        kind: {tuple(map(int, dims.split(","))): rank for dims, rank in ranks.items()}
        for kind, ranks in measurements["rank"].items()
    }
    pairs = sorted({pair for ranks in kinds.values() for pair in ranks}, key=lambda pair: (math.prod(pair), pair))
    places = range(len(pairs))
    axes.plot(places, [math.prod(pair) for pair in pairs], color=_OURS, lw=1.4, ls="--", label="d₁ · d₂")
    axes.plot(places, [sum(pair) for pair in pairs], color=_PAPER, lw=1.4, ls=":", label="d₁ + d₂")
    for (kind, ranks), (marker, colour) in zip(kinds.items(), itertools.cycle(_MARKERS), strict=False):
        spots = [pairs.index(pair) for pair in ranks]
        axes.plot(spots, list(ranks.values()), marker, color=colour, ms=9, alpha=0.85, label=kind)
    axes.set_xticks(list(places), [",".join(map(str, pair)) for pair in pairs])
    axes.set(xlabel="states of the two layers, d₁, d₂", ylabel="Hankel rank: states of one head", ylim=(0, None))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(frameon=False)
    return figure


def _drift(measurements: Plain) -> Figure:
    """How far the states of a head are from the exact positions, beside the bound of each precision."""
    figure, (axes,) = _figure(8.4, 5.2)
    lengths, rounding = measurements["lengths"], measurements["rounding"]
    for (name, drift), colour in zip(rounding["drift"].items(), (_PAPER, _OURS), strict=False):
        axes.loglog(lengths, rounding["bound"][name], color=colour, ls="--", lw=1.2, label=f"{name}, bound")
        axes.loglog(lengths, drift, "o-", color=colour, label=name)
    axes.set(xlabel="position t", ylabel="distance to the exact position")
    axes.legend(frameon=False)
    return figure


def _dyck_scores(measurements: Plain) -> Figure:
    """The scores of hard attention from each closing bracket to each opening one, with the bracket that it takes."""
    dyck = measurements["dyck"]
    word, rows = dyck["word"], dyck["scores"]
    figure, (axes,) = _figure(1.6 + 0.52 * len(word), 1.4 + 0.45 * len(rows))
    numbers = [[math.nan if value is None else float(value) for value in row] for row in rows]
    present = [value for row in numbers for value in row if not math.isnan(value)]
    # Scores fall as squares of the distance in depth; a root keeps the differences near the best ones visible.
    best = [max((value for value in row if not math.isnan(value)), default=0.0) for row in numbers]
    shown = [
        [math.nan if math.isnan(value) else -math.sqrt(max(0.0, top - value)) for value in row]
        for row, top in zip(numbers, best, strict=True)
    ]
    axes.imshow(shown, cmap=matplotlib.colormaps["Blues"].with_extremes(bad="0.93"), aspect="auto")
    closing = [place for place, letter in enumerate(word) if letter in ")]}>"]
    names = closing if len(closing) == len(rows) else list(range(len(rows)))
    for row, match in enumerate(dyck["matches"]):
        if match is not None and match >= 0:
            axes.plot(match, row, "o", ms=13, mfc="none", mec=_PAPER, mew=2.2)
    axes.set_xticks(range(len(word)), list(word), family="monospace")
    axes.set_yticks(range(len(rows)), [f"{word[place]}  at {place + 1}" for place in names], family="monospace")
    axes.set(xlabel="attended position", ylabel="asking position")
    axes.set_title("darker: nearer to the best score; ring: taken" if present else "no score")
    return figure


def _grams(measurements: Plain) -> Figure:
    """Gram matrices of words at a few dimensions, and the size of their off-diagonal entries at all."""
    grams, curve = measurements["grams"], measurements["curve"]
    figure = Figure(figsize=(13.5, 3.9), layout="constrained")
    axes = list(figure.subplots(1, len(grams) + 1, width_ratios=[1] * len(grams) + [1.35]))
    for panel, one in zip(axes, grams, strict=False):
        image = panel.imshow(one["gram"], cmap="RdBu_r", vmin=-1, vmax=1)
        panel.set_title(f"d = {one['dim']:,}")
        panel.set_xticks([])
        panel.set_yticks([])
    axes[0].set_ylabel(f"{len(grams[0]['gram'])} words")
    figure.colorbar(image, ax=axes[: len(grams)], shrink=0.75, pad=0.01, ticks=[-1, 0, 1])
    last, dims = axes[-1], [one["dim"] for one in curve]
    last.loglog(dims, [one["sampling_noise"] for one in curve], color="0.5", ls="--", label="1/√(draws · d)")
    last.loglog(dims, [one["rms"] for one in curve], "o", color=_OURS, label="measured")
    _plain_ticks(last.xaxis, dims[::3] if len(dims) > 4 else dims)
    _plain_ticks(last.yaxis, [0.02, 0.05, 0.1, 0.2])
    last.set(xlabel="d", title="off the diagonal, rms")
    last.legend(frameon=False)
    return figure


def _hessians(measurements: Plain) -> Figure:
    figure, (axes,) = _figure(8.4, 5.2)
    points = measurements["points"]
    for place, gamma in enumerate(dict.fromkeys(one["gamma"] for one in points)):
        chosen = [one for one in points if one["gamma"] == gamma]
        lengths = [one["length"] for one in chosen]
        colour = (_PAPER, _OURS, _THIRD)[place % 3]
        axes.loglog(lengths, [one["norm"] for one in chosen], "o-", color=colour, label=f"γ = {gamma:g}")
        if gamma == 1:
            guide = [chosen[-1]["norm"] * (length / lengths[-1]) ** 2 for length in lengths]
            axes.loglog(lengths, guide, color="0.6", ls=":", label="T²")
    bound = measurements["bound"]
    axes.axhline(bound, color=_OURS, ls="--", lw=1.2, label=f"bound at every T, γ = {measurements['gamma']:g}")
    _plain_ticks(axes.xaxis, sorted({one["length"] for one in points}))
    axes.set(xlabel="length T", ylabel="norm of the Hessian", ylim=(1e-2, None))
    axes.legend(frameon=False)
    return figure


def _rademacher(measurements: Plain) -> Figure:
    figure, panels = _figure(12.5, 4.8, 2)
    titles = {"distinct": "N different letters", "letters_64": "64 letters, equally often"}
    for axes, (name, title) in zip(panels, titles.items(), strict=True):
        points = measurements[name]
        words = [one["words"] for one in points]
        axes.loglog(words, [one["bound"] for one in points], color=_PAPER, ls="--", lw=2, label="the theorem's bound")
        axes.loglog(words, [one["truth"] for one in points], "o-", color=_TRUTH, label="exact complexity")
        axes.axhline(measurements["trivial"], color="0.55", ls=":", label="W‖α‖γᵀ, which always holds")
        low = [min(one["bound"], one["truth"]) for one in points]
        high = [one["truth"] for one in points]
        axes.fill_between(words, low, high, color=_PAPER, alpha=0.13, lw=0)
        _plain_ticks(axes.xaxis, [4**power for power in range(12) if words[0] <= 4**power <= words[-1]])
        _plain_ticks(axes.yaxis, [0.03, 0.1, 0.3, 1.0])
        axes.set(xlabel="words N, of one letter each", title=title)
    panels[0].set_ylabel(f"Rademacher complexity, γ = {measurements['gamma']:g}")
    panels[1].legend(frameon=False)
    return figure


def _error_bound(measurements: Plain) -> Figure:
    figure, (left, right) = _figure(13, 5.0, 2)
    lengths, margin = measurements["lengths"], measurements["margin"]
    contractive, orthogonal = measurements["contractive_error"], measurements["orthogonal_error"]
    left.semilogx(lengths[: len(contractive)], contractive, color=_THIRD, lw=2, label=f"γ = {measurements['gamma']:g}")
    left.semilogx(lengths, orthogonal, color=_OURS, lw=2, label="γ = 1")
    left.axhline(measurements["bound"], color=_PAPER, ls="--", label="the theorem's bound")
    left.axhline(margin, color="0.5", ls=":", label="where labels can be wrong")
    _plain_ticks(left.xaxis, [1, 10, 100, 1000, 10000])
    left.set(xlabel="length", ylabel="distance to the true state", title=f"an angle off by {measurements['drift']:g}")
    left.legend(frameon=False)
    heads = measurements["heads"]
    drifts = [one["drift"] for one in heads]
    right.loglog(drifts, [one["first_failure"] for one in heads], "s", ms=11, mfc="none", mew=2, color=_TRUTH,
                 label="first wrong label")  # fmt: skip
    right.loglog(drifts, [one["certified"] for one in heads], "o-", color=_OURS, label="certified horizon")
    right.axhline(1, color=_PAPER, ls="--", label="promised by the theorem: nothing")
    right.invert_xaxis()
    _plain_ticks(right.yaxis, [1, 10, 100, 1000, 10_000, 100_000])
    right.set(xlabel="error of the angle", ylabel="letters", title=f"counting modulo {measurements['modulus']}, γ = 1")
    right.legend(frameon=False, loc="upper left")
    return figure


def cover_figure(points: Sequence[Plain]) -> Figure:
    """Draw the share of draws in which parity can be separated, against d / 2^L and on the scale of Cover's step."""
    figure, (left, right) = _figure(13, 5.2, 2)
    haar = [one for one in points if one["features"] == "haar"]
    lengths = sorted({one["length"] for one in haar})
    for place, length in enumerate(lengths):
        chosen = sorted((one for one in haar if one["length"] == length), key=lambda one: float(one["dim"]))
        words, colour = 2**length, _MANY[place % len(_MANY)]
        shares = [one["separated"] / one["trials"] for one in chosen]
        left.plot([one["dim"] / words for one in chosen], shares, "o-", ms=5, color=colour, label=f"L = {length}")
        scaled = [(2 * one["dim"] - words) / math.sqrt(words) for one in chosen]
        right.plot(scaled, shares, "o", ms=6, color=colour)
    places = [place / 20 for place in range(-80, 81)]
    right.plot(places, [0.5 * math.erfc(-place / math.sqrt(2)) for place in places], color="0.3", lw=2,
               label="Cover's count")  # fmt: skip
    near = [one for one in points if one["features"] == "near_identity"]
    if near:
        longest = max(one["length"] for one in near)
        chosen = sorted((one for one in near if one["length"] == longest), key=lambda one: float(one["dim"]))
        left.plot([one["dim"] / 2**longest for one in chosen], [one["separated"] / one["trials"] for one in chosen],
                  "^--", color="0.5", ms=6, label=f"near the identity, L = {longest}")  # fmt: skip
    learned = f"learned, d = 2 (L = {lengths[-1]})"
    left.plot([2 / 2 ** lengths[-1]], [1.0], "*", ms=16, color=_OURS, label=learned, zorder=9, clip_on=False)
    left.set(xlim=(0, 1.02), ylim=(-0.03, 1.05), xlabel="d / 2^L", ylabel="share of draws that separate parity")
    left.legend(frameon=False, fontsize=11, loc="upper left", bbox_to_anchor=(0.0, 0.94))
    right.set(xlim=(-4, 4), ylim=(-0.03, 1.05), xlabel="(2d − 2^L) / √(2^L)", title="each step at its own scale")
    right.legend(frameon=False, loc="upper left")
    return figure


def smoothing_figure(runs: Sequence[Plain], profile: Plain) -> Figure:
    """Draw the loss over the angle's error, and predicted, certified and true horizons of every trained head."""
    protocols = list(dict.fromkeys((one["readout"], one["steps"]) for one in runs if one["readout"] == "free"))
    figure = Figure(figsize=(6 + 5.6 * len(protocols), 5.6), layout="constrained")
    left, *panels = figure.subplots(1, 1 + len(protocols), width_ratios=[1.05] + [1.3] * len(protocols))
    for place, curve in enumerate(profile["curves"]):
        colour = _MANY[place % len(_MANY)]
        left.plot(profile["places"], curve["excess"], color=colour, lw=2, label=f"ε = {curve['smoothing']:g}")
    left.axvline(1, color="0.6", ls=":")
    left.set(xlabel="|δ| in units of π/(kT)", ylabel="least loss, above that of δ = 0", xlim=(0, 2), ylim=(-0.002, 0.1))
    left.set_title("ideal readout, any scale")
    left.legend(frameon=False)
    for axes, (readout, steps) in zip(panels, protocols, strict=True):
        _horizons(axes, [one for one in runs if (one["readout"], one["steps"]) == (readout, steps)])
        axes.set(ylim=(8, 2e7), title=f"{readout} readout, {steps:,} steps")
    panels[0].set_ylabel("horizon, in letters")
    panels[0].legend(frameon=False, loc="upper left")
    return figure


def _horizons(axes: Axes, runs: Sequence[Plain]) -> None:
    """Draw three horizons of every head, grouped by smoothing and then by trained length."""
    smoothings = sorted({one["smoothing"] for one in runs})
    lengths = sorted({one["length"] for one in runs})
    seeds = sorted({one["seed"] for one in runs})

    def group(one: Plain) -> int:
        return smoothings.index(one["smoothing"]) * (len(lengths) + 1) + lengths.index(one["length"])

    spots = [group(one) + 0.14 * (seeds.index(one["seed"]) - (len(seeds) - 1) / 2) for one in runs]
    marks = {"predicted": ("_", "#ee9b3a", 9), "true": ("s", _TRUTH, 7), "certified": ("o", _OURS, 4)}
    for kind, (marker, colour, size) in marks.items():
        look = {"mfc": "none"} if kind == "true" else {"mew": 2.2} if kind == "predicted" else {}
        axes.plot(spots, [max(1, one[kind]) for one in runs], marker, color=colour, ms=size, label=kind, **look)
    for one in runs:
        trained = [group(one) - 0.45, group(one) + 0.45]
        axes.plot(trained, [one["length"]] * 2, color=_PAPER, lw=2)
    axes.plot([], [], color=_PAPER, lw=2, label="trained length T")
    middle = (len(lengths) - 1) / 2
    axes.set_xticks([place * (len(lengths) + 1) + middle for place in range(len(smoothings))])
    axes.set_xticklabels([f"{smoothing:g}" for smoothing in smoothings])
    axes.set_yscale("log")
    axes.set_xlabel(f"smoothing ε; in each group T = {', '.join(map(str, lengths))}")


# By the number of the statement: the name of the file, what it needs of the measurements, and who draws it.
_DRAWN: Final[dict[int, tuple[str, str, Callable[[Plain], Figure]]]] = {
    3: ("theory_hankel_ranks", "rank", _hankel_ranks),
    4: ("theory_drift", "rounding", _drift),
    8: ("theory_dyck_scores", "dyck", _dyck_scores),
    21: ("theory_grams", "grams", _grams),
    26: ("theory_hessians", "points", _hessians),
    27: ("theory_error_bound", "heads", _error_bound),
    28: ("theory_rademacher", "distinct", _rademacher),
}


def statement_figure_name(number: int, measurements: Plain) -> str | None:
    """Return the name of a statement's figure; None where it has none, or its record lacks what would be drawn."""
    if number not in _DRAWN or _DRAWN[number][1] not in measurements:
        return None
    return _DRAWN[number][0]


def statement_figure(number: int, measurements: Plain) -> Figure:
    """Draw the figure of a statement from the measurements of its certificate."""
    if statement_figure_name(number, measurements) is None:
        raise ValueError(f"number must be one of {', '.join(map(str, _DRAWN))} with its measurements; got {number!r}")
    with matplotlib.rc_context(READABLE):
        return _DRAWN[number][2](measurements)


def study_figure_of_theory(name: str, record: Plain) -> Figure:
    """Draw the figure of a study beyond the paper: ``cover_transition``, ``groups_map`` or ``label_smoothing``."""
    measurements = record["measurements"]
    with matplotlib.rc_context(READABLE):
        if name == "cover_transition":
            return cover_figure(measurements["points"])
        if name == "label_smoothing":
            return smoothing_figure(measurements["runs"], measurements["profile"])
        if name == "groups_map":
            return map_figure(measurements, record["settings"])
    raise ValueError(f"name must be cover_transition, groups_map or label_smoothing; got {name!r}")
