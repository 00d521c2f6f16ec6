"""The bit last written, told only when it is read; and the same with an undo."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, final

import torch
from torch import Tensor

from transductor.automata.moore import IGNORED, MooreMachine
from transductor.configuration import configuration
from transductor.tasks.base import AutomatonTask, Task
from transductor.tasks.sampling import check_probability, coins, framed, latest, repeated

WRITE_0, WRITE_1, IGNORE_0, IGNORE_1, READ, UNDO = range(6)


@final
@configuration
@dataclass(frozen=True)
class FlipFlop(Task):
    """Letters write 0, write 1, ignore 0, ignore 1, read; the label, at reads only, is the bit last written.

    The memory holds 0 before the first write.  A sampled sequence begins with a write and ends with a read.

    Args:
        ignore_probability: Of a letter to be ignored; what is left goes to writes and reads in equal parts.  Near one
            the writes are sparse and a bit must be held for long.
    """

    ignore_probability: float = 0.8
    coin: ClassVar[str] = "a one, among the bits that are written or to be ignored"

    def __post_init__(self) -> None:
        check_probability("ignore_probability", self.ignore_probability)

    @property
    def name(self) -> str:
        """``flip-flop``, and how many letters are to be ignored."""
        return f"flip-flop, {self.ignore_probability:g} ignored"

    @property
    def vocab_size(self) -> int:
        """Two writes, two letters to be ignored, and read."""
        return 5

    @property
    def output_size(self) -> int:
        """The bit."""
        return 2

    def automaton(self) -> MooreMachine:
        """The bit, and whether it was just read."""
        return _plain_machine()

    def _drawn(self, batch_size: int, length: int, generator: torch.Generator, bias: float | None) -> Tensor:
        return _instructions(batch_size, length, generator, bias, self.ignore_probability, (READ,))

    def _labels(self, tokens: Tensor) -> Tensor:
        bits = latest(tokens <= WRITE_1, tokens, 0)
        return torch.where(tokens == READ, bits, IGNORED)

    def _families(self, length: int) -> dict[str, Sequence[int]]:
        return _memory_families(length)


@final
@configuration
@dataclass(frozen=True)
class FlipFlopWithUndo(AutomatonTask):
    """A flip-flop with a sixth letter, undo, which restores the bit from before the last write.

    One step is remembered: a second undo without a write in between changes nothing.

    Args:
        ignore_probability: Of a letter to be ignored; what is left goes to writes, reads and undos in equal parts.
    """

    ignore_probability: float = 0.8
    coin: ClassVar[str] = "a one, among the bits that are written or to be ignored"

    def __post_init__(self) -> None:
        check_probability("ignore_probability", self.ignore_probability)

    @property
    def name(self) -> str:
        """``flip-flop with undo``, and how many letters are to be ignored."""
        return f"flip-flop with undo, {self.ignore_probability:g} ignored"

    @property
    def vocab_size(self) -> int:
        """Two writes, two letters to be ignored, read and undo."""
        return 6

    @property
    def output_size(self) -> int:
        """The bit."""
        return 2

    def automaton(self) -> MooreMachine:
        """The bit, the bit before the last write, and whether it was just read."""
        return _undo_machine()

    def _drawn(self, batch_size: int, length: int, generator: torch.Generator, bias: float | None) -> Tensor:
        return _instructions(batch_size, length, generator, bias, self.ignore_probability, (READ, UNDO))

    def _families(self, length: int) -> dict[str, Sequence[int]]:
        return {
            **_memory_families(length),
            "write and undo": [*repeated((WRITE_1, UNDO), length - 1), READ],
            "undo after a long wait": framed((WRITE_1,), IGNORE_1, (UNDO, READ), length),
            "only undo": framed((), UNDO, (READ,), length),
        }


def _instructions(
    batch_size: int,
    length: int,
    generator: torch.Generator,
    bias: float | None,
    ignore_probability: float,
    others: tuple[int, ...],
) -> Tensor:
    """Letters to be ignored, writes, and each of ``others`` as often as writes; a write first and a read at the end."""
    bits = coins(batch_size, length, generator, bias)
    ignored = coins(batch_size, length, generator, ignore_probability).bool()
    kind = torch.randint(0, 1 + len(others), (batch_size, length), generator=generator)
    acts = torch.tensor((WRITE_0, *others))[kind]
    acts = torch.where(kind == 0, bits, acts)
    tokens = torch.where(ignored, IGNORE_0 + bits, acts)
    tokens[:, 0] = bits[:, 0]
    tokens[:, -1] = READ
    return tokens


def _memory_families(length: int) -> dict[str, Sequence[int]]:
    """They begin with a write, as samples do: what the memory holds before it, nobody can learn from these."""
    return {
        "a one, then zeros to be ignored": framed((WRITE_1,), IGNORE_0, (READ,), length),
        "a zero, then ones to be ignored": framed((WRITE_0,), IGNORE_1, (READ,), length),
        "last write just before the read": framed((), WRITE_0, (WRITE_1, READ), length),
        "one write, then reads": framed((WRITE_1,), READ, (READ,), length),
        "write and read": [*repeated((WRITE_1, READ, WRITE_0, READ), length - 1), READ],
    }


@cache
def _plain_machine() -> MooreMachine:
    def step(state: tuple[int, bool], letter: int) -> tuple[int, bool]:
        return (letter if letter <= WRITE_1 else state[0]), letter == READ

    return MooreMachine.explored((0, False), 5, step, lambda state: state[0] if state[1] else IGNORED)


@cache
def _undo_machine() -> MooreMachine:
    def step(state: tuple[int, int, bool], letter: int) -> tuple[int, int, bool]:
        bit, before, _ = state
        if letter <= WRITE_1:
            return letter, bit, False
        return (before if letter == UNDO else bit), before, letter == READ

    return MooreMachine.explored((0, 0, False), 6, step, lambda state: state[0] if state[2] else IGNORED)
