"""The map of which recurrence does which monoid: its figure, its table and what became of the predictions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import matplotlib

matplotlib.use("Agg")
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

Plain = Mapping[str, Any]
Counts = Mapping[tuple[str, str], int]

# A letter for each reason why a family cannot do a monoid in any dimension.
MARKS: Final = {
    "letters that do not commute": "c",
    "no such root": "r",
    "no reset": "i",
    "no half turn": "h",
}
EXPLAINED: Final = {
    "c": "two letters do not commute, all matrices of the family do",
    "r": "a letter has an order that no entry of a matrix has",
    "i": "an idempotent must be reset, the matrices are orthogonal",
    "h": "some element is the identity wherever no letter turns by a half",
}
_GROUPS: Final = frozenset("ZSADQ")
_FEW, _ALL, _NOT, _NEVER = "#eef3fb", "#1f5fbf", "#ffffff", "#e4e0dc"


def is_group(name: str) -> bool:
    """Whether a name of the map is that of a group."""
    return name[0] in _GROUPS


def learned(measurements: Plain, length: int, *, kinds: bool) -> dict[tuple[str, str], int]:
    """Count for each trained cell the seeds without a mistake up to a length: on random inputs, or on all kinds too."""
    counts: dict[tuple[str, str], int] = {}
    for run in measurements["runs"]:
        judged = [entry for at, entry in run.get("lengths", {}).items() if int(at) <= length]
        right = bool(judged) and all(one["random"] == 1 and (one["worst"] == 1 or not kinds) for one in judged)
        cell = run["family"], run["monoid"]
        counts[cell] = counts.get(cell, 0) + right
    return counts


def _names(measurements: Plain) -> tuple[list[str], list[str]]:
    answers = measurements["answers"]
    return list(dict.fromkeys(one["family"] for one in answers)), list(dict.fromkeys(one["monoid"] for one in answers))


def _short(answer: Plain) -> str:
    """Return what theory says of a cell, as short as it fits."""
    if answer["verdict"] == "impossible":
        return "—"
    text = str(answer["verdict"]).removeprefix("d = ") if answer["least"] is not None else str(answer["verdict"])
    return text if answer["reflections"] is None else f"{text}, k {answer['reflections']}"


def _judged_length(settings: Plain) -> int:
    """Return the length up to which a seed must be right: the second one, several times the trained one."""
    return int(settings["lengths"][1])


def map_figure(measurements: Plain, settings: Plain) -> Figure:
    """Draw families against monoids: the least dimension or none, and how many seeds learn it as colour."""
    families, monoids = _names(measurements)
    seeds, length = int(settings["seeds"]), _judged_length(settings)
    strict, random = (learned(measurements, length, kinds=kinds) for kinds in (True, False))
    shades = LinearSegmentedColormap.from_list("learned", (_FEW, _ALL))
    figure = Figure(figsize=(1.0 * len(monoids) + 4.2, 0.74 * len(families) + 2.3), layout="constrained")
    axes = figure.subplots()
    for answer in measurements["answers"]:
        cell = answer["family"], answer["monoid"]
        column, row = monoids.index(cell[1]), families.index(cell[0])
        count, never = strict.get(cell), answer["verdict"] == "impossible"
        colour = (_NEVER if never else _NOT) if not count else shades(0.15 + 0.85 * count / seeds)
        axes.add_patch(Rectangle((column + 0.02, row + 0.02), 0.96, 0.96, fc=colour, ec="0.85", lw=0.8))
        if count is None:
            axes.add_patch(Rectangle((column + 0.02, row + 0.02), 0.96, 0.96, fc="none", ec="0.82", lw=0, hatch="///"))
        ink = "white" if count and count > seeds / 2 else "0.15"
        weight = "normal" if never else "bold"
        spot = 0.5 if count is None else 0.38
        axes.text(column + 0.5, row + spot, _short(answer), ha="center", va="center", color=ink, weight=weight)
        if count is not None:
            text = f"{random[cell]} · {count}"
            axes.text(column + 0.5, row + 0.76, text, ha="center", va="center", color=ink, fontsize=10)
    axes.set_xticks([place + 0.5 for place in range(len(monoids))], monoids)
    axes.set_yticks([place + 0.5 for place in range(len(families))], families)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.set(xlim=(0, len(monoids)), ylim=(len(families), 0))
    for spine in axes.spines.values():
        spine.set_visible(False)
    groups = sum(map(is_group, monoids))
    if 0 < groups < len(monoids):
        axes.axvline(groups, color="0.2", lw=2)
    handles = [
        Patch(fc=shades(1.0), label=f"{seeds} of {seeds} seeds right on all inputs up to {length} letters"),
        Patch(fc=shades(0.15 + 0.85 / seeds), label="1 seed"),
        Patch(fc=_NOT, ec="0.7", label="possible, not learned"),
        Patch(fc=_NEVER, label="— impossible in every dimension"),
    ]
    if len(strict) < len(measurements["answers"]):
        handles.append(Patch(fc=_NOT, ec="0.82", hatch="///", label="not trained"))
    axes.legend(handles=handles, frameon=False, ncols=3, loc="upper center", bbox_to_anchor=(0.42, -0.02), fontsize=12)
    title = (
        f"large: least dimension d (k reflections); small: seeds of {seeds} right on random inputs · on all kinds too"
    )
    axes.set_title(title, fontsize=12.5, pad=12)
    return figure


def map_rows(measurements: Plain, settings: Plain) -> tuple[list[str], list[list[str]]]:
    """Return the heads and rows of the map as a table: a row for each monoid, a column for each family."""
    families, monoids = _names(measurements)
    length = _judged_length(settings)
    strict, random = (learned(measurements, length, kinds=kinds) for kinds in (True, False))
    by_cell = {(one["family"], one["monoid"]): one for one in measurements["answers"]}
    rows = []
    for monoid in monoids:
        row = [monoid]
        for family in families:
            answer = by_cell[family, monoid]
            text = _short(answer)
            if answer["verdict"] == "impossible":
                text = f"— {MARKS[answer['reason']]}"
            seeds = f"{random[family, monoid]} · {strict[family, monoid]}" if (family, monoid) in strict else "–"
            row.append(f"**{text}**<br>{seeds}")
        rows.append(row)
    return ["", *families], rows


def accuracy_rows(measurements: Plain, settings: Plain) -> tuple[list[str], list[list[str]]]:
    """Return mean, least and greatest share of right positions over the seeds, for each trained cell and length."""
    lengths = [str(length) for length in settings["lengths"]]
    heads = ["monoid", "family"]
    for length in lengths:
        heads += [f"random, {length}", f"worst kind, {length}"]
    cells: dict[tuple[str, str], list[Plain]] = {}
    for run in measurements["runs"]:
        cells.setdefault((run["monoid"], run["family"]), []).append(run)
    rows = []
    for (monoid, family), runs in cells.items():
        row = [monoid, family]
        for length in lengths:
            for what in ("random", "worst"):
                shares = [float(run["lengths"][length][what]) for run in runs if "lengths" in run]
                row.append(_spread(shares) if len(shares) == len(runs) else "diverged")
        rows.append(row)
    return heads, rows


def faster_outcome(measurements: Plain, settings: Plain) -> str:
    """Say what a second run with a faster head learned, and what became of the prediction about it."""
    faster, length, seeds = measurements["faster"], _judged_length(settings), int(settings["seeds"])
    strict, random = (learned(faster, length, kinds=kinds) for kinds in (True, False))
    parts = []
    for family in dict.fromkeys(cell[0] for cell in strict):
        cells = ", ".join(f"{cell[1]} {random[cell]} · {count}" for cell, count in strict.items() if cell[0] == family)
        parts.append(f"{family}: {cells}")

    def judged(cells: Sequence[tuple[str, str]]) -> str:
        return "confirmed" if all(strict.get(cell) == seeds for cell in cells) else "refuted"

    expected = [("rotating planes", name) for name in ("Z2", "Z3", "Z5", "Z6")]
    expected += [("column-stochastic", name) for name in ("seen", "flip-flop")]
    chosen = [("permutation × diagonal", name) for name in ("seen", "flip-flop", "Z2")]
    none_on_s5 = "refuted" if strict.get(("permutation × diagonal", "S5")) else "confirmed"
    rate = faster["training"]["head_learning_rate"]
    return (
        f"Peak rate of the head {rate:g} in place of {faster['training']['learning_rate']:g}, seeds as in the map: "
        f"{'; '.join(parts)}. Planes learn the cyclic groups with all seeds, and stochastic matrices seen and "
        f"flip-flop: **{judged(expected)}.** Permutation × diagonal learns seen, flip-flop and Z2 with all seeds: "
        f"**{judged(chosen)}**; and S5 with none: **{none_on_s5}.**"
    )


def _share(value: float) -> str:
    """Write a share in percent, without rounding up to all or down to none."""
    if value in (0, 1):
        return f"{100 * value:.0f}"
    return f"{min(max(100 * value, 0.1), 99.9):.1f}"


def _spread(shares: Sequence[float]) -> str:
    if min(shares) == max(shares):
        return _share(shares[0])
    return f"{_share(sum(shares) / len(shares))} ({_share(min(shares))}–{_share(max(shares))})"


def outcomes(measurements: Plain, settings: Plain) -> list[str]:
    """Say what became of each prediction that stands in ``benchmarks/groups_map.py``, in its order."""
    families, monoids = _names(measurements)
    groups = [name for name in monoids if is_group(name)]
    others = [name for name in monoids if not is_group(name)]
    seeds = int(settings["seeds"])
    counts = learned(measurements, _judged_length(settings), kinds=True)

    def of(family: str, some: Sequence[str]) -> str:
        return ", ".join(f"{name} {counts[family, name]}" for name in some)

    def full(family: str, some: Sequence[str] = monoids) -> set[str]:
        return {name for name in some if counts[family, name] == seeds}

    def line(what: str, outcome: str, holds: bool) -> str:
        return f"{what} {outcome} **{'Confirmed' if holds else 'Refuted'}.**"

    never = [
        (one["family"], one["monoid"])
        for one in measurements["answers"]
        if one["verdict"] == "impossible" and (one["family"], one["monoid"]) in counts
    ]
    exceptions = [f"{family} on {monoid} ({counts[family, monoid]})" for family, monoid in never
                  if counts[family, monoid]]  # fmt: skip
    cyclic = [name for name in groups if name.startswith("Z")]
    turned = [name for name in ("Z3", "Z5", "Q8", "A4", "A5") if name in groups]
    easy = [name for name in ("seen", "flip-flop") if name in others]
    hard = [name for name in groups if name != "S5"]
    elsewhere = [name for name in groups if name != "Z2"]
    diagonals = {"diagonal": {"seen"}, "signed diagonal": {"seen", "Z2"}}
    best = {family: counts[family, "T3"] for family in families if (family, "T3") in counts}
    everywhere: Callable[[str, Sequence[str]], bool] = lambda family, some: full(family, some) == set(some)  # noqa: E731
    return [
        line(
            "No seed learns what is impossible in every dimension.",
            f"Learned by a seed: {', '.join(exceptions) or 'none'} of {len(never)} such cells.",
            not exceptions,
        ),
        line(
            "The orthogonal family learns all groups but S5 with all seeds, and no other monoid.",
            f"Seeds: {of('orthogonal', monoids)}.",
            everywhere("orthogonal", hard)
            and "S5" not in full("orthogonal")
            and not any(counts["orthogonal", name] for name in others),
        ),
        line(
            "Rotating planes learn the cyclic groups with all seeds.",
            f"Seeds: {of('rotating planes', cyclic)}.",
            everywhere("rotating planes", cyclic),
        ),
        line(
            "Cayley learns Z3, Z5, Q8, A4 and A5 with all seeds.",
            f"Seeds: {of('Cayley', turned)}.",
            everywhere("Cayley", turned),
        ),
        line(
            "Products of four reflections learn, with all seeds, what the orthogonal family does.",
            f"With all seeds: {', '.join(sorted(full('Householder'))) or 'nothing'}; the orthogonal family "
            f"{', '.join(sorted(full('orthogonal'))) or 'nothing'}.",
            full("orthogonal") <= full("Householder"),
        ),
        line(
            "Dense matrices learn seen and flip-flop with all seeds, and fewer groups than the orthogonal family.",
            f"Seeds: {of('dense', easy)}; groups with all seeds: {len(full('dense', groups))} against "
            f"{len(full('orthogonal', groups))}.",
            everywhere("dense", easy) and len(full("dense", groups)) < len(full("orthogonal", groups)),
        ),
        line(
            "Stochastic matrices learn seen and flip-flop with all seeds, and no group but Z2.",
            f"Seeds: {of('column-stochastic', [*easy, *groups])}.",
            everywhere("column-stochastic", easy) and not any(counts["column-stochastic", name] for name in elsewhere),
        ),
        line(
            "Diagonal matrices learn seen alone, signed ones seen and Z2, with all seeds.",
            "With all seeds: "
            + "; ".join(f"{family} {', '.join(sorted(full(family))) or 'nothing'}" for family in diagonals)
            + ".",
            all(full(family) == expected for family, expected in diagonals.items()),
        ),
        line(
            "Nothing learns T3 with all seeds.",
            f"Seeds: {', '.join(f'{family} {count}' for family, count in best.items())}.",
            max(best.values()) < seeds,
        ),
        line(
            "Permutation × diagonal learns seen with all seeds, and nothing else with any (written down later than the "
            "others, before any run with it).",
            f"Seeds: {of('permutation × diagonal', monoids)}.",
            full("permutation × diagonal") == {"seen"}
            and not any(counts["permutation × diagonal", name] for name in monoids if name != "seen"),
        ),
    ]
