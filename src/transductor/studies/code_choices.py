"""Forced choices in Python source: which bracket, which quotation mark, and whether a block ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transductor.automata.python_lexing import lexed
from transductor.tasks import SourceCode

_BRACKETS: Final = {ord(closing): ord(opening) for opening, closing in ("()", "[]", "{}")}
_QUOTES: Final = (ord("'"), ord('"'))
_SPACE: Final = ord(" ")


@dataclass(frozen=True)
class Choice:
    """Places of one kind in a file where something earlier decides what may come.

    Attributes:
        places: The bytes to be predicted, ``(N,)``.
        distances: How far back what decides each begins, ``(N,)``.
        right: From the logits ``(N, 256)`` before each place to whether the choice is right.
    """

    places: NDArray[np.int64]
    distances: NDArray[np.int64]
    right: Callable[[Tensor], Tensor]


@cache
def choices_in(task: SourceCode, place: int, length: int) -> dict[str, Choice]:
    """Return the choices in the first bytes of a test file, by kind; see :func:`choices_of`."""
    return choices_of(test_files(task)[place][:length])


@cache
def test_files(task: SourceCode) -> list[bytes]:
    """Return the files of the test part, read once."""
    return task.opened().files("test")


def choices_of(text: bytes) -> dict[str, Choice]:
    """Return the choices in a text, by kind.

    * ``bracket``: the closing bracket, among the three; decided by the bracket that is open.
    * ``quote``: the mark that ends a string, of two; decided by the one that began it.
    * ``block ends``: the first byte of a line that stands further left than the line before it: whether the model gives
      less than one half to another space.  ``block goes on``: spaces at columns where a block could end, but does not.
      Decided by the last line that begins no further right.
    """
    known, data = lexed(text), np.frombuffer(text, np.uint8)
    brackets = _closing_brackets(data, known)
    quotes = _closing_quotes(data, known)
    ends, goes_on = _blocks(data, known)
    return {
        "bracket": _one_of(brackets, tuple(_BRACKETS), data),
        "quote": _one_of(quotes, _QUOTES, data),
        "block ends": _places(ends, lambda scores: scores.softmax(1)[:, _SPACE] < 0.5),
        "block goes on": _places(goes_on, lambda scores: scores.softmax(1)[:, _SPACE] >= 0.5),
    }


def _places(pairs: list[tuple[int, int]], right: Callable[[Tensor], Tensor]) -> Choice:
    both = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return Choice(both[:, 0], both[:, 0] - both[:, 1], right)


def _one_of(pairs: list[tuple[int, int]], options: tuple[int, ...], data: NDArray[np.uint8]) -> Choice:
    wanted = torch.tensor([options.index(int(data[place])) for place, _ in pairs], dtype=torch.long)
    return _places(pairs, lambda scores: scores[:, list(options)].argmax(1) == wanted)


def _closing_brackets(data: NDArray[np.uint8], known: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return where brackets close and where they were opened, for pairs that match."""
    opened: list[int] = []
    pairs = []
    in_code = known[:, 0] == 0
    for place in np.flatnonzero(in_code & np.isin(data, list(b"()[]{}"))).tolist():
        opening = _BRACKETS.get(int(data[place]))
        if opening is None:
            opened.append(place)
        elif opened and data[opened[-1]] == opening:
            pairs.append((place, opened.pop()))
    return pairs


def _closing_quotes(data: NDArray[np.uint8], known: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return where strings that are not empty begin to end, and where they began."""
    context = known[:, 0]
    in_string = context >= 2
    edges = np.diff(in_string.astype(np.int8), prepend=0)
    begins, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    pairs = []
    for begin, after in zip(begins.tolist(), ends.tolist(), strict=False):
        # The byte that closes a string is not in it any more: three of them close the longer kind.
        end = after - 2 if context[after - 1] >= 4 else after
        if end > begin + 1 and data[after] == data[begin]:
            pairs.append((end, begin))
    return pairs


def _blocks(data: NDArray[np.uint8], known: NDArray[np.int64]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return places where blocks end, and where they could and do not, with the line that decides each."""
    ends: list[tuple[int, int]] = []
    goes_on: list[tuple[int, int]] = []
    lines: list[tuple[int, int]] = []  # the column and place of each logical line that could decide
    measured = known[:, 3] >= 0
    before = np.concatenate(([True], measured[:-1]))
    firsts = np.flatnonzero(before & ~measured & (known[:, 0] != 1))
    for first in firsts.tolist():
        begin = first
        while begin and data[begin - 1] == _SPACE:
            begin -= 1
        column = first - begin
        if lines:
            deciding = [place for other, place in lines if other <= column]
            if column < lines[-1][0] and deciding:
                ends.append((first, deciding[-1]))
            for at in range(0, min(column, lines[-1][0]), 4):
                outer = [place for other, place in lines if other <= at]
                if outer:
                    goes_on.append((begin + at, outer[-1]))
        lines = [*(line for line in lines if line[0] < column), (column, first)]
    return ends, [pair for pair in goes_on if pair[0] > 0]
