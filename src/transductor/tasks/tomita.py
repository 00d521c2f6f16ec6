"""Tomita's seven languages: whether the word so far is in the language."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import torch
from torch import Tensor

from transductor.automata.moore import MooreMachine
from transductor.checks import one_of
from transductor.configuration import configuration
from transductor.tasks.base import AutomatonTask, named_machine
from transductor.tasks.sampling import binary_input_kinds, coins


@final
@configuration
@dataclass(frozen=True)
class Tomita(AutomatonTask):
    """Binary tokens; the label at t is one where the first t letters are a word of Tomita's language ``number``.

    Plain coins leave most of these languages within a few letters.  So the sampler flips a letter that would leave the
    language for good, until a time drawn for each sequence from twice the length: about half of them never leave.
    """

    number: int = 1
    title: ClassVar[str] = "Tomita {number}"
    coin: ClassVar[str] = "a one, before letters are flipped"
    vocab_size: ClassVar[int] = 2
    output_size: ClassVar[int] = 2

    def __post_init__(self) -> None:
        one_of("number", self.number, range(1, 8))

    def _machine(self) -> MooreMachine:
        return named_machine(f"tomita:{self.number}")

    def _sample(self, batch_size: int, length: int, generator: torch.Generator, bias: float | None) -> Tensor:
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

    def _input_kinds(self, length: int) -> dict[str, Sequence[int]]:
        return {
            **binary_input_kinds(length),
            "ones and zeros by turns": [1 - bit for bit in binary_input_kinds(length)["alternating"]],
            "a zero at the end": [1] * (length - 1) + [0],
            "a zero at the start": [0] + [1] * (length - 1),
            "a one at the end": [0] * (length - 1) + [1],
            "a one at the start": [1] + [0] * (length - 1),
        }
