"""What stands in one cell of a study's table: a mean, the least and the largest, and every seed by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from transductor.report.study_records import OVERFLOW, ArmRuns, Series, Tally, families, is_family, worst_family
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
    """The name that gives label and colour: the same model has the same in every study."""
    name = series.arm.name.removesuffix(LAST_DIGIT_FIRST)
    if series.form == "learned":
        return name
    return "transductor_hardened" if name == "transductor_ours" else f"{name}, hardened"


def arm_label(arm: ArmRuns) -> str:
    """Of a row, whatever form its cells are of."""
    name = label(arm.name.removesuffix(LAST_DIGIT_FIRST)).removesuffix(", learned")
    return f"{name}, last digit first" if arm.name.endswith(LAST_DIGIT_FIRST) else name


def heading(series: Series) -> str:
    """Of a column."""
    return _HEADINGS.get(model(series), label(model(series)))


def cell(tally: Tally, words: Words = percent) -> str:
    """Mean (least–largest) × seeds, and every seed that is not among them by name."""
    count, everyone = len(tally.values), len(tally.values) + len(tally.absent)
    if not everyone:
        return NOTHING
    if not count:
        return f"none of {everyone}; {named(tally.absent)}"
    mean, least, largest = words(tally.mean()), words(min(tally.values.values())), words(max(tally.values.values()))
    text = mean if least == largest else f"{mean} ({least}–{largest})"
    return f"{text} ×{count}" + (f" of {everyone}; {named(tally.absent)}" if tally.absent else "")


def named(absent: Mapping[int, str]) -> str:
    """Seeds by what became of them."""
    groups: dict[str, list[int]] = {}
    for seed, word in absent.items():
        groups.setdefault(word, []).append(seed)
    return "; ".join(f"{seeds_of(seeds)} {word}" for word, seeds in groups.items())


def seeds_of(seeds: Sequence[int]) -> str:
    """Seeds by number."""
    return f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {', '.join(map(str, seeds))}"


def counted(seeds: int) -> str:
    """How many seeds."""
    return "1 seed" if seeds == 1 else f"{seeds} seeds"


def scientific(value: float) -> str:
    """For errors that span decades."""
    return "overflow" if value >= OVERFLOW else f"{value:.1e}" if value else "0"


def plain(value: float) -> str:
    """One decimal."""
    return "∞" if math.isinf(value) else f"{value:,.1f}"


def lengths_of(series: Iterable[Series], *, given: Callable[[str], bool] = lambda _: True) -> list[int]:
    """Every length that any of them was judged at, on inputs of these names."""
    found = {e["length"] for one in series for _, entries in one.answers() for e in entries if given(e["input"])}
    return sorted(found)


def inputs_of(series: Iterable[Series]) -> list[str]:
    """Random ones first, then by bias, then what an enemy chose."""
    found = {e["input"]: is_family(e) for one in series for _, entries in one.answers() for e in entries}
    return sorted(found, key=lambda name: (name != "random", found[name], name))


def worst(series: Series, length: int, key: str = "positions") -> str:
    """The worst family of each seed; where it is not right, its name, the worst first."""
    text = cell(series.tally(worst_family(length, key)))
    found: dict[str, list[float]] = {}
    for _, entries in series.answers():
        for entry in families(entries, length):
            found.setdefault(entry["input"], []).append(entry[key])
    failing = [name for name in sorted(found, key=lambda name: (sum(found[name]), name)) if min(found[name]) < 1]
    if not failing:
        return text
    more = f" and {len(failing) - 2} more" if len(failing) > 2 else ""
    return f"{text}; fails: " + ", ".join(f"“{name}”" for name in failing[:2]) + more
