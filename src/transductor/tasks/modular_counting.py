"""How many ones so far, modulo k."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, final

import torch
from torch import Tensor

from transductor.configuration import configuration
from transductor.notation import check_positive
from transductor.tasks.base import Task
from transductor.tasks.moore import MooreMachine
from transductor.tasks.sampling import binary_families, coins

__all__ = ["ModularCounting"]


@final
@configuration
@dataclass(frozen=True)
class ModularCounting(Task):
    """Binary tokens; the label at t is the number of ones up to and including t, modulo ``modulus``."""

    modulus: int = 5
    coin: ClassVar[str] = "a one"

    def __post_init__(self) -> None:
        check_positive("modulus", self.modulus)

    @property
    def name(self) -> str:
        """``mod-k counting``."""
        return f"mod-{self.modulus} counting"

    @property
    def vocab_size(self) -> int:
        """Zero and one."""
        return 2

    @property
    def output_size(self) -> int:
        """The residues."""
        return self.modulus

    def automaton(self) -> MooreMachine:
        """One state per residue."""
        return _machine(self.modulus)

    def _drawn(self, batch_size: int, length: int, generator: torch.Generator, bias: float | None) -> Tensor:
        return coins(batch_size, length, generator, bias)

    def _labels(self, tokens: Tensor) -> Tensor:
        return tokens.cumsum(1) % self.modulus

    def _families(self, length: int) -> dict[str, Sequence[int]]:
        # On fair coins a wrong angle partly cancels; all ones and all zeros add it up, each for its letter.
        return binary_families(length)


@cache
def _machine(modulus: int) -> MooreMachine:
    return MooreMachine.explored(0, 2, lambda count, bit: (count + bit) % modulus, lambda count: count)
