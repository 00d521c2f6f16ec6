"""Flip-flops: the bit that was written last, asked for by reads; and the same with an undo."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from transductor.automata.moore import IGNORED, MooreMachine
from transductor.configuration import configuration
from transductor.tasks.base import AutomatonTask, Task
from transductor.tasks.sampling import check_probability, coins, framed, latest, repeated

WRITE_0, WRITE_1, IGNORE_0, IGNORE_1, READ, UNDO = range(6)


@dataclass(frozen=True)
class _Memory(Task):
    """What both flip-flops share: a bit in memory, a sampler of instructions, and input kinds."""

    ignore_probability: float = 0.8
    coin: ClassVar[str] = "a one, among the bits that are written or to be ignored"
    output_size: ClassVar[int] = 2
    _others: ClassVar[tuple[int, ...]]  # the tokens that neither write nor are ignored

    def __post_init__(self) -> None:
        check_probability("ignore_probability", self.ignore_probability)

    @final
    def _sample(self, batch_size: int, length: int, generator: torch.Generator, bias: float | None) -> Tensor:
        """Draw writes, tokens to be ignored, and each other token as often as writes; first a write, last a read."""
        bits = coins(batch_size, length, generator, bias)
        ignored = coins(batch_size, length, generator, self.ignore_probability).bool()
        kind = torch.randint(0, 1 + len(self._others), (batch_size, length), generator=generator)
        acts = torch.tensor((WRITE_0, *self._others))[kind]
        acts = torch.where(kind == 0, bits, acts)
        tokens = torch.where(ignored, IGNORE_0 + bits, acts)
        tokens[:, 0] = bits[:, 0]
        tokens[:, -1] = READ
        return tokens

    def _input_kinds(self, length: int) -> dict[str, Sequence[int]]:
        """Return rows that begin with a write, as samples do: these do not show what the memory holds before."""
        return {
            "a one, then zeros to be ignored": framed((WRITE_1,), IGNORE_0, (READ,), length),
            "a zero, then ones to be ignored": framed((WRITE_0,), IGNORE_1, (READ,), length),
            "last write just before the read": framed((), WRITE_0, (WRITE_1, READ), length),
            "one write, then reads": framed((WRITE_1,), READ, (READ,), length),
            "write and read": [*repeated((WRITE_1, READ, WRITE_0, READ), length - 1), READ],
        }


@final
@configuration
@dataclass(frozen=True)
class FlipFlop(_Memory):
    """Tokens are write 0, write 1, ignore 0, ignore 1, read; the label, at reads only, is the bit written last.

    The memory holds 0 before the first write.  A sampled sequence begins with a write and ends with a read.

    Args:
        ignore_probability: Probability of a token to be ignored; what is left goes to writes and reads in equal
            parts.  Near one the writes are sparse and a bit must be held for long.
    """

    vocab_size: ClassVar[int] = 5
    title: ClassVar[str] = "flip-flop, {ignore_probability:g} ignored"
    _others: ClassVar[tuple[int, ...]] = (READ,)

    def _machine(self) -> MooreMachine:
        """Build the machine whose state is the bit and whether it was just read."""

        def step(state: tuple[int, bool], letter: int) -> tuple[int, bool]:
            return (letter if letter <= WRITE_1 else state[0]), letter == READ

        return MooreMachine.explored((0, False), self.vocab_size, step, lambda state: state[0] if state[1] else IGNORED)

    def _labels(self, tokens: Tensor) -> Tensor:
        bits = latest(tokens <= WRITE_1, tokens, 0)
        return torch.where(tokens == READ, bits, IGNORED)


@final
@configuration
@dataclass(frozen=True)
class FlipFlopWithUndo(_Memory, AutomatonTask):
    """A flip-flop with a sixth token, undo, which restores the bit from before the last write.

    One step is remembered: a second undo without a write in between changes nothing.

    Args:
        ignore_probability: Probability of a token to be ignored; what is left goes to writes, reads and undos in
            equal parts.
    """

    vocab_size: ClassVar[int] = 6
    title: ClassVar[str] = "flip-flop with undo, {ignore_probability:g} ignored"
    _others: ClassVar[tuple[int, ...]] = (READ, UNDO)

    def _machine(self) -> MooreMachine:
        """Build the machine whose state is the bit, the bit before the last write, and whether it was just read."""

        def step(state: tuple[int, int, bool], letter: int) -> tuple[int, int, bool]:
            bit, before, _ = state
            if letter <= WRITE_1:
                return letter, bit, False
            return (before if letter == UNDO else bit), before, letter == READ

        start = (0, 0, False)
        return MooreMachine.explored(start, self.vocab_size, step, lambda state: state[0] if state[2] else IGNORED)

    def _input_kinds(self, length: int) -> dict[str, Sequence[int]]:
        return {
            **super()._input_kinds(length),
            "write and undo": [*repeated((WRITE_1, UNDO), length - 1), READ],
            "undo after a long wait": framed((WRITE_1,), IGNORE_1, (UNDO, READ), length),
            "only undo": framed((), UNDO, (READ,), length),
        }
