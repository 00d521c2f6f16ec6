"""Say again what was said: something a Transformer does already and must not unlearn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from transductor.automata.moore import IGNORED
from transductor.checks import check_positive
from transductor.configuration import configuration
from transductor.tasks.base import Task
from transductor.tasks.sampling import first_place, repeated


@final
@configuration
@dataclass(frozen=True)
class Copying(Task):
    """Letters, a marker, then blanks: the label at the n-th place after the first marker is the n-th letter.

    The tokens are the letters ``0 … alphabet_size − 1``, the marker and the blank.  In a sampled sequence of length T
    there are (T − 1) // 2 letters.
    """

    alphabet_size: int = 8

    def __post_init__(self) -> None:
        check_positive("alphabet_size", self.alphabet_size)

    @property
    def name(self) -> str:
        """``copying of n letters``."""
        return f"copying of {self.alphabet_size} letters"

    @property
    def vocab_size(self) -> int:
        """Letters, marker and blank."""
        return self.alphabet_size + 2

    @property
    def output_size(self) -> int:
        """The letters."""
        return self.alphabet_size

    @property
    def shortest(self) -> int:
        """A letter, the marker, a blank."""
        return 3

    def automaton(self) -> None:
        """None: memory grows with length."""
        return

    def _drawn(self, batch_size: int, length: int, generator: torch.Generator, bias: float | None) -> Tensor:
        count = (length - 1) // 2
        letters = torch.randint(0, self.alphabet_size, (batch_size, count), generator=generator)
        rest = torch.full((batch_size, length - count), self.alphabet_size + 1)
        rest[:, 0] = self.alphabet_size
        return torch.cat([letters, rest], dim=1)

    def _labels(self, tokens: Tensor) -> Tensor:
        marker = first_place(tokens == self.alphabet_size)[:, None]
        source = torch.arange(tokens.shape[1]) - marker - 1
        said = tokens.gather(1, source.clamp(min=0))
        return torch.where((source >= 0) & (source < marker) & (said < self.alphabet_size), said, IGNORED)

    def _families(self, length: int) -> dict[str, Sequence[int]]:
        count = (length - 1) // 2
        rest = [self.alphabet_size] + [self.alphabet_size + 1] * (length - count - 1)
        last = self.alphabet_size - 1
        return {
            "one letter": [*[last] * count, *rest],
            "two letters by turns": [*repeated((0, last), count), *rest],
            "one odd letter at the start": [last, *[0] * (count - 1), *rest],
            "one odd letter at the end": [*[0] * (count - 1), last, *rest],
        }
