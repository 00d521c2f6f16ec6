"""Tomita's seven languages: is the word so far in the language?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, final

import numpy as np
import torch
from torch import Tensor

from transductor.automata.library import machine
from transductor.automata.moore import MooreMachine
from transductor.checks import one_of
from transductor.configuration import configuration
from transductor.tasks.base import AutomatonTask
from transductor.tasks.sampling import binary_families, coins


@final
@configuration
@dataclass(frozen=True)
class Tomita(AutomatonTask):
    """Binary tokens; the label at t is one where the first t letters are a word of Tomita's language ``number``.

    Coins alone leave most of these languages within a few letters.  So the sampler turns a letter over where it would
    leave for good, until a time drawn for each sequence from twice the length: about half of them never leave.
    """

    number: int = 1
    coin: ClassVar[str] = "a one, before letters are turned over"

    def __post_init__(self) -> None:
        one_of("number", self.number, range(1, 8))

    @property
    def name(self) -> str:
        """``Tomita n``."""
        return f"Tomita {self.number}"

    @property
    def vocab_size(self) -> int:
        """Zero and one."""
        return 2

    @property
    def output_size(self) -> int:
        """Outside and inside."""
        return 2

    def automaton(self) -> MooreMachine:
        """The minimal machine of the language."""
        return _machine(self.number)

    def _drawn(self, batch_size: int, length: int, generator: torch.Generator, bias: float | None) -> Tensor:
        tokens = coins(batch_size, length, generator, bias)
        free = torch.randint(0, 2 * length, (batch_size,), generator=generator).numpy()
        table = self.automaton().transitions
        lost = np.all(table == np.arange(len(table))[:, None], axis=1) & (self.automaton().outputs == 0)
        letters_TB = tokens.numpy().T.copy()
        state_B = np.full(batch_size, self.automaton().start)
        for time, letter_B in enumerate(letters_TB):
            letter_B ^= (time < free) & lost[table[state_B, letter_B]] & ~lost[state_B]
            state_B = table[state_B, letter_B]
        return torch.from_numpy(letters_TB.T.copy())

    def _families(self, length: int) -> dict[str, Sequence[int]]:
        return {
            **binary_families(length),
            "ones and zeros by turns": [1 - bit for bit in binary_families(length)["alternating"]],
            "a zero at the end": [1] * (length - 1) + [0],
            "a zero at the start": [0] + [1] * (length - 1),
            "a one at the end": [0] * (length - 1) + [1],
            "a one at the start": [1] + [0] * (length - 1),
        }


@cache
def _machine(number: int) -> MooreMachine:
    dfa = machine(f"tomita:{number}").dfa
    assert dfa is not None
    return MooreMachine.from_dfa(dfa)
