"""The generated parts of the page beyond the paper, in Markdown: tables and outcomes of its three studies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median

from theory_statements import Entry, number, table

from transductor.report.groups_map import EXPLAINED, accuracy_rows, faster_outcome, map_rows, outcomes

HORIZONS = ("predicted", "certified", "true")


def cover_numbers(points: Sequence[Entry]) -> str:
    """Where half of the draws separate parity, and how wide the step is, for each length."""
    rows = []
    for length in sorted({one["length"] for one in points}):
        cells = [str(length), number(2**length)]
        for features in ("haar", "near_identity"):
            chosen = sorted(
                (one["dim"] / 2**length, one["separated"] / one["trials"])
                for one in points
                if (one["features"], one["length"]) == (features, length)
            )
            places = [crossing(chosen, share) for share in (0.25, 0.5, 0.75)]
            middle = "–" if places[1] is None else f"{places[1]:.3f}"
            cells.append(middle)
            if features == "haar":
                wide = None if None in places else (places[2] - places[0]) * 2**length / 2 ** (length / 2)
                cells.append("–" if wide is None else f"{wide:.2f}")
        rows.append(cells)
    heads = ("L", "words", "half at d / 2^L", "quartiles apart, in √(2^L)", "half, near the identity")
    return table(heads, rows)


def crossing(points: Sequence[tuple[float, float]], share: float) -> float | None:
    """Return where the line through the points first reaches a share; None where it does not."""
    for (x, y), (after, above) in pairwise(points):
        if y < share <= above:
            return x + (after - x) * (share - y) / (above - y)
    return None


def _between(values: Sequence[float], cap: float) -> str:
    ends = [f"≥ {number(value)}" if value >= cap else number(value) for value in (min(values), max(values))]
    return ends[0] if ends[0] == ends[1] else " – ".join(ends)


def smoothing_table(runs: Sequence[Entry], cap: int) -> str:
    """Horizons over the seeds for each protocol, smoothing and trained length; one row where all reach the end."""
    rows = []
    for protocol in dict.fromkeys((one["readout"], one["steps"]) for one in runs):
        heads = [one for one in runs if (one["readout"], one["steps"]) == protocol]
        endless = all(one[kind] >= cap for one in heads for kind in HORIZONS)
        groups: dict[tuple[str, str], list[Entry]] = {}
        for one in heads:
            key = ("all", "all") if endless else (number(one["smoothing"]), str(one["length"]))
            groups.setdefault(key, []).append(one)
        for key, chosen in groups.items():
            horizons = [_between([one[kind] for one in chosen], cap) for kind in HORIZONS]
            rows.append([protocol[0], number(protocol[1]), *key, *horizons])
    return table(("readout", "steps", "ε", "T", *HORIZONS), rows)


def smoothing_minima(minima: Sequence[Entry]) -> str:
    """Where the expected loss has its minimum with a free readout."""
    rows = [
        [number(one["smoothing"]), str(one["length"]), number(one["delta"]), number(one["horizon"])] for one in minima
    ]
    return table(("ε", "T", "δ at the minimum of the expected loss", "its horizon"), rows)


def smoothing_outcome(runs: Sequence[Entry]) -> str:
    """What became of each prediction, in numbers of the record."""

    def chosen(readout: str, steps: int, smooth: Callable[[float], bool]) -> dict[tuple[float, int, int], Entry]:
        return {
            (one["smoothing"], one["length"], one["seed"]): one
            for one in runs
            if (one["readout"], one["steps"]) == (readout, steps) and smooth(one["smoothing"])
        }

    few, many = sorted({one["steps"] for one in runs if one["readout"] == "free"})
    ideal = chosen("ideal", few, lambda smoothing: smoothing == 0)
    hard = {steps: chosen("free", steps, lambda smoothing: smoothing == 0) for steps in (few, many)}
    soft = {steps: chosen("free", steps, lambda smoothing: smoothing > 0) for steps in (few, many)}
    gains = {
        steps: [one["true"] / hard[steps][0.0, *key[1:]]["true"] for key, one in soft[steps].items()] for steps in hard
    }
    multiples = [one["true"] / one["length"] for one in hard[few].values()]
    lengths = sorted({one["length"] for one in runs})
    growth = [
        median([one["true"] for one in hard[many].values() if one["length"] == length])
        / median([one["true"] for one in hard[few].values() if one["length"] == length])
        for length in lengths
    ]
    large = [one for key, one in soft[many].items() if key[0] >= 0.05]
    past = {length: sum(one["true"] > 1e5 for one in large if one["length"] == length) for length in lengths}
    each = len(large) // len(lengths)
    closeness = [one["true"] / one["predicted"] for one in large]
    tight = [one["certified"] / one["true"] for one in soft[many].values()]
    every = [one["certified"] / one["true"] for one in runs if one["readout"] == "free"]
    reached = _between([one["true"] for one in ideal.values()], 1e9)
    first = "confirmed" if sum(past.values()) > len(large) / 2 else "refuted"
    second = "confirmed" if max(growth) < 3 else "refuted"
    ten = sum(gain >= 10 for gain in gains[few])
    lines = [
        f"* Ideal readout, no smoothing: the heads are right up to {reached} letters, and were followed no further. "
        "**The first prediction is refuted**, for the reason above.",
        f"* Free readout, {number(few)} steps, no smoothing: horizons are {min(multiples):.2g} to {max(multiples):.2g} "
        f"times T, the median {median(multiples):.2g} times. With smoothing they are {min(gains[few]):.2g} to "
        f"{max(gains[few]):.2g} times those without, the median {median(gains[few]):.2g} times; {ten} of "
        f"{len(gains[few])} are ten times as long. **The second is refuted too**: the corners were not yet regular.",
        f"* {number(many)} steps: with smoothing horizons are {number(min(gains[many]))} to {number(max(gains[many]))} "
        f"times those without, the median {number(median(gains[many]))} times. With ε of at least 0.05, "
        + ", ".join(f"{past[length]} of {each} pass 100 000 letters at T = {length}" for length in lengths)
        + f". **The third is {first} in this half**. Without smoothing the median grows by factors of "
        + ", ".join(f"{factor:.2g} (T = {length})" for factor, length in zip(growth, lengths, strict=True))
        + f", where less than 3 was predicted: **{second} in the other**.",
        f"* With ε of at least 0.05 and {number(many)} steps the true horizon is {min(closeness):.2g} to "
        f"{max(closeness):.2g} times the one predicted from the expected loss alone, the median "
        f"{median(closeness):.2g} times. With smoothing the certified one is {min(tight):.2g} to {max(tight):.2g} "
        f"times the true one; over all heads with a free readout {min(every):.2g} to {max(every):.2g} times, because a "
        "bound by norms sees an irregular readout from its worst side. At most a factor of two was predicted: "
        f"**{'confirmed' if min(every) >= 0.5 else 'refuted'}**.",
    ]
    return "\n".join(lines)


def groups_parts(measurements: Entry, settings: Entry) -> dict[str, str]:
    """The generated parts about the map of groups, by their marks."""
    checked = measurements["answers"]
    faults = sum(bool(one["faults"]) for one in checked)
    never = sum(one["verdict"] == "impossible" for one in checked)
    tight = sum(one["least"] is not None for one in checked)
    wider = [one for one in checked if one["fewest_reflections"] is not None]
    summary = (
        f"{len(checked)} cells: in {tight} the least dimension is known, with a witness there and a bound below it; "
        f"{never} are impossible in every dimension; {len(checked) - tight - never} are open. "
        f"In {faults} of them a witness or a hypothesis did not pass its check."
    )
    if wider:
        some = ", ".join(
            f"{one['monoid']} with {one['fewest_reflections']} in d = {one['in_dimension']}" for one in wider
        )
        summary += f" Fewer reflections do in more dimensions for {some}."
    keys = "; ".join(f"**{mark}**: {reason}" for mark, reason in EXPLAINED.items())
    length = settings["lengths"][1]
    trained = (
        f"In each cell: the least dimension (and reflections k), or — and why none; below, how many of "
        f"{settings['seeds']} seeds make no mistake up to {length} letters on {settings['sequences']} random inputs · "
        f"on every input kind too. {keys}."
    )
    predictions = "\n".join(f"{place}. {line}" for place, line in enumerate(outcomes(measurements, settings), 1))
    return {
        "map of groups": f"{summary}\n\n{trained}\n\n{table(*map_rows(measurements, settings))}",
        "predictions about groups": predictions,
        "faster heads on groups": faster_outcome(measurements, settings),
        "accuracies on groups": table(*accuracy_rows(measurements, settings)),
    }
