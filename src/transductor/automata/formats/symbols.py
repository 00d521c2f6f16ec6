"""Letters in files: in JSON, and in symbol tables as OpenFst writes them, with one ``name id`` in each line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from transductor.automata.formats.errors import AutomatonFormatError
from transductor.automata.formats.limits import lines_of, read_bytes, text_of
from transductor.automata.words import Symbol
from transductor.results import write_atomically

EPSILON = "<eps>"
"""The name of ε, unless a table gives another."""

MAX_ID = 2**31 - 1

_NUMBER = re.compile(r"[0-9]{1,18}\Z")
_SEPARATORS = re.compile(r"[ \t]+")


@dataclass(frozen=True)
class SymbolTable:
    """Names and their numbers; no two names have the same number."""

    ids: Mapping[str, int]
    names: Mapping[int, str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", {number: name for name, number in self.ids.items()})

    @property
    def alphabet(self) -> tuple[str, ...]:
        """All names except that of ε, in the order of their numbers."""
        return tuple(self.names[number] for number in sorted(self.names) if number != 0)

    @property
    def epsilon(self) -> str | None:
        """The name of number 0, if it has one."""
        return self.names.get(0)


Symbols: TypeAlias = SymbolTable | Mapping[str, int] | str | Path
"""A table, a mapping from names to numbers, or the file of a table."""


def symbol_table(symbols: Symbols | None) -> SymbolTable | None:
    """Return the table that the argument ``symbols`` of a reader or writer stands for."""
    if symbols is None or isinstance(symbols, SymbolTable):
        return symbols
    if isinstance(symbols, (str, Path)):
        return read_symbols(symbols)
    if not isinstance(symbols, Mapping):
        raise TypeError(f"symbols must be a file or a mapping from names to numbers; got {type(symbols).__name__}")
    for name, number in symbols.items():
        if not isinstance(name, str) or type(number) is not int or not 0 <= number <= MAX_ID:
            raise ValueError(f"symbols must map names to numbers from 0 to {MAX_ID}; got {name!r}: {number!r}")
    if len(set(symbols.values())) < len(symbols):
        raise ValueError("symbols must give each name a number of its own")
    return SymbolTable(dict(symbols))


def read_symbols(path: str | Path) -> SymbolTable:
    """Return the table in a file of ``name id`` lines."""
    source = str(path)
    ids: dict[str, int] = {}
    seen: set[int] = set()
    for number, line in lines_of(text_of(read_bytes(path), source)):
        fields = fields_of(line)
        if not fields:
            continue
        if len(fields) != 2:
            raise AutomatonFormatError(source, number, f"a symbol is a name and a number; got {len(fields)} fields")
        name, id_ = fields[0], whole_number(fields[1])
        if id_ is None or id_ > MAX_ID:
            raise AutomatonFormatError(source, number, f"numbers must be in 0…{MAX_ID}; got {_short(fields[1])}")
        if name in ids or id_ in seen:
            raise AutomatonFormatError(source, number, f"the symbol {_short(name)} or its number {id_} is there twice")
        ids[name] = id_
        seen.add(id_)
    return SymbolTable(ids)


def write_symbols(alphabet: Iterable[Symbol], path: str | Path) -> SymbolTable:
    """Write a table that gives ε number 0 and the letters 1, 2, …; the table is also returned."""
    ids = {EPSILON: 0}
    for letter in alphabet:
        ids[writable_name(letter)] = len(ids)
    write_atomically(path, "".join(f"{name}\t{number}\n" for name, number in ids.items()).encode())
    return SymbolTable(ids)


def writable_name(letter: Symbol, epsilon: str | None = EPSILON) -> str:
    """Return the letter as one field of a line, or the refusal that names it."""
    if not isinstance(letter, str):
        raise ValueError(f"letters must be strings in AT&T text and symbol tables; got {letter!r}")
    if not letter or re.search(r"[ \t\r\n]", letter) or letter.startswith("\ufeff"):
        raise ValueError(f"letters must be free of white space and not empty in AT&T text; got {letter!r}")
    if letter == epsilon:
        raise ValueError(f"the letter {letter!r} is the name of ε; give a table of symbols with another name for ε")
    encodable(letter)
    return letter


def encodable(letter: str) -> str:
    """Return the letter, if UTF-8 can hold it."""
    try:
        letter.encode()
    except UnicodeEncodeError:
        raise ValueError(f"letters must be valid Unicode; got {letter!r}") from None
    return letter


def fields_of(line: str) -> list[str]:
    """Split a line at blanks and tabs, and at no other white space: letters may be any other character."""
    stripped = line.removesuffix("\r").strip(" \t")
    return _SEPARATORS.split(stripped) if stripped else []


def whole_number(text: str) -> int | None:
    """Return a number written with at most eighteen ASCII digits and nothing else."""
    return int(text) if _NUMBER.match(text) else None


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")


def alphabet_to_json(alphabet: Sequence[Symbol]) -> list[str | int]:
    """Return the letters as JSON holds them; others than strings and integers are refused by name."""
    letters: list[str | int] = []
    for letter in alphabet:
        if isinstance(letter, bool) or not isinstance(letter, (str, int)):
            raise ValueError(f"letters must be strings or integers to be written; got {letter!r}")
        letters.append(letter)
    return letters


def alphabet_from_json(letters: Any, source: str, line: int | None, where: str) -> tuple[Symbol, ...]:
    """Return the alphabet in a JSON value, checked."""
    if not isinstance(letters, list):
        raise AutomatonFormatError(source, line, f"{where} must be a list of strings and integers")
    for number, letter in enumerate(letters):
        if isinstance(letter, bool) or not isinstance(letter, (str, int)):
            raise AutomatonFormatError(source, line, f"{where}[{number}] must be a string or an integer")
    if len(set(letters)) < len(letters):
        raise AutomatonFormatError(source, line, f"{where} holds a letter twice")
    return tuple(letters)
