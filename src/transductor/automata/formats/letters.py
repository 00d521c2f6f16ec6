"""Letters inside JSON: strings are strings, integers are integers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transductor.automata.formats.errors import AutomatonFormatError
from transductor.automata.words import Symbol


def alphabet_to_json(alphabet: Sequence[Symbol]) -> list[str | int]:
    """The letters as JSON holds them; others than strings and integers are refused by name."""
    letters: list[str | int] = []
    for letter in alphabet:
        if isinstance(letter, bool) or not isinstance(letter, (str, int)):
            raise ValueError(f"letters must be strings or integers to be written; got {letter!r}")
        letters.append(letter)
    return letters


def alphabet_from_json(letters: Any, source: str, line: int | None, where: str) -> tuple[Symbol, ...]:
    """The alphabet in a JSON value, checked."""
    if not isinstance(letters, list):
        raise AutomatonFormatError(source, line, f"{where} must be a list of strings and integers")
    for number, letter in enumerate(letters):
        if isinstance(letter, bool) or not isinstance(letter, (str, int)):
            raise AutomatonFormatError(source, line, f"{where}[{number}] must be a string or an integer")
    if len(set(letters)) < len(letters):
        raise AutomatonFormatError(source, line, f"{where} holds a letter twice")
    return tuple(letters)
