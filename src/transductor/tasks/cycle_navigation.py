"""Cycle navigation: where a walker on a cycle stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from transductor.automata.moore import MooreMachine
from transductor.checks import check_positive
from transductor.configuration import configuration
from transductor.tasks.base import Task
from transductor.tasks.sampling import coins, repeated

BACK, STAY, FORTH = 0, 1, 2


@final
@configuration
@dataclass(frozen=True)
class CycleNavigation(Task):
    """Tokens are the moves −1, 0, +1 (as 0, 1, 2); the label is the place on a cycle of ``places``."""

    places: int = 5
    title: ClassVar[str] = "cycle-{places} navigation"
    coin: ClassVar[str] = "a move that is not staying; back and forth are equally likely"
    vocab_size: ClassVar[int] = 3

    def __post_init__(self) -> None:
        check_positive("places", self.places)

    @property
    def output_size(self) -> int:
        """The number of places."""
        return self.places

    def _machine(self) -> MooreMachine:
        return MooreMachine.explored(0, 3, lambda place, move: (place + move - STAY) % self.places, lambda place: place)

    def _sample(self, batch_size: int, length: int, generator: torch.Generator, bias: float | None) -> Tensor:
        if bias is None:
            return torch.randint(0, 3, (batch_size, length), generator=generator)
        moves = coins(batch_size, length, generator, bias)
        directions = 2 * coins(batch_size, length, generator, None) - 1
        return STAY + moves * directions

    def _labels(self, tokens: Tensor) -> Tensor:
        return (tokens - STAY).cumsum(1) % self.places

    def _input_kinds(self, length: int) -> dict[str, Sequence[int]]:
        half = length // 2
        return {
            "always forth": [FORTH] * length,
            "always back": [BACK] * length,
            "always stay": [STAY] * length,
            "one step, then stay": [FORTH] + [STAY] * (length - 1),
            "to and fro": repeated((FORTH, BACK), length),
            "far out and back": [FORTH] * half + [BACK] * (length - half),
        }
