"""Samples of strings in files: the formats of the PAutomaC and Abbadingo competitions.

A sample begins with a line of two numbers, how many strings there are and how many letters.  PAutomaC: each further
line is the length of a string and its letters ``0 … letters − 1``.  Abbadingo (also StaMInA's): each further line is a
label (1 accepted, 0 rejected, −1 unknown), the length, and the letters, which may be any names without blanks.

A PAutomaC model is a text of sections ``I:``, ``F:``, ``S:`` and ``T:`` with lines ``(state) p``, ``(state,letter) p``
and ``(state,letter,state) p``; its solution is a line with the number of strings and a probability for each.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from transductor.automata.formats.errors import AutomatonFormatError
from transductor.automata.formats.limits import lines_of, read_bytes, text_of
from transductor.automata.weighted import WeightedAutomaton

_HEADER_FIELDS: Final = 2
_MOST_STATES: Final = 2**12
_SECTIONS: Final = {"I": 1, "F": 1, "S": 2, "T": 3}
_ENTRY = re.compile(r"\(\s*(\d+(?:\s*,\s*\d+)*)\s*\)\s+(\S+)\Z")


@dataclass(frozen=True)
class LabelledStrings:
    """Strings with a label each: 1 accepted, 0 rejected, −1 unknown; letters as the file names them."""

    strings: list[tuple[str, ...]]
    labels: list[int]
    letters: int


def read_pautomac(path: str | Path) -> tuple[list[tuple[int, ...]], int]:
    """Return the strings of a PAutomaC sample, as letters ``0 … letters − 1``, and the number of letters.

    Raises:
        AutomatonFormatError: What the file holds is no such sample; the message names file and line.
    """
    rows, strings, letters = _rows(path, leading=1)
    read: list[tuple[int, ...]] = []
    for line, fields in rows:
        word = tuple(_whole(path, line, "a letter", field, letters) for field in fields[1:])
        _check_length(path, line, fields[0], len(word))
        read.append(word)
    _check_count(path, strings, len(read))
    return read, letters


def read_abbadingo(path: str | Path) -> LabelledStrings:
    """Return the labelled strings of an Abbadingo or StaMInA sample.

    Raises:
        AutomatonFormatError: What the file holds is no such sample; the message names file and line.
    """
    rows, strings, letters = _rows(path, leading=2)
    read, labels, names = [], [], set[str]()
    for line, fields in rows:
        if fields[0] not in ("1", "0", "-1"):
            raise AutomatonFormatError(str(path), line, f"a label must be 1, 0 or -1; got {fields[0][:40]!r}")
        word = tuple(fields[2:])
        _check_length(path, line, fields[1], len(word))
        names.update(word)
        if len(names) > letters:
            raise AutomatonFormatError(str(path), line, f"more than the {letters} letters that the first line promises")
        labels.append(int(fields[0]))
        read.append(word)
    _check_count(path, strings, len(read))
    return LabelledStrings(read, labels, letters)


def read_pautomac_model(path: str | Path) -> WeightedAutomaton:
    """Return the probabilistic automaton of a PAutomaC model, over the letters ``0, 1, …``, in float64.

    A state stops with probability ``F``; otherwise it writes a letter by ``S`` and goes on by ``T``.

    Raises:
        AutomatonFormatError: What the file holds is no such model; the message names file and line.
    """
    sections: dict[str, dict[tuple[int, ...], float]] = {name: {} for name in _SECTIONS}
    section = ""
    for line, text in lines_of(text_of(read_bytes(path), str(path))):
        stripped = text.strip()
        if not stripped:
            continue
        name = stripped.partition(":")[0]
        if ":" in stripped and name in _SECTIONS:
            section = name
            continue
        entry = _ENTRY.match(stripped)
        if not section or entry is None:
            reason = f"a line must be a section I:, F:, S: or T:, or '(state, …) probability'; got {stripped[:40]!r}"
            raise AutomatonFormatError(str(path), line, reason)
        key = tuple(_whole(path, line, "a number", part, _MOST_STATES) for part in entry[1].split(","))
        if len(key) != _SECTIONS[section]:
            reason = f"an entry of {section} has {_SECTIONS[section]} numbers; got {len(key)}"
            raise AutomatonFormatError(str(path), line, reason)
        if key in sections[section]:
            raise AutomatonFormatError(str(path), line, f"the entry {key} of {section} is there twice")
        sections[section][key] = _probability(path, line, entry[2])
    return _assembled_model(path, sections)


def _assembled_model(path: str | Path, sections: dict[str, dict[tuple[int, ...], float]]) -> WeightedAutomaton:
    initial, final, symbols, moves = (sections[name] for name in _SECTIONS)
    ends = [key[0] for key in (*initial, *final, *symbols)] + [state for key in moves for state in (key[0], key[2])]
    if not initial or not symbols:
        raise AutomatonFormatError(str(path), None, "a model needs the sections I and S")
    states, letters = 1 + max(ends), 1 + max(key[1] for key in (*symbols, *moves))
    if states**2 * letters > 2**25:
        raise AutomatonFormatError(str(path), None, f"{states} states over {letters} letters do not fit")
    start, stop = np.zeros(states), np.zeros(states)
    for vector, entries in ((start, initial), (stop, final)):
        for (state,), probability in entries.items():
            vector[state] = probability
    matrices = np.zeros((letters, states, states))
    for (source, letter, to), probability in moves.items():
        matrices[letter, to, source] = probability * symbols.get((source, letter), 0.0) * (1 - stop[source])
    return WeightedAutomaton(start, matrices, stop, tuple(range(letters)), weights="float")


def read_pautomac_solution(path: str | Path) -> list[float]:
    """Return the probabilities in a PAutomaC solution, one for each string of its test sample."""
    lines = [(line, text.strip()) for line, text in lines_of(text_of(read_bytes(path), str(path))) if text.strip()]
    count = _whole(path, lines[0][0], "the number of strings", lines[0][1], None)
    values = [_probability(path, line, text) for line, text in lines[1:]]
    _check_count(path, count, len(values))
    return values


def _rows(path: str | Path, leading: int) -> tuple[list[tuple[int, list[str]]], int, int]:
    """Return the lines after the first as fields, and the numbers of strings and letters that the first promises."""
    rows = [(line, text.split()) for line, text in lines_of(text_of(read_bytes(path), str(path))) if text.strip()]
    line, header = rows[0]
    if len(header) != _HEADER_FIELDS:
        reason = f"the first line must hold the numbers of strings and of letters; got {' '.join(header)[:40]!r}"
        raise AutomatonFormatError(str(path), line, reason)
    strings, letters = (_whole(path, line, "a count", field, None) for field in header)
    for number, fields in rows[1:]:
        if len(fields) < leading:
            raise AutomatonFormatError(str(path), number, f"a line must begin with {leading} numbers; got {fields!r}")
    return rows[1:], strings, letters


def _whole(path: str | Path, line: int, what: str, text: str, below: int | None) -> int:
    digits = text.strip()
    allowed = "a whole number" if below is None else f"a whole number below {below}"
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 12) or (
        below is not None and int(digits) >= below
    ):
        raise AutomatonFormatError(str(path), line, f"{what} must be {allowed}; got {text[:40]!r}")
    return int(digits)


def _probability(path: str | Path, line: int, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise AutomatonFormatError(str(path), line, f"a probability must lie between 0 and 1; got {text[:40]!r}")
    return value


def _check_length(path: str | Path, line: int, text: str, length: int) -> None:
    if _whole(path, line, "the length of a string", text, None) != length:
        raise AutomatonFormatError(str(path), line, f"the length {text[:20]} is given, but {length} letters follow")


def _check_count(path: str | Path, promised: int, count: int) -> None:
    if promised != count:
        raise AutomatonFormatError(str(path), 1, f"the first line promises {promised} strings, but {count} follow")
