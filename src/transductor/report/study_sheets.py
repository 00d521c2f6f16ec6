"""The tables of each study as rows of plain text, for the terminal and for files."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from transductor.report.study_cells import (
    NOTHING,
    Sheet,
    Words,
    arm_label,
    by_digit_order,
    cell,
    counted,
    heading,
    inputs_of,
    lengths_of,
    model,
    named,
    plain,
    scientific,
    worst,
)
from transductor.report.study_claims import CLAIMS
from transductor.report.study_code import code_sheets
from transductor.report.study_excess import excess_sheets
from transductor.report.study_records import ArmRuns, Entries, Series, StudyRecords, Tally, at, is_adversarial
from transductor.report.study_tracking import ablation_sheets, state_tracking_sheets, states_found
from transductor.report.style import label, percent
from transductor.study_names import CODE_STUDIES

CLAIMS_TITLE: Final = "What the paper says, and what came out on random inputs"


def study_sheets(study: StudyRecords) -> list[Sheet]:
    """Return all tables of a study, those that answer its question first; any study has tables without being named."""
    own = {
        "long_addition": _long_addition,
        "base_two_value": _values,
        "state_tracking": state_tracking_sheets,
        "ablations": ablation_sheets,
        "deep_injection": ablation_sheets,
        **dict.fromkeys(CODE_STUDIES, code_sheets),
        "tracking": excess_sheets,
        "tracking_wide": excess_sheets,
        "tracking_more": excess_sheets,
        "tracking_inside": excess_sheets,
        "hidden_swaps": excess_sheets,
    }.get(study.name, _values if study.of_numbers else _by_input)
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
        arms = [(study.arm(name), form) for name, form in asked]
        cells = [cell(Series(arm, form).tally(pick), words) if arm else "no record" for arm, form in arms]
        rows.append((claim.section, claim.says, *cells, *[NOTHING] * (3 - len(cells))))
    columns = ("section of the paper", "the paper says", "our reading of its recipe", "ours, learned", "ours, hardened")
    return Sheet(CLAIMS_TITLE, columns, tuple(rows))


def _by_input(study: StudyRecords) -> list[Sheet]:
    series = study.series()
    rows = []
    for kind in inputs_of(series):
        for length in lengths_of(series, kinds=kind.__eq__):
            rows.append((kind, f"{length:,}", *(cell(one.tally(at(length, kind=kind))) for one in series)))
    return [Sheet("Accuracy over every position", ("input", "length", *map(heading, series)), tuple(rows))]


def _long_addition(study: StudyRecords) -> list[Sheet]:
    series = study.series()
    rows = []
    adversarial = [kind for kind in inputs_of(series) if is_adversarial(kind)]
    for kind in (kind for kind in inputs_of(series) if kind not in adversarial):
        for length in lengths_of(series, kinds=kind.__eq__):
            rows.append((kind, f"{length:,}", *(cell(one.tally(at(length, "exact", kind))) for one in series)))
    for length in lengths_of(series):
        rows.append(("worst family", f"{length:,}", *(worst(one, length, "exact") for one in series)))
    failing = tuple((kind, *(_first_failure(one, kind) for one in series)) for kind in adversarial)
    columns = tuple(map(heading, series))
    return [
        Sheet("Exact match of the whole sum, by number of digits", ("input", "digits", *columns), tuple(rows)),
        Sheet("Where each adversarial family first fails", ("family", *columns), failing),
    ]


def _first_failure(series: Series, kind: str) -> str:
    """Write the fewest digits at which a seed is wrong on an input kind, and how many seeds ever are."""

    def pick(entries: Entries) -> float | None:
        judged = [entry for entry in entries if entry["input"] == kind]
        wrong = [float(entry["length"]) for entry in judged if entry["exact"] < 1]
        return min(wrong, default=math.inf) if judged else None

    tally = series.tally(pick)
    if not tally.values:
        return cell(tally)
    wrong = [length for length in tally.values.values() if length < math.inf]
    text = f"{len(wrong)} of {counted(len(tally.values))}, first at {min(wrong):,.0f} digits" if wrong else "never"
    text += "" if wrong else f" ×{len(tally.values)}"
    return f"{text}; {named(tally.absent)}" if tally.absent else text


def _values(study: StudyRecords) -> list[Sheet]:
    by_order = {order: {model(one): one for one in series} for order, series in by_digit_order(study).items()}
    headings = {name: heading(one) for series in by_order.values() for name, one in series.items()}
    all_series = [one for series in by_order.values() for one in series.values()]
    lengths = lengths_of(one for one in all_series if one.form == "learned")

    def sheet(
        title: str,
        lengths: Sequence[int],
        key: str,
        words: Words,
        *,
        kind: str = "random",
        change: Callable[[float], float] = lambda value: value,
    ) -> Sheet:
        rows = []
        for order, series in by_order.items():
            for length in lengths:
                pick = at(length, key, kind)
                tallies = [series[name].tally(pick) if name in series else Tally({}, {}) for name in headings]
                rows.append((order, f"{length:,}", *(cell(tally.mapped(change), words) for tally in tallies)))
        return Sheet(title, ("digits", "length", *headings.values()), tuple(rows))

    exact = lengths_of(one for one in all_series if one.form == "hardened")
    return [
        sheet("Mean squared error of the value divided by 2^L, at the last digit", lengths, "mse", scientific),
        sheet("Bits: −½ log₂ of the mean squared error", lengths, "mse", plain, change=_bits),
        sheet("Relative error at the last digit", lengths[-1:], "relative_error", scientific),
        sheet("Exact integers, random and adversarial", exact, "exact", percent, kind="random and adversarial"),
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
    """Write how near the learned model was, in labels or in numbers."""
    hardenings = {run.seed: run.hardening for run in arm.runs if run.hardening}
    labels = {seed: float(how["agreement"]) for seed, how in hardenings.items() if "agreement" in how}
    distance = "farthest_from_an_integer"
    numbers = [float(how[distance]) for how in hardenings.values() if distance in how]
    if numbers:
        return f"values within {scientific(max(numbers))} of an integer"
    return f"{cell(Tally(labels, {}))} of the labels" if labels else NOTHING


def _refusals(arm: ArmRuns) -> str:
    """Write the seeds that were refused and why; the same reason is given once."""
    refused = {run.seed: run.hardening["refused"] for run in arm.runs if run.hardening}
    return named({seed: f"refused: {reason}" for seed, reason in refused.items() if reason})


def _runs(study: StudyRecords) -> Sheet:
    rows: list[tuple[str, ...]] = []
    for arm in study.arms:
        trainings = [run.record.measurements["training"] for run in arm.runs if run.failure is None]
        seconds = [how["seconds"] / how["together"] for how in trainings]
        words = [f"{len(trainings)} of {counted(len(study.seeds))}"]
        failed = {run.seed: f"failed: {run.failure}" for run in arm.runs if run.failure is not None}
        if failed or arm.absent:
            words.append(named({**failed, **arm.absent}))
        if unlike := arm.unlike():
            words.append(f"settings are not the same: {unlike}")
        rows.append(
            (
                arm_label(arm),
                arm.column,
                f"{arm.runs[0].record.measurements['parameters']:,}",
                f"{arm.trained_length:,}",
                f"{math.fsum(seconds) / len(seconds):,.1f}" if seconds else NOTHING,
                "; ".join(words),
            )
        )
    rows += [(label(name), *[NOTHING] * 4, "no readable record") for name in study.missing]
    columns = ("model", "column", "parameters", "trained to", "seconds of training a seed", "runs")
    return Sheet("Runs", columns, tuple(rows))
