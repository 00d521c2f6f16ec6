"""Expressions in digits, +, − and × modulo m: with × before + and −, or strictly from left to right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias, final

import torch
from torch import Tensor

from transductor.automata.moore import IGNORED, MooreMachine
from transductor.configuration import configuration
from transductor.tasks.base import AutomatonTask
from transductor.tasks.sampling import repeated


@final
@configuration
@dataclass(frozen=True)
class ModularArithmetic(AutomatonTask):
    """The label at every digit is the value modulo ``modulus`` of the expression so far, × before + and −.

    Letters: the digits ``0 … modulus − 1``, then +, −, ×.  Digits and operators take turns, a digit first; operators
    have no label, and where the turns are broken there is no label from then on.  A sampled sequence of odd length
    ends with a digit.
    """

    modulus: int = 5

    def __post_init__(self) -> None:
        _check_modulus(self.modulus)

    @property
    def name(self) -> str:
        """``mod-m arithmetic``."""
        return f"mod-{self.modulus} arithmetic"

    @property
    def vocab_size(self) -> int:
        """Digits and three operators."""
        return self.modulus + 3

    @property
    def output_size(self) -> int:
        """The residues."""
        return self.modulus

    def automaton(self) -> MooreMachine:
        """The sum of the finished terms and the unfinished one, 2m² states, and one for broken turns."""
        return _precedence_machine(self.modulus)

    def _drawn(self, batch_size: int, length: int, generator: torch.Generator, bias: float | None) -> Tensor:
        return _expressions(batch_size, length, generator, self.modulus)

    def _families(self, length: int) -> dict[str, Sequence[int]]:
        return _arithmetic_families(length, self.modulus)


@final
@configuration
@dataclass(frozen=True)
class ModularArithmeticLeftToRight(AutomatonTask):
    """As :class:`ModularArithmetic`, but every operator acts on the value so far: 1 + 2 × 3 is 9."""

    modulus: int = 5

    def __post_init__(self) -> None:
        _check_modulus(self.modulus)

    @property
    def name(self) -> str:
        """``mod-m arithmetic from left to right``."""
        return f"mod-{self.modulus} arithmetic from left to right"

    @property
    def vocab_size(self) -> int:
        """Digits and three operators."""
        return self.modulus + 3

    @property
    def output_size(self) -> int:
        """The residues."""
        return self.modulus

    def automaton(self) -> MooreMachine:
        """The value and the operator that waits, 4m states, and one for broken turns."""
        return _left_to_right_machine(self.modulus)

    def _drawn(self, batch_size: int, length: int, generator: torch.Generator, bias: float | None) -> Tensor:
        return _expressions(batch_size, length, generator, self.modulus)

    def _families(self, length: int) -> dict[str, Sequence[int]]:
        return _arithmetic_families(length, self.modulus)


def _check_modulus(modulus: object) -> None:
    if not isinstance(modulus, int) or isinstance(modulus, bool) or modulus < 2:
        raise ValueError(f"modulus must be an integer of at least two; got {modulus!r}")


def _expressions(batch_size: int, length: int, generator: torch.Generator, modulus: int) -> Tensor:
    tokens = torch.randint(0, modulus, (batch_size, length), generator=generator)
    tokens[:, 1::2] = torch.randint(modulus, modulus + 3, (batch_size, length // 2), generator=generator)
    return tokens


def _arithmetic_families(length: int, modulus: int) -> dict[str, Sequence[int]]:
    plus, minus, times = range(modulus, modulus + 3)
    two = 2 % modulus
    return {
        "ones added": repeated((1, plus), length),
        "ones subtracted": repeated((1, minus), length),
        "one long product": repeated((modulus - 1, times), length),
        "products by turns": repeated((1, plus, two, times), length),
        "subtracted products": repeated((1, minus, two, times), length),
        "a sum, then one long product": [1, plus, *repeated((modulus - 1, times), length)][:length],
    }


# (the last letter was a digit, finished sum, unfinished term); before its next digit a term holds what it multiplies.
_Precedence: TypeAlias = tuple[bool, int, int] | None


@cache
def _precedence_machine(modulus: int) -> MooreMachine:
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
    return MooreMachine.explored(start, modulus + 3, step, label)


# (value, operator that waits for a digit, none after a digit)
_Waiting: TypeAlias = tuple[int, int | None] | None


@cache
def _left_to_right_machine(modulus: int) -> MooreMachine:
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
    return MooreMachine.explored(start, modulus + 3, step, label)
