"""What became of predictions that were written down before a study ran."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from transductor.report.study_cells import cell
from transductor.report.study_records import Pick, Series, StudyRecords, Tally, at, worst_kind
from transductor.report.style import percent
from transductor.study_names import INJECTED_TASKS, INJECTIONS

_LENGTHS: Final = (20, 40, 160)
_TITLES: Final = {"counting": "mod-5 counting", "held_count": "held count", "flip_flop": "flip-flop"}
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
