"""A held count: ones are counted modulo k, a mark takes the count down, and the label is the one taken down last."""

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
from transductor.tasks.sampling import coins, latest, repeated

ZERO, ONE, MARK = range(3)
_MARKED = 0.25  # the share of marks in a sampled sequence


@final
@configuration
@dataclass(frozen=True)
class HeldCount(Task):
    """Tokens are 0, 1 and a mark; the label at t is the number of ones modulo ``modulus`` when the last mark came.

    Before the first mark it is 0.  The task has two halves that suit two parts of a model: a count, which a rotating
    state keeps at every length but cannot hold while it turns on, and a look back at the last mark, which attention
    does but which finds nothing worth copying there unless the count has entered the stream.
    """

    modulus: int = 3
    title: ClassVar[str] = "held count modulo {modulus}"
    coin: ClassVar[str] = "a one, where there is no mark"
    vocab_size: ClassVar[int] = 3

    def __post_init__(self) -> None:
        check_positive("modulus", self.modulus)

    @property
    def output_size(self) -> int:
        """The number of residues."""
        return self.modulus

    def _machine(self) -> MooreMachine:
        """Build the machine whose state is the count and the count taken down."""

        def step(state: tuple[int, int], letter: int) -> tuple[int, int]:
            count, held = state
            return ((count + (letter == ONE)) % self.modulus, count if letter == MARK else held)

        return MooreMachine.explored((0, 0), self.vocab_size, step, lambda state: state[1])

    def _sample(self, batch_size: int, length: int, generator: torch.Generator, bias: float | None) -> Tensor:
        bits = coins(batch_size, length, generator, bias)
        return torch.where(coins(batch_size, length, generator, _MARKED).bool(), MARK, bits)

    def _labels(self, tokens: Tensor) -> Tensor:
        return latest(tokens == MARK, (tokens == ONE).cumsum(1) % self.modulus, 0)

    def _input_kinds(self, length: int) -> dict[str, Sequence[int]]:
        """Return rows on which the count must last, or what was taken down must be held while the count goes on."""
        half = length // 2
        return {
            "ones, a mark, ones": [*[ONE] * half, MARK, *[ONE] * length][:length],
            "ones, a mark, zeros": [*[ONE] * half, MARK, *[ZERO] * length][:length],
            "a mark, then ones": [MARK, *[ONE] * (length - 1)],
            "ones with marks between": repeated((ONE, MARK), length),
            "ones and a mark at the end": [*[ONE] * (length - 1), MARK],
            "only marks": [MARK] * length,
        }
