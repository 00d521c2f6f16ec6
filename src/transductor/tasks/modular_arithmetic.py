"""Expressions in digits, +, − and × modulo m: with × before + and −, or strictly from left to right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias, final

import torch
from torch import Tensor

from transductor.automata.moore import IGNORED, MooreMachine
from transductor.configuration import configuration
from transductor.tasks.base import AutomatonTask
from transductor.tasks.sampling import check_at_least_two, repeated

# (the last letter was a digit, finished sum, unfinished term); before its next digit a term holds what it multiplies.
_Precedence: TypeAlias = tuple[bool, int, int] | None
# (value, operator that waits for a digit, none after a digit)
_Waiting: TypeAlias = tuple[int, int | None] | None


@dataclass(frozen=True)
class _Arithmetic(AutomatonTask):
    """What both orders of evaluation share: tokens, sampler and input kinds."""

    modulus: int = 5

    def __post_init__(self) -> None:
        check_at_least_two("modulus", self.modulus)

    @property
    def vocab_size(self) -> int:
        """The number of digits and of the three operators."""
        return self.modulus + 3

    @property
    def output_size(self) -> int:
        """The number of residues."""
        return self.modulus

    @final
    def _sample(self, batch_size: int, length: int, generator: torch.Generator, bias: float | None) -> Tensor:
        tokens = torch.randint(0, self.modulus, (batch_size, length), generator=generator)
        operators = (self.modulus, self.modulus + 3)
        tokens[:, 1::2] = torch.randint(*operators, (batch_size, length // 2), generator=generator)
        return tokens

    @final
    def _input_kinds(self, length: int) -> dict[str, Sequence[int]]:
        plus, minus, times = range(self.modulus, self.modulus + 3)
        two, largest = 2 % self.modulus, self.modulus - 1
        return {
            "ones added": repeated((1, plus), length),
            "ones subtracted": repeated((1, minus), length),
            "one long product": repeated((largest, times), length),
            "products by turns": repeated((1, plus, two, times), length),
            "subtracted products": repeated((1, minus, two, times), length),
            "a sum, then one long product": [1, plus, *repeated((largest, times), length)][:length],
        }


@final
@configuration
@dataclass(frozen=True)
class ModularArithmetic(_Arithmetic):
    """The label at every digit is the value modulo ``modulus`` of the expression so far, × before + and −.

    Tokens: the digits ``0 … modulus − 1``, then +, −, ×.  Digits and operators take turns, a digit first; operators
    have no label, and where the turns are broken there is no label from then on.  A sampled sequence of odd length
    ends with a digit.
    """

    title: ClassVar[str] = "mod-{modulus} arithmetic"

    def _machine(self) -> MooreMachine:
        """Build the machine: 2m² states for the sum of finished terms and the unfinished one, one for broken turns."""
        modulus = self.modulus

        def step(state: _Precedence, letter: int) -> _Precedence:
            if state is None or state[0] == (letter < modulus):
                return None
            _, total, term = state
            if letter < modulus:
                return True, total, term * letter % modulus
            if letter == modulus + 2:
                return False, total, term
            return False, (total + term) % modulus, 1 if letter == modulus else modulus - 1

        def label(state: _Precedence) -> int:
            return (state[1] + state[2]) % modulus if state is not None and state[0] else IGNORED

        start: _Precedence = (False, 0, 1)
        return MooreMachine.explored(start, self.vocab_size, step, label)


@final
@configuration
@dataclass(frozen=True)
class ModularArithmeticLeftToRight(_Arithmetic):
    """As :class:`ModularArithmetic`, but every operator acts on the value so far: 1 + 2 × 3 is 9."""

    title: ClassVar[str] = "mod-{modulus} arithmetic from left to right"

    def _machine(self) -> MooreMachine:
        """Build the machine: 4m states for the value and the operator that waits, one for broken turns."""
        modulus = self.modulus

        def step(state: _Waiting, letter: int) -> _Waiting:
            if state is None or (state[1] is None) == (letter < modulus):
                return None
            value, operator = state
            if letter >= modulus:
                return value, letter
            results = {modulus: value + letter, modulus + 1: value - letter, modulus + 2: value * letter}
            return (results[operator] % modulus, None) if operator is not None else None

        def label(state: _Waiting) -> int:
            return state[0] if state is not None and state[1] is None else IGNORED

        start: _Waiting = (0, modulus)
        return MooreMachine.explored(start, self.vocab_size, step, label)
