"""How many ones so far, modulo k."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import final

from torch import Tensor

from transductor.automata.moore import MooreMachine
from transductor.checks import check_positive
from transductor.configuration import configuration
from transductor.tasks.base import CoinTask
from transductor.tasks.sampling import binary_families


@final
@configuration
@dataclass(frozen=True)
class ModularCounting(CoinTask):
    """Binary tokens; the label at t is the number of ones up to and including t, modulo ``modulus``."""

    modulus: int = 5

    def __post_init__(self) -> None:
        check_positive("modulus", self.modulus)

    @property
    def name(self) -> str:
        """``mod-k counting``."""
        return f"mod-{self.modulus} counting"

    @property
    def output_size(self) -> int:
        """The residues."""
        return self.modulus

    def automaton(self) -> MooreMachine:
        """One state per residue."""
        return _machine(self.modulus)

    def _labels(self, tokens: Tensor) -> Tensor:
        return tokens.cumsum(1) % self.modulus

    def _families(self, length: int) -> dict[str, Sequence[int]]:
        # On fair coins a wrong angle partly cancels; all ones and all zeros add it up, each for its letter.
        return binary_families(length)


@cache
def _machine(modulus: int) -> MooreMachine:
    return MooreMachine.explored(0, 2, lambda count, bit: (count + bit) % modulus, lambda count: count)
