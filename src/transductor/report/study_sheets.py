"""The tables of each study as plain text in rows, for the terminal and for files alike."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from transductor.report.study_cells import (
    LAST_DIGIT_FIRST,
    NOTHING,
    Sheet,
    Words,
    arm_label,
    cell,
    counted,
    heading,
    inputs_of,
    lengths_of,
    model,
    named,
    plain,
    scientific,
    seeds_of,
    worst,
)
from transductor.report.study_claims import CLAIMS
from transductor.report.study_records import ArmRuns, Entries, Series, StudyRecords, Tally, at
from transductor.report.study_tracking import ablation_sheets, state_tracking_sheets, states_found
from transductor.report.style import label, percent


def study_sheets(study: StudyRecords) -> list[Sheet]:
    """All tables of a study, those that answer its question first."""
    numbers = any("mse" in entry for series in study.series() for _, entries in series.answers() for entry in entries)
    own = {
        "long_addition": _long_addition,
        "base_two_value": _base_two_value,
        "state_tracking": state_tracking_sheets,
        "ablations": ablation_sheets,
    }.get(study.name, _base_two_value if numbers else _by_input)
    sheets = [_claims(study), *own(study), _machines(study), _runs(study)]
    return [sheet for sheet in sheets if sheet.rows]


def _claims(study: StudyRecords) -> Sheet:
    rows = []
    for claim in CLAIMS.get(study.name, ()):
        pick = at(claim.length, claim.key)
        words = scientific if claim.key == "mse" else percent
        asked = [(claim.arm, "learned")]
        if claim.automaton:
            asked += [("transductor_ours", "learned"), ("transductor_ours", "hardened")]
        found = [(study.arm(name), form) for name, form in asked]
        cells = [cell(Series(arm, form).tally(pick), words) if arm else "no record" for arm, form in found]
        rows.append((claim.section, claim.says, *cells, *[NOTHING] * (3 - len(cells))))
    columns = ("section of the paper", "the paper says", "its recipe, run here", "ours, learned", "ours, hardened")
    return Sheet("What the paper says, and what came out on random inputs", columns, tuple(rows))


def _by_input(study: StudyRecords) -> list[Sheet]:
    series = study.series()
    rows = []
    for given in inputs_of(series):
        for length in lengths_of(series, given=given.__eq__):
            rows.append((given, f"{length:,}", *(cell(one.tally(at(length, given=given))) for one in series)))
    return [Sheet("Accuracy over every position", ("input", "length", *map(heading, series)), tuple(rows))]


def _long_addition(study: StudyRecords) -> list[Sheet]:
    series = study.series()
    rows = []
    for given in (name for name in inputs_of(series) if name == "random" or name.startswith("p = ")):
        for length in lengths_of(series, given=given.__eq__):
            rows.append((given, f"{length:,}", *(cell(one.tally(at(length, "exact", given))) for one in series)))
    for length in lengths_of(series):
        rows.append(("worst family", f"{length:,}", *(worst(one, length, "exact") for one in series)))
    names = [name for name in inputs_of(series) if name != "random" and not name.startswith("p = ")]
    failing = tuple((name, *(_first_failure(one, name) for one in series)) for name in names)
    columns = tuple(map(heading, series))
    return [
        Sheet("Exact match of the whole sum, by number of digits", ("input", "digits", *columns), tuple(rows)),
        Sheet("Where each adversarial family first fails", ("family", *columns), failing),
    ]


def _first_failure(series: Series, family: str) -> str:
    """The fewest digits at which a seed is wrong, and how many seeds ever are."""

    def pick(entries: Entries) -> float | None:
        found = [entry for entry in entries if entry["input"] == family]
        wrong = [float(entry["length"]) for entry in found if entry["exact"] < 1]
        return min(wrong, default=math.inf) if found else None

    tally = series.tally(pick)
    if not tally.values:
        return cell(tally)
    wrong = [length for length in tally.values.values() if length < math.inf]
    text = f"{len(wrong)} of {counted(len(tally.values))}, first at {min(wrong):,.0f} digits" if wrong else "never"
    text += "" if wrong else f" ×{len(tally.values)}"
    return f"{text}; {named(tally.absent)}" if tally.absent else text


def _base_two_value(study: StudyRecords) -> list[Sheet]:
    orders = {
        "first digit first": [arm for arm in study.arms if not arm.name.endswith(LAST_DIGIT_FIRST)],
        "last digit first": [arm for arm in study.arms if arm.name.endswith(LAST_DIGIT_FIRST)],
    }
    by_order = {order: {model(one): one for one in study.series(arms)} for order, arms in orders.items() if arms}
    headings = {name: heading(one) for found in by_order.values() for name, one in found.items()}
    everyone = [one for found in by_order.values() for one in found.values()]
    lengths = lengths_of(one for one in everyone if one.form == "learned")

    def sheet(
        title: str,
        lengths: Sequence[int],
        key: str,
        words: Words,
        *,
        given: str = "random",
        change: Callable[[float], float] = lambda value: value,
    ) -> Sheet:
        rows = []
        for order, found in by_order.items():
            for length in lengths:
                pick = at(length, key, given)
                tallies = [found[name].tally(pick) if name in found else Tally({}, {}) for name in headings]
                rows.append((order, f"{length:,}", *(cell(tally.mapped(change), words) for tally in tallies)))
        return Sheet(title, ("digits", "length", *headings.values()), tuple(rows))

    exact = lengths_of(one for one in everyone if one.form == "hardened")
    return [
        sheet("Mean squared error of the value divided by 2^L, at the last digit", lengths, "mse", scientific),
        sheet("Bits: −½ log₂ of the mean squared error", lengths, "mse", plain, change=_bits),
        sheet("Relative error at the last digit", lengths[-1:], "relative_error", scientific),
        sheet("Exact integers, random and adversarial", exact, "exact", percent, given="random and adversarial"),
    ]


def _bits(error: float) -> float:
    return -0.5 * math.log2(error) if error else math.inf


def _machines(study: StudyRecords) -> Sheet:
    rows = []
    for arm in study.arms:
        if arm.hardens:
            rows.append((arm_label(arm), states_found(arm), _agreement(arm), _refusals(arm) or "none"))
    columns = ("model", "states", "what was learned agrees, on short inputs", "refused")
    return Sheet("The exact machines found", columns, tuple(rows))


def _agreement(arm: ArmRuns) -> str:
    """How near the learned model was: in labels, or in numbers."""
    found = {run.seed: run.hardening for run in arm.runs if run.hardening}
    labels = {seed: float(how["agreement"]) for seed, how in found.items() if "agreement" in how}
    numbers = [float(how["farthest_from_an_integer"]) for how in found.values() if "farthest_from_an_integer" in how]
    if numbers:
        return f"values within {scientific(max(numbers))} of an integer"
    return f"{cell(Tally(labels, {}))} of the labels" if labels else NOTHING


def _refusals(arm: ArmRuns) -> str:
    """Seeds by what was said of them; the same reason is given once."""
    reasons: dict[str, list[int]] = {}
    for run in arm.runs:
        if run.hardening and run.hardening["refused"]:
            reasons.setdefault(str(run.hardening["refused"]), []).append(run.seed)
    return "; ".join(f"{seeds_of(seeds)} refused: {reason}" for reason, seeds in reasons.items())


def _runs(study: StudyRecords) -> Sheet:
    rows: list[tuple[str, ...]] = []
    for arm in study.arms:
        reasons: dict[str, list[int]] = {}
        for run in arm.runs:
            if run.failure is not None:
                reasons.setdefault(f"failed: {run.failure}", []).append(run.seed)
        for seed, word in arm.absent.items():
            reasons.setdefault(word, []).append(seed)
        whole = sum(run.failure is None for run in arm.runs)
        words = [f"{whole} of {counted(len(study.seeds))}"]
        words += [f"{seeds_of(seeds)} {reason}" for reason, seeds in reasons.items()]
        unlike = arm.unlike()
        taken = [run.record.measurements["training"] for run in arm.runs if run.failure is None]
        seconds = math.fsum(how["seconds"] / how["together"] for how in taken) / len(taken) if taken else None
        rows.append(
            (
                arm_label(arm),
                arm.column,
                f"{arm.runs[0].record.measurements['parameters']:,}",
                f"{arm.trained_length:,}",
                NOTHING if seconds is None else f"{seconds:,.1f}",
                "; ".join([*words, *([f"settings are not the same: {unlike}"] if unlike else [])]),
            )
        )
    rows += [(label(name), *[NOTHING] * 4, "no readable record") for name in study.missing]
    columns = ("model", "column", "parameters", "trained to", "seconds of training a seed", "runs")
    return Sheet("Runs", columns, tuple(rows))
