"""Boolean formulas of bounded depth, evaluated as their brackets close."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias, final

import torch
from torch import Tensor

from transductor.automata.moore import IGNORED, MooreMachine
from transductor.checks import check_positive
from transductor.configuration import configuration
from transductor.tasks.base import AutomatonTask
from transductor.tasks.sampling import coins, repeated

FALSE, TRUE, AND, OR, XOR, CLOSE = range(6)
DEEPEST = 4  # the machine has about 6^depth states

# Open brackets with the values of their arguments so far, and the label; None when the brackets are wrong.
_Stack: TypeAlias = tuple[tuple[int, int], ...]
_State: TypeAlias = tuple[_Stack, int] | None


@final
@configuration
@dataclass(frozen=True)
class BooleanFormula(AutomatonTask):
    """Tokens: 0, 1, the brackets ``(and``, ``(or``, ``(xor``, and ``)``; any number of arguments in between.

    The label at ``)`` is the value of the formula it closes, and that of a 0 or 1 outside all brackets is itself;
    other tokens have none.  Negation is ``(xor 1 x)``.  Without arguments, ``(and)`` is 1 while ``(or)`` and ``(xor)``
    are 0.  After a bracket deeper than ``depth``, or one that closes nothing, there are no labels.  A sampled sequence
    is one formula.
    """

    depth: int = 3
    title: ClassVar[str] = "Boolean formulas of depth {depth}"
    coin: ClassVar[str] = "a 1 among the constants"
    vocab_size: ClassVar[int] = 6
    output_size: ClassVar[int] = 2

    def __post_init__(self) -> None:
        check_positive("depth", self.depth)
        if self.depth > DEEPEST:
            raise ValueError(f"depth must be at most {DEEPEST}; got {self.depth}")

    def _machine(self) -> MooreMachine:
        """Build the machine whose state is the open brackets, each with the value of its arguments so far."""

        def step(state: _State, letter: int) -> _State:
            if state is None:
                return None
            stack = state[0]
            if letter <= TRUE:
                return _with_argument(stack, letter), IGNORED if stack else letter
            if letter < CLOSE:
                return ((*stack, (letter, int(letter == AND))), IGNORED) if len(stack) < self.depth else None
            if not stack:
                return None
            value = stack[-1][1]
            return _with_argument(stack[:-1], value), value

        start: _State = ((), IGNORED)
        return MooreMachine.explored(start, 6, step, lambda state: IGNORED if state is None else state[1])

    def _sample(self, batch_size: int, length: int, generator: torch.Generator, bias: float | None) -> Tensor:
        tokens = coins(batch_size, length, generator, bias)
        if length == 1:
            return tokens
        opening = torch.randint(AND, CLOSE, (batch_size, length), generator=generator)
        opens = coins(batch_size, length, generator, 0.3).bool()
        closes = coins(batch_size, length, generator, 0.3).bool()
        tokens[:, 0] = opening[:, 0]
        open_now = torch.ones(batch_size, dtype=torch.long)
        for time in range(1, length):
            left = length - time
            must_close = open_now == left
            may_open = opens[:, time] & (open_now < self.depth) & (open_now + 2 <= left)
            may_close = closes[:, time] & (open_now > 1) & ~may_open
            close = must_close | may_close
            tokens[:, time] = torch.where(may_open, opening[:, time], tokens[:, time])
            tokens[:, time] = torch.where(close, CLOSE, tokens[:, time])
            open_now = open_now + may_open.long() - close.long()
        return tokens

    def _input_kinds(self, length: int) -> dict[str, Sequence[int]]:
        if length == 1:
            return {"true": [TRUE], "false": [FALSE]}
        inside = length - 2
        deep = min(self.depth, length // 2)
        nested = [*repeated((XOR, AND), deep), *[TRUE] * (length - 2 * deep), *[CLOSE] * deep]
        pairs = [AND, TRUE, CLOSE, FALSE] if self.depth > 1 else [TRUE, FALSE]
        in_pairs = inside // len(pairs) * len(pairs)
        return {
            "and of ones": [AND, *[TRUE] * inside, CLOSE],
            "and of ones but the first": [AND, *[FALSE, *[TRUE] * inside][:inside], CLOSE],
            "or of zeros": [OR, *[FALSE] * inside, CLOSE],
            "or of zeros but the first": [OR, *[TRUE, *[FALSE] * inside][:inside], CLOSE],
            "xor of ones": [XOR, *[TRUE] * inside, CLOSE],
            "deepest nesting": nested,
            "many short brackets": [XOR, *repeated(pairs, in_pairs), *[TRUE] * (inside - in_pairs), CLOSE],
        }


def _with_argument(stack: _Stack, argument: int) -> _Stack:
    """Return the stack after one more argument of the innermost open bracket."""
    if not stack:
        return stack
    gate, value = stack[-1]
    result = {AND: value & argument, OR: value | argument, XOR: value ^ argument}[gate]
    return (*stack[:-1], (gate, result))
