"""Copying, repeating the letters before a marker: a Transformer can do this already and must not unlearn it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from transductor.automata.moore import IGNORED
from transductor.checks import check_positive
from transductor.configuration import configuration
from transductor.tasks.base import Task
from transductor.tasks.sampling import first_position, repeated


@final
@configuration
@dataclass(frozen=True)
class Copying(Task):
    """Letters, a marker, then blanks: the label n positions after the first marker is the n-th letter.

    The tokens are the letters ``0 … alphabet_size − 1``, the marker and the blank.  In a sampled sequence of length T
    there are (T − 1) // 2 letters.  No finite machine gives the truth: the memory grows with the length.
    """

    alphabet_size: int = 8
    title: ClassVar[str] = "copying of {alphabet_size} letters"
    shortest: ClassVar[int] = 3  # a letter, the marker, a blank

    def __post_init__(self) -> None:
        check_positive("alphabet_size", self.alphabet_size)

    @property
    def output_size(self) -> int:
        """The number of letters."""
        return self.alphabet_size

    @property
    def vocab_size(self) -> int:
        """The number of letters, and two for the marker and the blank."""
        return self.alphabet_size + 2

    def _sample(self, batch_size: int, length: int, generator: torch.Generator, bias: float | None) -> Tensor:
        count = (length - 1) // 2
        letters = torch.randint(0, self.alphabet_size, (batch_size, count), generator=generator)
        rest = torch.full((batch_size, length - count), self.alphabet_size + 1)
        rest[:, 0] = self.alphabet_size
        return torch.cat([letters, rest], dim=1)

    def _labels(self, tokens: Tensor) -> Tensor:
        marker = first_position(tokens == self.alphabet_size)[:, None]
        source = torch.arange(tokens.shape[1]) - marker - 1
        letters = tokens.gather(1, source.clamp(min=0))
        return torch.where((source >= 0) & (source < marker) & (letters < self.alphabet_size), letters, IGNORED)

    def _input_kinds(self, length: int) -> dict[str, Sequence[int]]:
        count = (length - 1) // 2
        rest = [self.alphabet_size] + [self.alphabet_size + 1] * (length - count - 1)
        last = self.alphabet_size - 1
        return {
            "one letter": [*[last] * count, *rest],
            "two letters by turns": [*repeated((0, last), count), *rest],
            "one odd letter at the start": [last, *[0] * (count - 1), *rest],
            "one odd letter at the end": [*[0] * (count - 1), last, *rest],
        }
