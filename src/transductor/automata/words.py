"""Alphabets and words: letters are any hashable values, and each has a number, its place in the alphabet."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from itertools import islice
from typing import TypeAlias

Symbol: TypeAlias = Hashable
"""The type of a letter."""

Word: TypeAlias = Sequence[Hashable]
"""The type of a word: any sequence of letters.  A ``str`` is a sequence of characters."""


def numbered(alphabet: Iterable[Symbol]) -> dict[Symbol, int]:
    """Number the letters in their order; refuse an alphabet that holds one twice."""
    numbers: dict[Symbol, int] = {}
    for letter in alphabet:
        if letter in numbers:
            raise ValueError(f"alphabet must hold distinct letters; {letter!r} is there twice")
        numbers[letter] = len(numbers)
    return numbers


def spelled(word: Word, numbers: Mapping[Symbol, int]) -> list[int]:
    """Return the numbers of a word's letters; refuse a letter that has none."""
    letters = []
    for position, letter in enumerate(word):
        if letter not in numbers:
            raise ValueError(f"word must use the letters {listed(numbers)}; got {letter!r} at position {position}")
        letters.append(numbers[letter])
    return letters


def letters_of(words: Iterable[Word]) -> tuple[Symbol, ...]:
    """Return the letters that words use, in the order of their first appearance."""
    return tuple(dict.fromkeys(letter for word in words for letter in word))


def listed(letters: Collection[Symbol]) -> str:
    """Write a set of letters for a message, at most twelve of them."""
    shown = ", ".join(map(repr, islice(letters, 12)))
    return f"{{{shown}{', …' if len(letters) > 12 else ''}}}"
