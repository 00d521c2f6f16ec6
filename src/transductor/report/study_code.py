"""The tables of studies of source code: bits a byte, paired differences, forced choices, states, costs."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from transductor.report.study_cells import NOTHING, Sheet, arm_label, cell
from transductor.report.study_records import ArmRuns, Entry, Series, StudyRecords, Tally, at

FILES: Final = "files"
REFERENCE: Final = "transformer"
KINDS: Final = ("_window_30m", "_window", "_full", "_long", "")
"""Endings of names that say which attention, and which size."""

DISTANCES: Final = ("to 16", "to 64", "to 256", "to 1,024", "beyond")
"""Bins of distance, as records hold them; see ``transductor.studies.code_judging``."""

_DRAWS: Final = 2000


def code_arms(study: StudyRecords) -> list[ArmRuns]:
    """Return the arms that were judged on files of source code."""
    return [arm for arm in study.arms if any(lengths_of_files(arm))]


def lengths_of_files(arm: ArmRuns) -> list[int]:
    """Return the lengths to which files were read."""
    return sorted({e["length"] for _, entries in Series(arm).answers() for e in entries if e["input"] == FILES})


def reference_of(study: StudyRecords, arm: ArmRuns) -> ArmRuns | None:
    """Return the Transformer that an arm stands beside: the one with the same attention and size."""
    if arm.name.startswith(REFERENCE):
        return None
    named = (study.arm(REFERENCE + kind) for kind in KINDS if arm.name.endswith(kind))
    return next((each for each in named if each is not None), None)


def entry_of(arm: ArmRuns, seed: int, length: int) -> Entry | None:
    """Return how one seed of an arm was judged on files read to a length."""
    for number, entries in Series(arm).answers():
        for entry in entries:
            if number == seed and (entry["input"], entry["length"]) == (FILES, length):
                return entry
    return None


def paired(arm: ArmRuns, other: ArmRuns, length: int) -> tuple[float, float, float, int] | None:
    """Return the mean difference in bits a byte to another arm, its 95 % interval, and how many seeds both have.

    Differences are taken file by file, averaged over seeds, and drawn again by file (percentiles of 2 000 draws).
    """
    by_file: dict[int, list[float]] = {}
    seeds = 0
    for run in arm.runs:
        ours, theirs = entry_of(arm, run.seed, length), entry_of(other, run.seed, length)
        if ours is None or theirs is None:
            continue
        seeds += 1
        beside = dict(theirs["files"])
        for place, bits in ours["files"]:
            if place in beside:
                by_file.setdefault(place, []).append(bits - beside[place])
    if not by_file:
        return None
    differences = [sum(each) / len(each) for each in by_file.values()]
    generator = random.Random(0)
    means = sorted(_mean(generator.choices(differences, k=len(differences))) for _ in range(_DRAWS))
    return _mean(differences), means[int(0.025 * _DRAWS)], means[int(0.975 * _DRAWS) - 1], seeds


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def bits(value: float) -> str:
    """Write bits a byte."""
    return f"{value:.4f}"


def difference(measured: tuple[float, float, float, int] | None) -> str:
    """Write a paired difference and its interval."""
    if measured is None:
        return NOTHING
    mean, low, high, seeds = measured
    return f"{mean:+.4f} ({low:+.4f} to {high:+.4f}) ×{seeds}"


def code_sheets(study: StudyRecords) -> list[Sheet]:
    """Return the tables of a study of source code; of its tasks too, where some arms have them."""
    return [_bits(study), _replaced(study), *_choices(study), _costs(study), _tasks(study)]


def _bits(study: StudyRecords) -> Sheet:
    lengths = sorted({length for arm in code_arms(study) for length in lengths_of_files(arm)})
    rows = []
    for arm in code_arms(study):
        other = reference_of(study, arm)
        row = [arm_label(arm)]
        for length in lengths:
            row.append(cell(judged(arm, length), bits))
            row.append(NOTHING if other is None else difference(paired(arm, other, length)))
        rows.append(tuple(row))
    heads = [head for length in lengths for head in (f"first {length:,} bytes", "difference to its Transformer (95 %)")]
    return Sheet("Bits a byte on files of other packages", ("model", *heads), tuple(rows))


def judged(arm: ArmRuns, length: int) -> Tally:
    """Return the bits a byte of every seed that was run."""
    entries = {run.seed: entry_of(arm, run.seed, length) for run in arm.runs}
    return Tally({seed: float(entry["bits"]) for seed, entry in entries.items() if entry is not None}, {})


def _replaced(study: StudyRecords) -> Sheet:
    rows = []
    for arm in code_arms(study):
        cells = []
        for name in ("zeros", "another file's"):

            def cost(entry: Entry, name: str = name) -> float | None:
                other = entry.get("replaced", {}).get(name)
                return None if other is None else float(other) - float(entry["bits"])

            cells.append(cell(_tally(arm, cost), lambda value: f"{value:+.4f}"))
        if any(each != NOTHING for each in cells):
            rows.append((arm_label(arm), *cells))
    title = "Bits a byte more, when the state is replaced"
    return Sheet(title, ("model", "by zeros", "by that of another file"), tuple(rows))


def _tally(arm: ArmRuns, pick: Callable[[Entry], float | None]) -> Tally:
    """Return a number of each seed from how it was judged on the shortest files."""
    lengths = lengths_of_files(arm)
    values = {}
    for run in arm.runs:
        entry = entry_of(arm, run.seed, lengths[0]) if lengths else None
        value = None if entry is None else pick(entry)
        if value is not None:
            values[run.seed] = value
    return Tally(values, {})


def right_share(arm: ArmRuns, kind: str, length: int, part: int) -> Tally:
    """Return the share of forced choices of a kind, in one bin of distance, that each seed has right."""
    values = {}
    for run in arm.runs:
        entry = entry_of(arm, run.seed, length)
        tally = [] if entry is None else entry.get("choices", {}).get(kind, [])
        if tally and tally[part][0]:
            values[run.seed] = tally[part][1] / tally[part][0]
    return Tally(values, {})


def _choices(study: StudyRecords) -> list[Sheet]:
    arms = code_arms(study)
    lengths = sorted({length for arm in arms for length in lengths_of_files(arm)})
    if not lengths:
        return []
    length = lengths[-1]
    every: Mapping[str, Sequence[tuple[int, int]]] = {}
    for arm in arms:
        for run in arm.runs:
            if (entry := entry_of(arm, run.seed, length)) is not None:
                every = every or entry.get("choices", {})
    sheets = []
    for kind, tally in every.items():
        counts = [count for count, _ in tally]
        heads = [f"{where} (of {count:,})" for where, count in zip(DISTANCES, counts, strict=True)]
        rows = [
            (arm_label(arm), *(cell(right_share(arm, kind, length, part)) for part in range(len(DISTANCES))))
            for arm in arms
            if length in lengths_of_files(arm)
        ]
        title = f"Right choices, files read to {length:,} bytes: {kind}, by how far back it is decided"
        sheets.append(Sheet(title, ("model", *heads), tuple(rows)))
    return sheets


def _costs(study: StudyRecords) -> Sheet:
    rows = []
    for arm in code_arms(study):
        measured = [run.record.measurements.get("costs") for run in arm.runs]
        costs = [each for each in measured if each]
        if not costs:
            continue
        least = min(costs, key=lambda each: float(each["step_seconds"]))
        memory = least["memory_bytes"]
        rows.append(
            (
                arm_label(arm),
                f"{1e3 * least['step_seconds']:.1f}",
                f"{least['tokens_per_second']:,.0f}",
                NOTHING if memory is None else f"{memory / 2**30:.2f}",
                f"{1e3 * least['decode_seconds']:.2f}",
            )
        )
    columns = ("model", "ms a training step", "bytes a second", "GiB of a step", "ms to write a byte")
    return Sheet("Costs: the quickest of all seeds, with other processes on the device", columns, tuple(rows))


def _tasks(study: StudyRecords) -> Sheet:
    """Return how arms did that were trained on a task in place of source code."""
    arms = [arm for arm in study.arms if not lengths_of_files(arm)]
    rows = []
    for arm in arms:
        start, _, task = arm.name.partition("_on_")
        lengths = sorted({e["length"] for _, entries in Series(arm).answers() for e in entries})
        cells = [cell(Series(arm).tally(at(length))) for length in lengths]
        rows.append((task.replace("_", " "), start, *cells))
    lengths = sorted({e["length"] for arm in arms for _, entries in Series(arm).answers() for e in entries})
    heads = (f"{length:,} tokens" for length in lengths)
    return Sheet("Tasks that a head has to carry: accuracy over every position", ("task", "start", *heads), tuple(rows))
