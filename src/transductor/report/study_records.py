"""Records of studies, read back: what was run, what came out of it, and what is missing."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from transductor.results import Record, read_record

Entry = Mapping[str, Any]
Entries = Sequence[Entry]
OVERFLOW: Final = 1e300  # records hold 1e308 where a number overflowed
# What one run says on one question; None where it was not asked.
Pick = Callable[[Entries], float | None]

_FAMILIES: Final = (
    "cayley",
    "squared_cayley",
    "exponential",
    "signed_cayley",
    "orthogonal",
    "householder",
    "dense",
    "diagonal",
    "stochastic",
)
_COUNTING: Final = (
    "transductor_paper",
    "transductor_ours",
    "transformer_learned",
    "transformer_rotary",
    "transformer_relative",
    "transformer_none",
)
# The arms of each study in the order in which they are shown; records say nothing of those that have none.
ARMS: Final[dict[str, tuple[str, ...]]] = {
    "regular_gap": _COUNTING,
    "length_generalization": _COUNTING,
    "long_addition": ("transductor_paper", "transductor_ours", "transformer_learned", "transformer_rotary"),
    "base_two_value": (
        "transductor_paper",
        "transductor_ours",
        "lstm_paper",
        "transformer_paper",
        "lstm",
        "transformer_relative",
        "transductor_ours_last_digit_first",
        "lstm_last_digit_first",
        "transformer_relative_last_digit_first",
    ),
    "state_tracking": (
        "parity",
        "even_pairs",
        "cycle_navigation",
        "modular_arithmetic",
        "a5_two_generators",
        "a5_all_elements",
        "s5_two_generators",
        "s5_swaps",
        "s5_32_random_generators",
        "s5_all_elements",
        "c6",
        "s3",
        "flip_flop",
    ),
    "ablations": (
        *(f"injection_{name}" for name in ("deep", "input", "none")),
        *(f"family_{family}_on_{task}" for task in ("counting", "parity", "flip_flop") for family in _FAMILIES),
        *(f"smoothing_{name}_on_{task}" for task in ("parity", "arithmetic") for name in ("none", "tenth")),
        *(f"start_{name}" for name in ("at_identity", "near_identity", "away", "far_away")),
        *(f"frozen_{dim}" for dim in (2, 8, 32, 128, 512)),
        "learned_2",
        *(f"positions_{name}" for name in ("none", "learned", "rotary", "sinusoidal")),
    ),
}


@dataclass(frozen=True)
class Run:
    """One record: one seed of one arm."""

    seed: int
    record: Record

    @property
    def arm(self) -> Mapping[str, Any]:
        """The arm's settings, plain."""
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
        found: Mapping[str, Any] | None = self.record.measurements.get("hardening")
        return found

    def entries(self, form: str) -> Entries | None:
        """What ``"learned"`` or ``"hardened"`` was judged to be."""
        found: Entries | None = self.record.measurements.get(form)
        return found

    def without(self, form: str) -> str | None:
        """One word on why there is nothing of this form; None where there is, or where nothing was asked."""
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
        """The longest input in training."""
        return int(self.runs[0].arm["training"]["length"])

    @property
    def chance(self) -> float:
        """What a guess that never looks achieves."""
        return float(self.runs[0].record.measurements["chance"])

    @property
    def hardens(self) -> bool:
        """Whether any run looked for the exact machine."""
        return any(run.hardening is not None for run in self.runs)

    def unlike(self) -> str | None:
        """Which settings differ between seeds, if any do: then a mean is one of different things."""
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
    """One number per seed, and one word for each seed without."""

    values: Mapping[int, float]
    absent: Mapping[int, str]

    def mean(self) -> float:
        """Over the seeds that have one; where one overflowed, so does the mean."""
        largest = max(self.values.values())
        return largest if largest >= OVERFLOW else math.fsum(self.values.values()) / len(self.values)

    def mapped(self, function: Callable[[float], float]) -> Tally:
        """Each number replaced."""
        return Tally({seed: function(value) for seed, value in self.values.items()}, self.absent)


@dataclass(frozen=True)
class Series:
    """One column of a table, one line of a figure: an arm as it was learned, or hardened."""

    arm: ArmRuns
    form: str = "learned"

    def tally(self, pick: Pick) -> Tally:
        """What each seed says; a seed that was not asked is only named where another was."""
        values: dict[int, float] = {}
        absent, silent = dict(self.arm.absent), {}
        for run in self.arm.runs:
            entries = self._entries(run)
            value = None if entries is None else pick(entries)
            if value is not None:
                values[run.seed] = value
            elif entries is None and (word := run.without(self.form)):
                absent[run.seed] = word
            else:
                silent[run.seed] = "not judged"
        asked = values or not silent
        return Tally(values, dict(sorted((absent | silent).items())) if asked else {})

    def answers(self) -> Iterator[tuple[int, Entries]]:
        """The seeds that were judged, and their entries."""
        for run in self.arm.runs:
            entries = self._entries(run)
            if entries is not None:
                yield run.seed, entries

    def _entries(self, run: Run) -> Entries | None:
        return None if run.failure is not None else run.entries(self.form)


