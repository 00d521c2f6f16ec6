"""Modular counting: the number of ones so far, modulo k."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

from torch import Tensor

from transductor.automata.moore import MooreMachine
from transductor.checks import check_positive
from transductor.configuration import configuration
from transductor.tasks.base import CoinTask
from transductor.tasks.sampling import binary_input_kinds


@final
@configuration
@dataclass(frozen=True)
class ModularCounting(CoinTask):
    """Binary tokens; the label at t is the number of ones up to and including t, modulo ``modulus``."""

    modulus: int = 5
    title: ClassVar[str] = "mod-{modulus} counting"

    def __post_init__(self) -> None:
        check_positive("modulus", self.modulus)

    @property
    def output_size(self) -> int:
        """The number of residues."""
        return self.modulus

    def _machine(self) -> MooreMachine:
        return MooreMachine.explored(0, 2, lambda count, bit: (count + bit) % self.modulus, lambda count: count)

    def _labels(self, tokens: Tensor) -> Tensor:
        return tokens.cumsum(1) % self.modulus

    def _input_kinds(self, length: int) -> dict[str, Sequence[int]]:
        # On fair coins the errors of a wrong angle partly cancel; all ones and all zeros add up those of one token.
        return binary_input_kinds(length)
