"""Machines from answers: Angluin's L*, with many words a question and counterexamples cut to one suffix.

The table of observations has a row for every access word and every access word with one letter more, and a column for
every suffix; a cell is the label after both.  Every closed table is a machine, and all of them are kept: where a model
is wrong on a few words, its later machines explain those too, and an earlier one is the better description.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from transductor.automata.moore import IGNORED, MooreMachine

Word = tuple[int, ...]
# The labels after words; the empty word's is IGNORED where there is none.
Answers = Callable[[Sequence[Word]], Sequence[int]]


@dataclass(frozen=True)
class Hypothesis:
    """The machine of a closed table.

    Attributes:
        machine: Its states are the rows; not minimised.
        access: For each state a word that leads there.
        queries: How many words have been asked for.
    """

    machine: MooreMachine
    access: tuple[Word, ...]
    queries: int


class ObservationTable:
    """What has been asked so far.

    Args:
        letters: Size of the alphabet.
        answers: The labels of words.
        max_states: A table that needs more rows is given up.
    """

    def __init__(self, letters: int, answers: Answers, max_states: int) -> None:
        self.letters, self.answers, self.max_states = letters, answers, max_states
        self.access: list[Word] = [()]
        self.suffixes: list[Word] = [()]
        self.known: dict[Word, int] = {}

    def closed(self) -> Hypothesis | None:
        """Ask until every row's successors are rows; None past ``max_states``."""
        while len(self.access) <= self.max_states:
            frontier = [(*word, letter) for word in self.access for letter in range(self.letters)]
            self._ask((*word, *suffix) for word in (*self.access, *frontier) for suffix in self.suffixes)
            number: dict[tuple[int, ...], int] = {}
            for word in self.access:
                number.setdefault(self._row(word), len(number))
            fresh = {self._row(word): word for word in reversed(frontier) if self._row(word) not in number}
            if not fresh:
                return self._hypothesis(number, frontier)
            self.access += sorted(fresh.values(), key=lambda word: (len(word), word))
        return None

    def refine(self, hypothesis: Hypothesis, word: Word) -> bool:
        """Add the suffix of a word that tells two rows apart that were one; False where no suffix of it does.

        The machine and the function give the word different labels.  So somewhere along it, putting the access word of
        the machine's state for what was read changes the answer; what follows that letter is the suffix.
        """
        table, state = hypothesis.machine.transitions, hypothesis.machine.start
        spliced: list[Word] = [word]
        for place, letter in enumerate(word):
            state = int(table[state, letter])
            spliced.append((*hypothesis.access[state], *word[place + 1 :]))
        self._ask(spliced)
        labels = [self.known[each] for each in spliced]
        for place in reversed(range(len(word))):  # the shortest suffix
            if labels[place] != labels[place + 1] and word[place + 1 :] not in self.suffixes:
                self.suffixes.append(word[place + 1 :])
                return True
        return False

    def _ask(self, words: Iterator[Word] | Sequence[Word]) -> None:
        missing = [word for word in dict.fromkeys(words) if word not in self.known]
        if missing:
            self.known.update(zip(missing, self.answers(missing), strict=True))

    def _row(self, word: Word) -> tuple[int, ...]:
        return tuple(self.known[*word, *suffix] for suffix in self.suffixes)

    def _hypothesis(self, number: dict[tuple[int, ...], int], frontier: Sequence[Word]) -> Hypothesis:
        first: dict[int, Word] = {}
        for word in self.access:
            first.setdefault(number[self._row(word)], word)
        access = tuple(first[state] for state in range(len(first)))
        table = [[number[self._row((*word, letter))] for letter in range(self.letters)] for word in access]
        outputs = [self.known[word] for word in access]
        return Hypothesis(MooreMachine(np.array(table), np.array(outputs)), access, len(self.known))


def hypotheses(
    letters: int,
    answers: Answers,
    counterexample: Callable[[MooreMachine], Word | None],
    *,
    max_states: int,
    max_rounds: int,
) -> Iterator[Hypothesis]:
    """Yield the machines of L*, each refined by a word on which the one before was wrong.

    Args:
        letters: Size of the alphabet.
        answers: The labels of words.
        counterexample: A word whose label is not the machine's; None where there is none left.
        max_states: Larger machines are not looked for.
        max_rounds: Refinements after which to stop.
    """
    table = ObservationTable(letters, answers, max_states)
    for _ in range(max_rounds + 1):
        hypothesis = table.closed()
        if hypothesis is None:
            return
        yield hypothesis
        word = counterexample(hypothesis.machine)
        if word is None or not table.refine(hypothesis, word):
            return


def description_bits(machine: MooreMachine, wrong: int, positions: int) -> float:
    """Return how many bits name a machine and the positions, of so many, at which it is wrong."""
    labels = len(set(machine.outputs.tolist()) - {IGNORED}) or 1
    own = machine.states * (machine.letters * math.log2(max(2, machine.states)) + math.log2(max(2, labels)))
    share = min(max(wrong, 1) / max(positions, 2), 0.5)
    entropy = -share * math.log2(share) - (1 - share) * math.log2(1 - share)
    return own + positions * entropy * (wrong > 0)
