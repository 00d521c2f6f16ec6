"""Words as a model reads them: which of its tokens are letters, and which one comes before every word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from transductor.automata.graphs import Integers
from transductor.automata.moore import IGNORED, MooreMachine

# The first tokens of every model that is trained from a file, before the words of the data.
START, END, UNKNOWN = "<start>", "<end>", "<unknown>"
RESERVED: Final = (START, END, UNKNOWN)


@final
@dataclass(frozen=True)
class TokenAlphabet:
    """Which tokens of a model are letters of words, and what comes before a word.

    A model that was trained from a file reads ``<start>`` and then letters; its other reserved tokens never occur.
    Sequences other than ``<start> letters*`` are outside of every statement about such a model.

    Attributes:
        names: The names of the tokens 0, 1, ….
        letters: The tokens that are letters, in the order of the letters' numbers.
        begin: The token that comes before every word; None where a word begins with its first letter.
        empty_word: Whether the label of the empty word, which a model gives after ``begin``, means anything.
    """

    names: tuple[str, ...]
    letters: tuple[int, ...]
    begin: int | None = None
    empty_word: bool = True

    def __post_init__(self) -> None:
        used = [*self.letters, *([] if self.begin is None else [self.begin])]
        if not self.letters or len(set(used)) != len(used) or not all(0 <= token < self.vocab_size for token in used):
            raise ValueError(
                f"letters must be different tokens in [0, {self.vocab_size}), at least one, and begin another; got "
                f"letters {self.letters} and begin {self.begin}"
            )

    @classmethod
    def of_names(cls, names: Sequence[str], *, empty_word: bool = True) -> TokenAlphabet:
        """Return the alphabet of a model whose tokens have these names.

        Where the first ones are ``<start> <end> <unknown>``, the others are letters; otherwise all of them are.
        """
        names = tuple(names)
        if names[: len(RESERVED)] == RESERVED and len(names) > len(RESERVED):
            return cls(names, tuple(range(len(RESERVED), len(names))), 0, empty_word)
        return cls(names, tuple(range(len(names))), None, empty_word)

    @classmethod
    def all_tokens(cls, count: int) -> TokenAlphabet:
        """Return the alphabet of a model all of whose tokens are letters, named by their numbers."""
        return cls.of_names([str(token) for token in range(count)])

    @property
    def vocab_size(self) -> int:
        """How many tokens the model reads."""
        return len(self.names)

    @property
    def letter_names(self) -> tuple[str, ...]:
        """The names of the letters, in the order of their numbers."""
        return tuple(self.names[token] for token in self.letters)

    @property
    def shows_empty_word(self) -> bool:
        """Whether there is a position whose label is the empty word's, and means something."""
        return self.begin is not None and self.empty_word

    @property
    def restricted(self) -> bool:
        """Whether some sequences of tokens are no words."""
        return self.begin is not None or len(self.letters) < self.vocab_size

    def in_letters(self, tokens: Sequence[int]) -> list[int]:
        """Return the numbers of the letters of a word that is given as tokens, ``begin`` first where there is one.

        Raises:
            ValueError: At a token that is no letter, or where ``begin`` is missing.
        """
        word = list(tokens)
        if self.begin is not None:
            if not word or word[0] != self.begin:
                first = "nothing" if not word else self._named(word[0])
                raise ValueError(f"words must begin with {self.names[self.begin]}; one begins with {first}")
            word = word[1:]
        number = {token: letter for letter, token in enumerate(self.letters)}
        for token in word:
            if token not in number:
                raise ValueError(f"words must consist of letters; {self._named(token)} is none")
        return [number[token] for token in word]

    def spelled(self, tokens: Sequence[int]) -> str:
        """Return a sequence of tokens by its letters' names; ε for the empty word."""
        shown = tokens[1:] if self.begin is not None and tokens and tokens[0] == self.begin else tokens
        return " ".join(self._named(token) for token in shown) or "ε"

    def lifted(self, machine: MooreMachine) -> MooreMachine:
        """Return a machine over letters as one over tokens, which reads ``begin`` first.

        After ``begin`` comes the label of the machine's start: the empty word's.  A sequence that is no word has no
        label from there on.
        """
        self._check_letters(machine)
        if not self.restricted:
            return machine
        count = machine.states
        before, after, outside = count, count + 1, count + 2
        table = np.full((count + 3, self.vocab_size), outside, dtype=np.int64)
        table[:count, self.letters] = machine.transitions
        table[after, self.letters] = machine.transitions[machine.start]
        first = machine.outputs[machine.start] if self.empty_word else IGNORED
        outputs = np.concatenate([machine.outputs, [IGNORED, first, IGNORED]])
        if self.begin is None:
            return MooreMachine(table, outputs, machine.start)
        table[before, self.begin] = after
        return MooreMachine(table, outputs, before)

    def domain(self) -> MooreMachine | None:
        """Return the machine with label 1 on the beginnings of words; None where every sequence is one."""
        if not self.restricted:
            return None
        before, inside, outside = 0, 1, 2
        table = np.full((3, self.vocab_size), outside, dtype=np.int64)
        table[inside, self.letters] = inside
        if self.begin is None:
            return MooreMachine(table, np.array([1, 1, 0]), inside)
        table[before, self.begin] = inside
        return MooreMachine(table, np.array([1, 1, 0]), before)

    def conditioned(self, machine: MooreMachine) -> MooreMachine:
        """Return a machine over tokens as the smallest one over letters, after ``begin``; the inverse of `lifted`."""
        if machine.letters != self.vocab_size:
            raise ValueError(f"machine must read {self.vocab_size} tokens; got {machine.letters}")
        start = machine.start if self.begin is None else int(machine.transitions[machine.start, self.begin])
        table = machine.transitions[:, self.letters]
        return MooreMachine(table, machine.outputs, start).minimised(empty_word=self.shows_empty_word)

    def idle(self, machine: MooreMachine, *, before: bool) -> MooreMachine:
        """Return a machine over letters as one over all tokens, where those that are no letters change nothing.

        So a model that is this machine reads ``begin`` first, passes over tokens that it was never taught, and has no
        state but the machine's.

        Args:
            machine: A machine over the letters.
            before: Add a last state for what is before ``begin``, to which no token leads back.
        """
        self._check_letters(machine)
        table: Integers = np.repeat(np.arange(machine.states)[:, None], self.vocab_size, axis=1)
        table[:, self.letters] = machine.transitions
        if not before:
            return MooreMachine(table, machine.outputs, machine.start)
        table = np.concatenate([table, table[machine.start : machine.start + 1]])
        return MooreMachine(table, np.append(machine.outputs, IGNORED), machine.states)

    def _named(self, token: int) -> str:
        return self.names[token] if 0 <= token < self.vocab_size else f"token {token}"

    def _check_letters(self, machine: MooreMachine) -> None:
        if machine.letters != len(self.letters):
            raise ValueError(f"machine must have one letter for each of {len(self.letters)}; got {machine.letters}")
