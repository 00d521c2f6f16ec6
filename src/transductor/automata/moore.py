"""Finite machines with a label on every state: a word's label is that of the state it leads to."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar, final

import numpy as np

from transductor.automata.finite_automata import DFA
from transductor.automata.graphs import Integers, breadth_first, explored, first_seen, word_along
from transductor.automata.table_loops import reached_pairs, refined_classes, separation

if TYPE_CHECKING:
    from torch import Tensor

# The label of a position without one; cross entropy skips this value by default.
IGNORED: Final = -100
MOST_PAIRS: Final = 20_000_000
"""Pairs of states that words lead to, past which two machines are not compared pair by pair."""

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

    transitions: Integers
    outputs: Integers
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
        """Return the machine of every state reachable from ``start``; a state may be any hashable value."""
        states, rows = explored([start], lambda state: (step(state, letter) for letter in range(letters)))
        return cls(np.array(rows), np.array([label(state) for state in states]))

    @classmethod
    def from_dfa(cls, dfa: DFA) -> MooreMachine:
        """Return the machine with label one where ``dfa`` accepts and zero elsewhere; letters are numbered as there."""
        return cls(dfa.transitions, dfa.accepting_mask().astype(np.int64), dfa.start)

    @property
    def states(self) -> int:
        """How many states there are."""
        return len(self.transitions)

    @property
    def letters(self) -> int:
        """How many letters there are."""
        return int(self.transitions.shape[1])

    def labels(self, tokens: Tensor) -> Tensor:
        """Return the label after every letter of ``tokens`` ``(B, T)``, int64 of the same shape."""
        import torch

        letters_TB = np.ascontiguousarray(tokens.cpu().numpy().T)
        states_TB = np.empty(letters_TB.shape, dtype=np.int64)
        state_B = np.full(letters_TB.shape[1:], self.start, dtype=np.int64)
        for time, letter_B in enumerate(letters_TB):
            state_B = self.transitions[state_B, letter_B]
            states_TB[time] = state_B
        return torch.from_numpy(np.ascontiguousarray(self.outputs[states_TB].T))

    def minimised(self, *, empty_word: bool = False) -> MooreMachine:
        """Return the smallest machine with the same label for every word but the empty one, which has none.

        ``IGNORED`` counts as a label of its own.  States are numbered breadth-first; the start is state 0.

        Args:
            empty_word: The empty word has a label too, the start's.
        """
        kept = self.representative_states(empty_word=empty_word)
        return MooreMachine(self._equivalence_classes(empty_word)[self.transitions[kept]], self.outputs[kept])

    def representative_states(self, *, empty_word: bool = False) -> Integers:
        """Return for every state of :meth:`minimised` the first state, breadth-first, that it stands for.

        A start that is never returned to is the last choice, unless the empty word has a label: no other word ends
        there.
        """
        states, table = self._reached()
        if not empty_word and not (table == 0).any():
            states = np.roll(states, -1)
        _, first = np.unique(self._equivalence_classes(empty_word)[states], return_index=True)
        return states[first]

    def _equivalence_classes(self, empty_word: bool) -> Integers:
        """Return for every state, ``(states,)``, its number in :meth:`minimised`; −1 where no word leads.

        This is Hopcroft's refinement.  A start that is never returned to joins any state with its successors, unless
        the empty word has a label.
        """
        states, table = self._reached()
        labels, classes = np.unique(self.outputs[states], return_inverse=True)
        classes = refined_classes(table.size, table, classes, len(labels))
        if not empty_word and not (table == 0).any():
            alike = 1 + np.flatnonzero((classes[table[1:]] == classes[table[0]]).all(axis=1))
            if len(alike):
                classes[0] = classes[alike[np.argmin(self.outputs[states[alike]])]]
        class_of = np.full(self.states, -1, dtype=np.int64)
        class_of[states] = first_seen(classes)[0]
        return class_of

    def separating_word(self, other: MooreMachine, *, skip_ignored: bool = False) -> tuple[int, ...] | None:
        """Return a shortest word that the two machines label differently; ``None`` if there is none.

        ``None`` holds for words of all lengths.  Time and memory are nearly linear in the number of states of both
        (union-find); with ``skip_ignored``, in the number of pairs of states that words lead to.

        Args:
            other: A machine over the same letters.
            skip_ignored: Positions at which either machine has no label separate nothing.
        """
        if self.letters != other.letters:
            raise ValueError(f"other must have {self.letters} letters like this machine; got {other.letters}")
        sides = [(machine.transitions, machine.outputs, machine.start) for machine in (self, other)]
        if not skip_ignored:
            differ, word = separation(self.transitions.size + other.transitions.size, *sides[0], *sides[1], False)
            return tuple(word.tolist()) if differ else None
        # "Differ where both have a label" is not transitive, so every pair of states has to be looked at.
        labels = np.unique(np.concatenate([self.outputs, other.outputs]))
        shown = [
            (table, np.where(outputs == IGNORED, -1, np.searchsorted(labels, outputs)), start)
            for table, outputs, start in sides
        ]
        steps = self.transitions.size * other.states
        _, _, edge_into, conflict = reached_pairs(steps, *shown[0], *shown[1], MOST_PAIRS, False)
        if conflict == -2:
            raise ValueError(f"words lead to more than {MOST_PAIRS:,} pairs of states of the machine and other")
        return None if conflict == -1 else word_along(edge_into, conflict, self.letters)

    def _reached(self) -> tuple[Integers, Integers]:
        """Return the states that words lead to, in order of discovery, and their successors as places in that order."""
        return breadth_first(self.transitions, self.start)

    def recognising(self, label: int) -> DFA:
        """Return the automaton of the words that have ``label``, over the letters ``0 … letters − 1``."""
        accepting = np.flatnonzero(self.outputs == label).tolist()
        return DFA(tuple(range(self.letters)), self.transitions, self.start, frozenset(accepting))
