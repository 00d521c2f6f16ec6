"""Whether the ones so far are odd in number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import final

from torch import Tensor

from transductor.automata.library import machine
from transductor.automata.moore import MooreMachine
from transductor.configuration import configuration
from transductor.tasks.base import CoinTask
from transductor.tasks.sampling import binary_families


@final
@configuration
@dataclass(frozen=True)
class Parity(CoinTask):
    """Binary tokens; the label at t is one where the ones up to and including t are odd in number."""

    @property
    def name(self) -> str:
        """``parity``."""
        return "parity"

    @property
    def output_size(self) -> int:
        """Even and odd."""
        return 2

    def automaton(self) -> MooreMachine:
        """Two states."""
        return _machine()

    def _labels(self, tokens: Tensor) -> Tensor:
        return tokens.cumsum(1) % 2

    def _families(self, length: int) -> dict[str, Sequence[int]]:
        # A single one must be remembered to the end; its absence is the same word but for one letter.
        return {**binary_families(length), "one, then zeros": [1] + [0] * (length - 1)}


@cache
def _machine() -> MooreMachine:
    dfa = machine("parity").dfa
    assert dfa is not None
    return MooreMachine.from_dfa(dfa)
