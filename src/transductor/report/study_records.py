"""Reading the records of studies: what was run, what was measured, and what is missing."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from transductor.report.study_fields import check_study_record
from transductor.results import Record, read_record
from transductor.study_names import ARMS

Entry = Mapping[str, Any]
Entries = Sequence[Entry]
OVERFLOW: Final = 1e300  # records hold 1e308 where a number overflowed
# Picks one number from the entries of a run; None where it was not measured.
Pick = Callable[[Entries], float | None]


@dataclass(frozen=True)
class Run:
    """One record, which is one seed of one arm."""

    seed: int
    record: Record

    @property
    def arm(self) -> Mapping[str, Any]:
        """The arm's settings as plain data."""
        arm: Mapping[str, Any] = self.record.settings["arm"]
        return arm

    @property
    def failure(self) -> str | None:
        """Why training stopped before its end, if it did."""
        reason: str | None = self.record.measurements["training"]["failure"]
        return reason

    @property
    def hardening(self) -> Mapping[str, Any] | None:
        """How the exact machine was found; None where none was looked for."""
        hardening: Mapping[str, Any] | None = self.record.measurements.get("hardening")
        return hardening

    def entries(self, form: str) -> Entries | None:
        """Return how the form ``"learned"`` or ``"hardened"`` was judged; None where it was not, or training failed."""
        entries: Entries | None = None if self.failure is not None else self.record.measurements.get(form)
        return entries

    def without(self, form: str) -> str | None:
        """Return one word on why this form was not judged; None where it was, or was not asked for."""
        if self.failure is not None:
            return "failed"
        return "refused" if form == "hardened" and self.hardening and self.hardening["refused"] else None


@dataclass(frozen=True)
class ArmRuns:
    """The runs of one arm, and one word for each seed of the study that has no readable record."""

    name: str
    runs: tuple[Run, ...]
    absent: Mapping[int, str]

    @property
    def column(self) -> str:
        """``"paper"``, ``"ours"`` or ``"baseline"``."""
        return str(self.runs[0].arm["column"])

    @property
    def trained_length(self) -> int:
        """The length of the longest input in training."""
        return int(self.runs[0].arm["training"]["length"])

    @property
    def chance(self) -> float:
        """What a guess that ignores the input achieves."""
        return float(self.runs[0].record.measurements["chance"])

    @property
    def hardens(self) -> bool:
        """Say whether any run looked for the exact machine."""
        return any(run.hardening is not None for run in self.runs)

    def unlike(self) -> str | None:
        """Say which settings differ between seeds, if any do: then a mean is not that of one arm."""
        first = self.runs[0].arm
        keys = [key for key in first if any(run.arm.get(key) != first[key] for run in self.runs)]
        if not keys:
            return None
        groups: dict[str, list[int]] = {}
        for run in self.runs:
            groups.setdefault(json.dumps(run.arm, sort_keys=True), []).append(run.seed)
        return f"{', '.join(keys)} differ between seeds " + " and ".join(
            ", ".join(map(str, seeds)) for seeds in groups.values()
        )


@dataclass(frozen=True)
class Tally:
    """One number per seed, and one word for each seed that has none."""

    values: Mapping[int, float]
    absent: Mapping[int, str]

    def mean(self) -> float:
        """Return the mean over the seeds that have a number; where one overflowed, so does the mean."""
        return self.largest if self.largest >= OVERFLOW else math.fsum(self.values.values()) / len(self.values)

    @property
    def least(self) -> float:
        """The smallest number."""
        return min(self.values.values())

    @property
    def largest(self) -> float:
        """The largest number."""
        return max(self.values.values())

    def mapped(self, function: Callable[[float], float]) -> Tally:
        """Return the tally with the function applied to each number."""
        return Tally({seed: function(value) for seed, value in self.values.items()}, self.absent)


@dataclass(frozen=True)
class Series:
    """A column of a table or a line of a figure: an arm as it was learned, or hardened."""

    arm: ArmRuns
    form: str = "learned"

    def tally(self, pick: Pick) -> Tally:
        """Return the number of each seed; a seed without one is only named where another seed has one."""
        values: dict[int, float] = {}
        absent, not_judged = dict(self.arm.absent), {}
        for run in self.arm.runs:
            entries = run.entries(self.form)
            value = None if entries is None else pick(entries)
            if value is not None:
                values[run.seed] = value
            elif entries is None and (word := run.without(self.form)):
                absent[run.seed] = word
            else:
                not_judged[run.seed] = "not judged"
        asked = values or not not_judged
        return Tally(values, dict(sorted((absent | not_judged).items())) if asked else {})

    def answers(self) -> Iterator[tuple[int, Entries]]:
        """Yield the seeds that were judged, and their entries."""
        for run in self.arm.runs:
            entries = run.entries(self.form)
            if entries is not None:
                yield run.seed, entries