@dataclass(frozen=True)
class StudyRecords:
    """All records of one study.

    Attributes:
        name: Of the study.
        question: What it asks.
        arms: Those with at least one readable record.
        missing: Arms that the study is known to have and that have no readable record.
        seeds: Every seed that some arm has a file for.
        damaged: A sentence for each file that cannot be read, which names it.
    """

    name: str
    question: str
    arms: tuple[ArmRuns, ...]
    missing: tuple[str, ...]
    seeds: tuple[int, ...]
    damaged: tuple[str, ...]

    def arm(self, name: str) -> ArmRuns | None:
        """The arm of that name, if it has records."""
        return next((arm for arm in self.arms if arm.name == name), None)

    def series(self, arms: Sequence[ArmRuns] | None = None) -> tuple[Series, ...]:
        """Each arm as it was learned; what is ours also hardened."""
        return tuple(
            Series(arm, form)
            for arm in (self.arms if arms is None else arms)
            for form in ("learned", "hardened")
            if form == "learned" or arm.column == "ours" or arm.hardens
        )


def at(length: int, key: str = "positions", given: str = "random", task: str | None = None) -> Pick:
    """The number under ``key`` on inputs of that name and length."""

    def pick(entries: Entries) -> float | None:
        for entry in entries:
            same = (entry["input"], entry["length"]) == (given, length) and task in (None, entry["task"])
            if same and entry.get(key) is not None:
                return float(entry[key])
        return None

    return pick


def is_family(entry: Entry) -> bool:
    """Whether the input is one that an enemy chose."""
    return entry["input"] != "random" and not str(entry["input"]).startswith("p = ")


def families(entries: Entries, length: int) -> list[Entry]:
    """The adversarial inputs of that length that have a label."""
    return [entry for entry in entries if is_family(entry) and entry["length"] == length and entry.get("labels")]


def worst_family(length: int, key: str = "positions") -> Pick:
    """The least over all adversarial families of that length."""

    def pick(entries: Entries) -> float | None:
        found = [entry[key] for entry in families(entries, length)]
        return float(min(found)) if found else None

    return pick


def read_studies(folder: str | Path) -> list[StudyRecords]:
    """Every study with records at ``FOLDER/<study>/<arm>/seed<k>.json``; what cannot be read is named, not raised."""
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
    seeds = tuple(sorted({seed for found in places.values() for seed in found}))
    known = ARMS.get(name, ())
    order = [arm for arm in known if arm in places] + sorted((arm for arm in places if arm not in known), key=_natural)
    arms, damaged = [], []
    for arm in order:
        runs: list[Run] = []
        absent = {seed: "missing" for seed in seeds if seed not in places[arm]}
        for seed, path in sorted(places[arm].items()):
            try:
                record = read_record(path)
                _check(record, name, arm, seed)
                runs.append(Run(seed, record))
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                absent[seed] = "damaged"
                damaged.append(_sentence(error, path, folder))
        if runs:
            arms.append(ArmRuns(arm, tuple(runs), absent))
    found = {arm.name for arm in arms}
    question = str(arms[0].runs[0].record.settings["question"]) if arms else ""
    missing = tuple(arm for arm in (*known, *sorted(set(places) - set(known))) if arm not in found)
    return StudyRecords(name, question, tuple(arms), missing, seeds, tuple(damaged))


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _sentence(error: Exception, path: Path, folder: Path) -> str:
    """Names the file as it lies in the folder, so that reports of copies are the same."""
    place = path.relative_to(folder).as_posix()
    text = str(error).replace(str(path), place)
    if place not in text:
        text = f"{place} is not a record of a study: {error if isinstance(error, ValueError) else repr(error)}"
    return " ".join(text.split())


def _check(record: Record, study: str, arm: str, seed: int) -> None:
    """Refuse what tables and figures could not rely on."""
    settings, measured = record.settings, record.measurements
    place = (settings["study"], settings["arm"]["name"], settings["seed"])
    if place != (study, arm, seed):
        raise ValueError("it is the one of {}/{}, seed {}".format(*place))
    _numbers(settings["arm"]["training"], "length")
    _numbers(measured, "chance", "parameters")
    _numbers(measured["training"], "seconds", "together")
    if measured["training"]["failure"] is None and not measured["learned"]:
        raise ValueError("its training did not fail, but nothing is said of what was learned")
    if (hardening := measured.get("hardening")) is not None and hardening["refused"] is None:
        _numbers(hardening, "states")
    for form in ("learned", "hardened"):
        for entry in measured.get(form) or ():
            _numbers(entry, "length", "sequences")
            if "mse" in entry:
                _numbers(entry, "mse", *(("relative_error",) if entry["relative_error"] is not None else ()))
            elif "positions" in entry:
                _numbers(entry, "labels", "positions", "beyond", "exact", "mistakes")
            else:
                _numbers(entry, "exact")
            for end, value in entry.get("curve", ()):
                _numbers({"curve": end + value}, "curve")
            if not isinstance(entry["input"], str) or not isinstance(entry["task"], str):
                raise ValueError("an entry has no name for its input or its task")


def _numbers(found: Mapping[str, Any], *keys: str) -> None:
    for key in keys:
        value = found[key]
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
            raise ValueError(f"{key} must be a finite number; got {value!r}")
