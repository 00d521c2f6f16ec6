"""The cells of a study's tables: a mean, the least and the largest, and every seed without a number."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from transductor.report.study_records import (
    OVERFLOW,
    ArmRuns,
    Series,
    StudyRecords,
    Tally,
    adversarial_entries,
    is_adversarial,
    worst_kind,
)
from transductor.report.style import label, percent

NOTHING: Final = "–"
LAST_DIGIT_FIRST: Final = "_last_digit_first"
_HEADINGS: Final = {
    "transductor_paper": "paper",
    "transductor_ours": "ours, learned",
    "transductor_hardened": "ours, hardened",
    "lstm_paper": "paper: LSTM",
    "transformer_paper": "paper: Transformer",
}
Words = Callable[[float], str]


@dataclass(frozen=True)
class Sheet:
    """A table: every row has as many cells as there are columns."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def model(series: Series) -> str:
    """Return the name that determines label and colour: a model has the same in every study."""
    name = series.arm.name.removesuffix(LAST_DIGIT_FIRST)
    if series.form == "learned":
        return name
    return "transductor_hardened" if name == "transductor_ours" else f"{name}, hardened"


def arm_label(arm: ArmRuns) -> str:
    """Return the label of a row about an arm in any form."""
    name = label(arm.name.removesuffix(LAST_DIGIT_FIRST)).removesuffix(", learned")
    return f"{name}, last digit first" if arm.name.endswith(LAST_DIGIT_FIRST) else name


def heading(series: Series) -> str:
    """Return the heading of a column."""
    return _HEADINGS.get(model(series), label(model(series)))


def cell(tally: Tally, words: Words = percent) -> str:
    """Write mean (least–largest) × seeds, and name every seed that has no number."""
    count, seeds = len(tally.values), len(tally.values) + len(tally.absent)
    if not seeds:
        return NOTHING
    if not count:
        return f"none of {seeds}; {named(tally.absent)}"
    mean, least, largest = words(tally.mean()), words(tally.least), words(tally.largest)
    text = mean if least == largest else f"{mean} ({least}–{largest})"
    return f"{text} ×{count}" + (f" of {seeds}; {named(tally.absent)}" if tally.absent else "")


def named(absent: Mapping[int, str]) -> str:
    """Write seeds grouped by the reason they are absent."""
    groups: dict[str, list[int]] = {}
    for seed, reason in absent.items():
        groups.setdefault(reason, []).append(seed)
    numbers = {reason: ", ".join(map(str, seeds)) for reason, seeds in groups.items()}
    return "; ".join(f"seed{'s' * (len(groups[reason]) > 1)} {numbers[reason]} {reason}" for reason in groups)


def counted(seeds: int) -> str:
    """Write how many seeds there are."""
    return "1 seed" if seeds == 1 else f"{seeds} seeds"


def scientific(value: float) -> str:
    """Write an error; errors span many orders of magnitude."""
    return "overflow" if value >= OVERFLOW else f"{value:.1e}" if value else "0"


def plain(value: float) -> str:
    """Write a number with one decimal."""
    return "∞" if math.isinf(value) else f"{value:,.1f}"


def lengths_of(series: Iterable[Series], *, kinds: Callable[[str], bool] = lambda _: True) -> list[int]:
    """Return every length that any of them was judged at, on inputs of these kinds."""
    return sorted({e["length"] for one in series for _, entries in one.answers() for e in entries if kinds(e["input"])})


def random_lengths(*series: Series) -> list[int]:
    """Return every length of random inputs that any of them was judged at."""
    return lengths_of(series, kinds="random".__eq__)


def adversarial_lengths(*series: Series) -> list[int]:
    """Return every length of adversarial inputs that any of them was judged at."""
    return lengths_of(series, kinds=is_adversarial)


def inputs_of(series: Iterable[Series]) -> list[str]:
    """Return the names of inputs: random ones first, then biased ones, then adversarial ones."""
    names = {entry["input"] for one in series for _, entries in one.answers() for entry in entries}
    return sorted(names, key=lambda name: (name != "random", is_adversarial(name), name))


def by_digit_order(study: StudyRecords) -> dict[str, tuple[Series, ...]]:
    """Return the series of a study of numerals by the order of digits; an order without arms is left out."""
    orders = {"first digit first": False, "last digit first": True}
    arms = {
        order: [arm for arm in study.arms if arm.name.endswith(LAST_DIGIT_FIRST) == last]
        for order, last in orders.items()
    }
    return {order: study.series(members) for order, members in arms.items() if members}


def worst(series: Series, length: int, key: str = "positions") -> str:
    """Write the worst input kind of each seed; name the kinds that are not always right, the worst first."""
    text = cell(series.tally(worst_kind(length, key)))
    values: dict[str, list[float]] = {}
    for _, entries in series.answers():
        for entry in adversarial_entries(entries, length):
            values.setdefault(entry["input"], []).append(entry[key])
    failing = [kind for kind in sorted(values, key=lambda kind: (sum(values[kind]), kind)) if min(values[kind]) < 1]
    if not failing:
        return text
    more = f" and {len(failing) - 2} more" if len(failing) > 2 else ""
    return f"{text}; fails: " + ", ".join(f"“{name}”" for name in failing[:2]) + more
