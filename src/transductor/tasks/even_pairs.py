"""Whether the changes 01 and 10 so far are even in number: the first letter equals the last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import final

from torch import Tensor

from transductor.automata.moore import IGNORED, MooreMachine
from transductor.configuration import configuration
from transductor.tasks.base import CoinTask
from transductor.tasks.sampling import binary_families


@final
@configuration
@dataclass(frozen=True)
class EvenPairs(CoinTask):
    """Binary tokens; the label at t is one where the factors 01 and 10 up to t are even in number."""

    @property
    def name(self) -> str:
        """``even pairs``."""
        return "even pairs"

    @property
    def output_size(self) -> int:
        """Odd and even."""
        return 2

    def automaton(self) -> MooreMachine:
        """The first and the last letter; five states."""
        return _machine()

    def _labels(self, tokens: Tensor) -> Tensor:
        return (tokens == tokens[:, :1]).long()

    def _families(self, length: int) -> dict[str, Sequence[int]]:
        return {
            **binary_families(length),
            "changes once, at once": [0] + [1] * (length - 1),
            "changes once, at last": [1] * (length - 1) + [0],
        }


@cache
def _machine() -> MooreMachine:
    start: tuple[int, ...] = ()
    return MooreMachine.explored(
        start,
        2,
        lambda ends, bit: (ends[0], bit) if ends else (bit, bit),
        lambda ends: int(ends[0] == ends[1]) if ends else IGNORED,
    )
