"""Parity: whether the number of ones so far is odd."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

from torch import Tensor

from transductor.automata.moore import MooreMachine
from transductor.configuration import configuration
from transductor.tasks.base import CoinTask, named_machine
from transductor.tasks.sampling import binary_input_kinds


@final
@configuration
@dataclass(frozen=True)
class Parity(CoinTask):
    """Binary tokens; the label at t is one where the number of ones up to and including t is odd."""

    title: ClassVar[str] = "parity"
    output_size: ClassVar[int] = 2

    def _machine(self) -> MooreMachine:
        return named_machine("parity")

    def _labels(self, tokens: Tensor) -> Tensor:
        return tokens.cumsum(1) % 2

    def _input_kinds(self, length: int) -> dict[str, Sequence[int]]:
        # A single one must be remembered to the end; without it the word differs in one token only.
        return {**binary_input_kinds(length), "one, then zeros": [1] + [0] * (length - 1)}
