"""Even pairs: whether the number of changes 01 and 10 so far is even, that is, the first letter equals the last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

from torch import Tensor

from transductor.automata.moore import IGNORED, MooreMachine
from transductor.configuration import configuration
from transductor.tasks.base import CoinTask
from transductor.tasks.sampling import binary_input_kinds


@final
@configuration
@dataclass(frozen=True)
class EvenPairs(CoinTask):
    """Binary tokens; the label at t is one where the number of factors 01 and 10 up to t is even."""

    title: ClassVar[str] = "even pairs"
    output_size: ClassVar[int] = 2

    def _machine(self) -> MooreMachine:
        """Build the machine of five states that remembers the first and the last letter."""
        start: tuple[int, ...] = ()
        return MooreMachine.explored(
            start,
            2,
            lambda ends, bit: (ends[0], bit) if ends else (bit, bit),
            lambda ends: int(ends[0] == ends[1]) if ends else IGNORED,
        )

    def _labels(self, tokens: Tensor) -> Tensor:
        return (tokens == tokens[:, :1]).long()

    def _input_kinds(self, length: int) -> dict[str, Sequence[int]]:
        return {
            **binary_input_kinds(length),
            "changes once, at once": [0] + [1] * (length - 1),
            "changes once, at last": [1] * (length - 1) + [0],
        }
