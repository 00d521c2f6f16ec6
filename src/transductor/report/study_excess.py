"""The tables of ``tracking`` and ``tracking_wide``: how much more models lose than Bayes, and how rates were chosen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from transductor.report.study_cells import NOTHING, Sheet, cell, named, random_lengths
from transductor.report.study_records import OVERFLOW, ArmRuns, Entries, Series, StudyRecords, Tally, at
from transductor.report.style import label

GOAL: Final = 0.01
# 16 and 64 times the trained length.
FAR: Final = (640, 2560)
GOAL_HEADING: Final = f"seeds within {GOAL:.0%} at {FAR[0]:,} and {FAR[1]:,}"
_BEYOND_WRITING: Final = 1e3


def by_process(study: StudyRecords) -> dict[str, dict[str, ArmRuns]]:
    """Return the arms by what they track, and then by model."""
    groups: dict[str, dict[str, ArmRuns]] = {}
    for arm in study.arms:
        tracker, _, process = arm.name.partition("_on_")
        groups.setdefault(process, {})[tracker] = arm
    return groups


def process_label(process: str) -> str:
    """Write what is tracked: ``5_slow`` is *5 states, slow*, ``five_things`` *five things*."""
    states, _, rest = process.partition("_")
    if not states.isdigit():
        return process.replace("_", " ")
    return ", ".join([f"{states} states", *rest.split("_")]) if rest else process


def excess_words(value: float) -> str:
    """Write an excess in percent with two digits or more; what is beyond all use as a power of ten."""
    if value >= OVERFLOW:
        return "overflow"
    if value >= _BEYOND_WRITING:
        return f"10^{math.floor(math.log10(100 * value))}%"
    share = 100 * value
    return f"{share:.2f}%" if share < 10 else f"{share:.1f}%" if share < 100 else f"{share:,.0f}%"


def within_goal(arm: ArmRuns) -> Tally:
    """Return 1 for each seed that is within the goal at both far lengths, 0 for others; a failed run is not."""

    def pick(entries: Entries) -> float | None:
        values = [at(length, "excess")(entries) for length in FAR]
        return None if None in values else float(all(value is not None and value <= GOAL for value in values))

    tally = Series(arm).tally(pick)
    failed = {seed: 0.0 for seed, word in tally.absent.items() if word == "failed"}
    absent = {seed: word for seed, word in tally.absent.items() if seed not in failed}
    return Tally({**tally.values, **failed}, absent)


def best_of_others(arms: Mapping[str, ArmRuns]) -> str:
    """Return the model, of those that are no filter, whose mean excess at the longest words is the least."""
    longest = at(FAR[-1], "excess")
    means = {name: tally.mean() for name, arm in arms.items() if (tally := Series(arm).tally(longest)).values}
    return min((name for name in means if name != "filter"), key=means.__getitem__)


def excess_sheets(study: StudyRecords) -> list[Sheet]:
    """Return how far from Bayes every model is at every length, and the search for its rate."""
    return [_excesses(study), _searches(study)]


def _excesses(study: StudyRecords) -> Sheet:
    lengths = random_lengths(*map(Series, study.arms))
    rows = []
    for process, arms in by_process(study).items():
        for tracker, arm in arms.items():
            rows.append(
                (
                    process_label(process),
                    label(tracker),
                    f"{arm.runs[0].record.measurements['parameters']:,}",
                    *(cell(Series(arm).tally(at(length, "excess")), excess_words) for length in lengths),
                    reached(arm),
                )
            )
    columns = ("automaton", "model", "parameters", *(f"{length:,}" for length in lengths), GOAL_HEADING)
    title = "How much more than Bayes a model loses, at every position of words of that length"
    return Sheet(title, columns, tuple(rows))


def reached(arm: ArmRuns) -> str:
    """Write how many seeds are within the goal at both far lengths."""
    tally = within_goal(arm)
    if not tally.values:
        return NOTHING
    text = f"{sum(tally.values.values()):.0f} of {len(tally.values)}"
    return f"{text}; {named(tally.absent)}" if tally.absent else text


def _searches(study: StudyRecords) -> Sheet:
    rows = []
    for process, arms in by_process(study).items():
        for tracker, arm in arms.items():
            search = arm.runs[0].record.measurements.get("search")
            if search is not None:
                tried = {one["rate"]: math.fsum(one["excess"]) / len(one["excess"]) for one in search["tried"]}
                rows.append((process_label(process), label(tracker), _tried(tried), f"{search['chosen']:g}"))
    columns = ("automaton", "model", "rate: mean excess at the trained length", "chosen")
    return Sheet("The search for the learning rate, on seeds that are not judged", columns, tuple(rows))


def _tried(tried: Mapping[float, float]) -> str:
    return ", ".join(f"{rate:g}: {excess_words(excess)}" for rate, excess in tried.items())