@dataclass(frozen=True)
class StudyRecords:
    """All records of one study.

    Attributes:
        name: Name of the study.
        question: What it asks.
        arms: The arms with at least one readable record.
        missing: Names of arms that the study is known to have and that have no readable record.
        seeds: Every seed that some arm has a file for.
        damaged: A sentence for each file that cannot be read, which names it.
    """

    name: str
    question: str
    arms: tuple[ArmRuns, ...]
    missing: tuple[str, ...]
    seeds: tuple[int, ...]
    damaged: tuple[str, ...]

    @property
    def quick(self) -> bool:
        """Whether some run was only a check that everything runs."""
        return any(run.arm.get("quick", False) for arm in self.arms for run in arm.runs)

    def arm(self, name: str) -> ArmRuns | None:
        """Return the arm of that name, if it has records."""
        return next((arm for arm in self.arms if arm.name == name), None)

    def series(self, arms: Sequence[ArmRuns] | None = None) -> tuple[Series, ...]:
        """Return each arm as it was learned, and our arms also hardened."""
        return tuple(
            Series(arm, form)
            for arm in (self.arms if arms is None else arms)
            for form in ("learned", "hardened")
            if form == "learned" or arm.column == "ours" or arm.hardens
        )

    @property
    def of_numbers(self) -> bool:
        """Whether labels are numbers."""
        return any("mse" in entry for series in self.series() for _, entries in series.answers() for entry in entries)


def at(length: int, key: str = "positions", kind: str = "random", task: str | None = None) -> Pick:
    """Pick the number under ``key`` on inputs of that kind and length."""

    def pick(entries: Entries) -> float | None:
        for entry in entries:
            same = (entry["input"], entry["length"]) == (kind, length) and task in (None, entry["task"])
            if same and entry.get(key) is not None:
                return float(entry[key])
        return None

    return pick


def is_adversarial(kind: str) -> bool:
    """Say whether inputs of this name are adversarial, and not drawn at random."""
    return kind != "random" and not kind.startswith("p = ")


def adversarial_entries(entries: Entries, length: int) -> list[Entry]:
    """Return the entries of adversarial inputs of that length that have a label."""
    return [
        entry
        for entry in entries
        if is_adversarial(entry["input"]) and entry["length"] == length and entry.get("labels")
    ]


def worst_kind(length: int, key: str = "positions") -> Pick:
    """Pick the least number over all adversarial input kinds of that length."""

    def pick(entries: Entries) -> float | None:
        values = [entry[key] for entry in adversarial_entries(entries, length)]
        return float(min(values)) if values else None

    return pick


def read_studies(folder: str | Path) -> list[StudyRecords]:
    """Read every study with records at ``FOLDER/<study>/<arm>/seed<k>.json``; unreadable files are only named."""
    folder = Path(folder)
    places: dict[str, dict[str, dict[int, Path]]] = {}
    for path in sorted(folder.glob("*/*/seed*.json")):
        study, arm, name = path.relative_to(folder).parts
        number = re.fullmatch(r"seed(\d+)\.json", name)
        if number and not study.startswith(".") and not arm.startswith("."):
            places.setdefault(study, {}).setdefault(arm, {})[int(number[1])] = path
    if not places:
        raise FileNotFoundError(f"{folder} holds no records of a study: none is at <study>/<arm>/seed<k>.json")
    names = [name for name in ARMS if name in places] + [name for name in places if name not in ARMS]
    return [_study(folder, name, places[name]) for name in names]


def _study(folder: Path, name: str, places: Mapping[str, Mapping[int, Path]]) -> StudyRecords:
    seeds = tuple(sorted({seed for paths in places.values() for seed in paths}))
    known = ARMS.get(name, ())
    order = [arm for arm in known if arm in places] + sorted((arm for arm in places if arm not in known), key=_natural)
    arms, damaged = [], []
    for arm in order:
        runs: list[Run] = []
        absent = {seed: "missing" for seed in seeds if seed not in places[arm]}
        for seed, path in sorted(places[arm].items()):
            try:
                record = read_record(path)
                check_study_record(record, name, arm, seed)
                runs.append(Run(seed, record))
            except ValueError as error:
                absent[seed] = "damaged"
                damaged.append(_sentence(error, path, folder))
        if runs:
            arms.append(ArmRuns(arm, tuple(runs), absent))
    readable = {arm.name for arm in arms}
    question = str(arms[0].runs[0].record.settings["question"]) if arms else ""
    missing = tuple(arm for arm in (*known, *sorted(set(places) - set(known))) if arm not in readable)
    return StudyRecords(name, question, tuple(arms), missing, seeds, tuple(damaged))


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts numbers within names by value."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _sentence(error: Exception, path: Path, folder: Path) -> str:
    """Return a sentence that names the file relative to the folder, so that copies give the same report."""
    place = path.relative_to(folder).as_posix()
    text = str(error).replace(str(path), place)
    if place not in text:
        text = f"{place} is not a record of a study: {error}"
    return " ".join(text.split())
