"""What became of predictions that were written down before a study ran."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from transductor.report.study_cells import cell
from transductor.report.study_excess import (
    FAR,
    GOAL,
    GOAL_HEADING,
    best_of_others,
    by_process,
    excess_words,
    process_label,
    reached,
    within_goal,
)
from transductor.report.study_records import ArmRuns, Pick, Series, StudyRecords, Tally, at, worst_kind
from transductor.report.style import label, percent
from transductor.study_names import INJECTED_TASKS, INJECTIONS, TRACKED

_LENGTHS: Final = (20, 40, 160)
_TITLES: Final = {"counting": "mod-5 counting", "held_count": "held count", "flip_flop": "flip-flop"}
_TRAINED: Final = 40
# The right positions of each seed, by where the state enters.
Shares = Mapping[str, Tally]


def injection_rows(study: StudyRecords) -> tuple[list[str], list[list[str]]]:
    """Return heads and rows of the study ``deep_injection``: every task and injection, random and worst kind."""
    heads = ["task", "injection"]
    picks: list[Pick] = []
    for length in _LENGTHS:
        heads += [f"random, {length}", f"worst, {length}"]
        picks += [at(length), worst_kind(length)]
    rows = []
    for task in INJECTED_TASKS:
        for place, injection in enumerate(INJECTIONS):
            tallies = [_tally(study, task, injection, pick) for pick in picks]
            cells = [cell(tally).removesuffix(f" ×{len(study.seeds)}") for tally in tallies]
            rows.append([_TITLES[task] if place == 0 else "", injection, *cells])
    return heads, rows


def injection_outcomes(study: StudyRecords) -> list[str]:
    """Say of each prediction about ``deep_injection`` what came out, part by part, in the order of the page."""

    def shares(task: str) -> tuple[Shares, Shares]:
        near, far = ({one: _tally(study, task, one, at(length)) for one in INJECTIONS} for length in (20, 160))
        return near, far

    return [
        f"Held count: {'; '.join(_held_count(*shares('held_count')))}.",
        f"Counting: {'; '.join(_counting(*shares('counting')))}.",
        f"Flip-flop: {'; '.join(_flip_flop(*shares('flip_flop')))}.",
    ]


def _held_count(near: Shares, far: Shares) -> list[str]:
    deep, first, none = (near[name].mean() for name in INJECTIONS)
    reached = min(deep, first) >= 0.95 and abs(deep - first) <= 0.05
    lead = far["deep"].mean() - far["input"].mean()
    below = max(far["deep"].mean(), far["input"].mean()) < 0.8
    return [
        _part(f"at 20 {_means(near, 'deep', 'input')}", reached, "both at 95 %, within five points"),
        _part(_means(near, "none"), 0.6 <= none <= 0.8, "near 70 %: within ten points"),
        _part(f"at 160 {_means(far, 'deep', 'input')}", below, "both below 80 %"),
        _part(f"deep ahead by {100 * lead:.1f} points", lead <= 0.1, "at most ten"),
    ]


def _counting(near: Shares, far: Shares) -> list[str]:
    perfect = {name: sum(value == 1 for value in near[name].values.values()) for name in ("deep", "input")}
    most = all(2 * count > len(near[name].values) for name, count in perfect.items())
    seeds = ", ".join(f"{name} {count}" for name, count in perfect.items())
    deep, first = far["deep"].mean(), far["input"].mean()
    return [
        _part(f"seeds without a mistake at 20: {seeds}", most, "most"),
        _part(_means(near, "none"), near["none"].mean() < 0.4, "below 40 %"),
        _part(f"at 160 {_means(far, 'deep')}", deep > 0.9, "above 90 %"),
        _part(_means(far, "input"), deep - first > 0.05, "more than five points behind deep"),
    ]


def _flip_flop(near: Shares, far: Shares) -> list[str]:
    spread = max(tally.largest - tally.least for tally in far.values())
    together = min(tally.mean() for tally in near.values()) > 0.95 and _range(near) <= 0.02
    return [
        _part(f"at 20 {_means(near, *INJECTIONS)}", together, "all above 95 %, within two points"),
        _part(
            f"at 160 {_means(far, *INJECTIONS)}, while seeds of one arm differ by up to {100 * spread:.1f} points",
            _range(far) <= spread,
            "no larger than this spread",
        ),
    ]


def _tally(study: StudyRecords, task: str, injection: str, pick: Pick) -> Tally:
    arm = study.arm(f"injection_{injection}_on_{task}")
    if arm is None:
        raise ValueError(f"{study.name} has no record of {injection} injection on {task}")
    return Series(arm).tally(pick)


def _part(what: str, holds: bool, predicted: str) -> str:
    return f"{what} ({predicted}: **{'confirmed' if holds else 'refuted'}**)"


def _means(tallies: Shares, *names: str) -> str:
    return ", ".join(f"{name} {percent(tallies[name].mean())}" for name in names)


def _range(tallies: Shares) -> float:
    means = [tally.mean() for tally in tallies.values()]
    return max(means) - min(means)


def excess_rows(study: StudyRecords) -> tuple[list[str], list[list[str]]]:
    """Return heads and rows of the studies of beliefs: every automaton and model, by length."""
    lengths = (_TRAINED, 160, *FAR)
    heads = ["automaton", "model", *(f"{length:,}" for length in lengths), GOAL_HEADING]
    rows = []
    for process, arms in by_process(study).items():
        for place, (tracker, arm) in enumerate(arms.items()):
            cells = [
                cell(_excess(arm, length), excess_words).removesuffix(f" ×{len(study.seeds)}") for length in lengths
            ]
            rows.append([process_label(process) if place == 0 else "", label(tracker), *cells, reached(arm)])
    return heads, rows


def excess_outcomes(study: StudyRecords, wide: StudyRecords) -> list[str]:
    """Say of each prediction about ``tracking`` what came out, part by part, in the order of the page."""
    arms = by_process(study)
    if tuple(arms) != TRACKED:
        raise ValueError(f"{study.name} must have records of {', '.join(TRACKED)}; it has {', '.join(arms)}")

    def means(tracker: str, length: int) -> list[float]:
        return [_excess(arms[process][tracker], length).mean() for process in TRACKED]

    def growth(tracker: str) -> list[float]:
        near, far = means(tracker, _TRAINED), means(tracker, FAR[1])
        return [late / early for early, late in zip(near, far, strict=True)]

    filters = [within_goal(arms[process]["filter"]) for process in TRACKED]
    best = [best_of_others(arms[process]) for process in TRACKED]
    lstm, near_bayes = means("lstm", FAR[1]), [within_goal(arms[process]["lstm"]) for process in TRACKED]
    reaching = sum(sum(tally.values.values()) for tally in near_bayes)
    seeds = ", ".join(f"{process_label(one)}: {reached(arms[one]['filter'])}" for one in TRACKED)
    peers = ", ".join(f"{process_label(one)}: {label(name)}" for one, name in zip(TRACKED, best, strict=True))
    dense, orthogonal, transformer = (means(name, _TRAINED) for name in ("dense", "orthogonal", "transformer"))
    turned, grown = growth("orthogonal"), growth("transformer")
    lines = [
        [
            _part(
                f"Filter: seeds within 1 % at both lengths: {seeds}", all(tally.least == 1 for tally in filters), "all"
            )
        ],
        [
            _part(f"Best peer at 2 560: {peers}", set(best) == {"lstm"}, "LSTM on all"),
            _part(f"LSTM {_between(lstm)}", all(GOAL <= value <= 0.1 for value in lstm), "1 to 10 %"),
            _part(f"seeds of it within 1 %: {reaching:.0f}", reaching == 0, "none"),
        ],
        [
            _part(f"Dense head at 40 {_between(dense)}", max(dense) < 0.1, "below 10 %"),
            _part(f"at 2 560 {_between(means('dense', FAR[1]))}", min(means("dense", FAR[1])) > 1, "above 100 %"),
        ],
        [
            _part(f"Orthogonal head at 40 {_between(orthogonal)}", min(orthogonal) > 0.1, "above 10 %"),
            _part(f"at 2 560 up to {max(turned):.2f} times as much", max(turned) <= 2, "at most twice"),
        ],
        _columns(arms),
        [
            _part(f"Transformer at 40 {_between(transformer)}", max(transformer) < 0.1, "below 10 %"),
            _part(f"at 2 560 at least {min(grown):.2f} times as much", min(grown) >= 2, "at least twice"),
        ],
        _wide(by_process(wide)),
    ]
    return [f"{'; '.join(parts)}." for parts in lines]


def _columns(arms: Mapping[str, Mapping[str, ArmRuns]]) -> list[str]:
    parts = []
    for process in TRACKED:
        columns, orthogonal = (_excess(arms[process][name], FAR[0]).mean() for name in ("columns", "orthogonal"))
        below = process.endswith("fast")
        what = f"{process_label(process)}: columns {excess_words(columns)}, orthogonal {excess_words(orthogonal)}"
        parts.append(_part(what, (columns < orthogonal) == below, "below" if below else "above"))
    return parts


def _wide(arms: Mapping[str, Mapping[str, ArmRuns]]) -> list[str]:
    parts = []
    if "filter" in arms.get("16_slow", {}):
        tally = _excess(arms["16_slow"]["filter"], FAR[0])
        what = f"Filter of 16 states at 640 {excess_words(tally.least)}–{excess_words(tally.largest)}"
        parts.append(_part(what, tally.least > GOAL and tally.largest < 0.03, "above 1 %, below 3 %"))
    else:
        parts.append("16 states: not run")
    for process in ("8_slow_revealed", "8_slow_vague"):
        if "filter" in arms.get(process, {}):
            arm = arms[process]["filter"]
            what = f"{process_label(process)}: {reached(arm)} within 1 %"
            parts.append(_part(what, within_goal(arm).least == 1, "all"))
        else:
            parts.append(f"{process_label(process)}: not run")
    return parts


def _excess(arm: ArmRuns, length: int) -> Tally:
    return Series(arm).tally(at(length, "excess"))


def _between(values: list[float]) -> str:
    return f"{excess_words(min(values))}–{excess_words(max(values))}"
