"""Finite machines with a label on every state: a word's label is that of the state it leads to."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final, TypeVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transductor.automata.finite import DFA

__all__ = ["IGNORED", "MooreMachine"]

# A position without a label; the value that cross entropy skips unless told otherwise.
IGNORED: Final = -100

_State = TypeVar("_State", bound=Hashable)


@final
@dataclass(frozen=True, eq=False)
class MooreMachine:
    """A complete deterministic machine over the letters ``0 … letters − 1``.

    Attributes:
        transitions: ``(states, letters)``; ``transitions[state, letter]`` is the next state.
        outputs: ``(states,)``; the label of each state, ``IGNORED`` where it has none.
        start: The state before the first letter; its label is never shown.
    """

    transitions: NDArray[np.int64]
    outputs: NDArray[np.int64]
    start: int = 0

    def __post_init__(self) -> None:
        transitions, outputs = (np.array(array, dtype=np.int64) for array in (self.transitions, self.outputs))
        if transitions.ndim != 2 or outputs.shape != transitions.shape[:1]:
            raise ValueError(
                "transitions must be (states, letters) and outputs (states,); "
                f"got {transitions.shape} and {outputs.shape}"
            )
        if transitions.size and not 0 <= transitions.min() <= transitions.max() < len(transitions):
            raise ValueError(f"transitions must lead to the states 0 to {len(transitions) - 1}")
        if not 0 <= self.start < len(transitions):
            raise ValueError(f"start must be one of the states 0 to {len(transitions) - 1}; got {self.start!r}")
        for field, array in (("transitions", transitions), ("outputs", outputs)):
            array.setflags(write=False)  # tasks share their machines
            object.__setattr__(self, field, array)

    @classmethod
    def explored(
        cls, start: _State, letters: int, step: Callable[[_State, int], _State], label: Callable[[_State], int]
    ) -> MooreMachine:
        """The machine of every state reachable from ``start``, given how one letter moves a state of any kind."""
        numbers = {start: 0}
        found, rows = [start], []
        for state in found:
            successors = [step(state, letter) for letter in range(letters)]
            for successor in successors:
                if successor not in numbers:
                    numbers[successor] = len(found)
                    found.append(successor)
            rows.append([numbers[successor] for successor in successors])
        return cls(np.array(rows), np.array([label(state) for state in found]))

    @classmethod
    def from_dfa(cls, dfa: DFA) -> MooreMachine:
        """Label one where ``dfa`` accepts and zero elsewhere; letters are numbered as in its alphabet."""
        accepts = np.isin(np.arange(dfa.states), list(dfa.accepting))
        return cls(dfa.transitions, accepts.astype(np.int64), dfa.start)

    @property
    def states(self) -> int:
        """How many states there are."""
        return len(self.transitions)

    @property
    def letters(self) -> int:
        """How many letters there are."""
        return int(self.transitions.shape[1])

    def labels(self, tokens: Tensor) -> Tensor:
        """The label after every letter of ``tokens`` ``(B, T)``, int64 of the same shape."""
        letters_TB = np.ascontiguousarray(tokens.cpu().numpy().T)
        states_TB = np.empty(letters_TB.shape, dtype=np.int64)
        state_B = np.full(letters_TB.shape[1:], self.start, dtype=np.int64)
        for time, letter_B in enumerate(letters_TB):
            state_B = self.transitions[state_B, letter_B]
            states_TB[time] = state_B
        return torch.from_numpy(np.ascontiguousarray(self.outputs[states_TB].T))

    def recognising(self, label: int) -> DFA:
        """The automaton of the words that have ``label``, over the letters ``0 … letters − 1``."""
        accepting = np.flatnonzero(self.outputs == label).tolist()
        return DFA(tuple(range(self.letters)), self.transitions, self.start, frozenset(accepting))
