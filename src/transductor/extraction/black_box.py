"""Machines from answers alone: what a complete model says, whatever is inside it.

Asking gives a machine that agrees with the model on every word that was tried; it cannot tell where they part later.  A
rotation that is wrong by 1e-3 of a radian a letter passes every test that is shorter than its first failure.
For real numbers instead of labels see :func:`transductor.automata.learned_from_callable`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transductor.automata.moore import IGNORED, MooreMachine
from transductor.checks import check_positive, check_token_ids
from transductor.extraction.extracting import Extraction
from transductor.extraction.probing import labels_said, random_words, states_visited
from transductor.model import RationalReadout, RationalTransductor, SequenceModel

# Tokens (B, T) to labels (B, T).
Labels = Callable[[Tensor], Tensor]

_OBSERVED_WORDS, _OBSERVED_LENGTH = 1024, 24


@dataclass(frozen=True)
class LearnedMachine:
    """A machine that gives the answers of a function, and how well it fits.

    Attributes:
        machine: The smallest one with these labels.
        words_tested: How many random words both were compared on.
        longest: The length of the longest of these words; nothing is known beyond.
        disagreements: At how many positions of these words the labels differ.
        positions: How many positions these words have.
        queries: How many words were asked for while learning; None where the states were known.
    """

    machine: MooreMachine
    words_tested: int
    longest: int
    disagreements: int
    positions: int
    queries: int | None = None

    @property
    def fit(self) -> float:
        """The share of positions on which both agree."""
        return 1 - self.disagreements / max(1, self.positions)


def labelled(
    model: RationalReadout | RationalTransductor, extraction: Extraction, *, words: Tensor | None = None
) -> LearnedMachine:
    """Return the machine of a complete model's labels, over the states of its head.

    The label after a letter is taken to depend on the letter and the state before it, and is what the model says most
    often on short words, or at least on a shortest one; where it depends on more than that, ``fit`` is less than one.

    Args:
        model: The model that ``extraction`` was made from.
        extraction: The states.
        words: ``(B, T)``; random ones if not given.  Half of them are only for the comparison.
    """
    states = extraction.machine
    if words is None:
        words = random_words(states.letters, _OBSERVED_WORDS, _OBSERVED_LENGTH)
    check_token_ids("words", words, states.letters)
    if words.ndim != 2 or len(words) < 2:
        raise ValueError(f"words must be tokens of shape (B, T) with B at least 2; got {tuple(words.shape)}")
    words = words.long().cpu()
    said = labels_said(model, words)
    half = len(words) // 2
    after = states_visited(states, words[:half]).numpy()
    before = np.concatenate([np.full((half, 1), states.start), after[:, :-1]], axis=1)
    votes = np.zeros((states.states, states.letters, int(said.max()) + 1), dtype=np.int64)
    np.add.at(votes, (before, words[:half].numpy(), said[:half].numpy()), 1)
    label = np.where(votes.any(axis=-1), votes.argmax(axis=-1), IGNORED)
    unseen = np.argwhere((label == IGNORED) & (states.transitions != extraction.sink))
    if len(unseen):
        label[tuple(unseen.T)] = _labels_of_steps(model, states, unseen)
    machine = MooreMachine.explored(
        (states.start, IGNORED),
        states.letters,
        lambda pair, letter: (int(states.transitions[pair[0], letter]), int(label[pair[0], letter])),
        lambda pair: pair[1],
    ).minimised()
    wrong = (machine.labels(words[half:]) != said[half:]).sum()
    return LearnedMachine(machine, len(words) - half, words.shape[1], int(wrong), said[half:].numel())


def extract_from_labels(
    labels: Labels | SequenceModel[Any],
    letters: int,
    *,
    checks: int = 1000,
    check_length: int = 50,
    max_rounds: int = 1000,
    seed: int = 0,
) -> LearnedMachine:
    """Learn the machine of a function on words by asking it: Angluin's L* from AALpy (``transductor[extract]``).

    Where hypothesis and function differ on one of ``checks`` random words, the word refines the hypothesis; learning
    ends when none differs.  The fit is then measured on as many fresh words.

    Args:
        labels: A function from tokens ``(B, T)`` to labels ``(B, T)``, like ``MooreMachine.labels``; or a model, which
            is asked for its argmax.
        letters: Size of the alphabet.
        checks: Random words on which a hypothesis is tried.
        check_length: Length of these words.
        max_rounds: Refinements after which the last hypothesis is taken as it is.
        seed: Seed of these words.

    Raises:
        ImportError: If AALpy is not installed.
    """
    for name, number in (("letters", letters), ("checks", checks), ("check_length", check_length)):
        check_positive(name, number)
    check_positive("max_rounds", max_rounds)
    try:
        from aalpy.base import SUL, Oracle  # type: ignore[import-untyped, import-not-found, unused-ignore]
        from aalpy.learning_algs import run_Lstar  # type: ignore[import-untyped, import-not-found, unused-ignore]
    except ImportError as error:
        raise ImportError("extract_from_labels needs AALpy: pip install 'transductor[extract]'") from error
    answers = partial(labels_said, labels) if isinstance(labels, SequenceModel) else labels
    generator = torch.Generator().manual_seed(seed)
    asked = 0

    class Asked(SUL):  # type: ignore[misc]
        """The function, asked about one complete word at a time."""

        def query(self, word: tuple[int, ...]) -> list[int]:
            nonlocal asked
            self.num_queries += 1
            if not word:
                return [IGNORED]
            asked += 1
            return [int(label) for label in answers(torch.tensor([word]))[0]]

        def pre(self) -> None:
            self.word: list[int] = []

        def post(self) -> None:
            pass

        def step(self, letter: int | None) -> int:
            self.word += [] if letter is None else [letter]
            return self.query(tuple(self.word))[-1]

    class RandomWords(Oracle):  # type: ignore[misc]
        """The random words, all asked about at once."""

        def find_cex(self, hypothesis: Any) -> tuple[int, ...] | None:
            words = random_words(letters, checks, check_length, generator)
            differs = answers(words) != _moore(hypothesis, letters).labels(words)
            rows = differs.any(1).nonzero().flatten()
            if not len(rows):
                return None
            # The row that differs first: short words make small tables.
            row = rows[differs[rows].long().argmax(1).argmin()]
            return tuple(words[row, : int(differs[row].long().argmax()) + 1].tolist())

    alphabet = list(range(letters))
    asked_for = Asked()
    learned = run_Lstar(
        alphabet,
        asked_for,
        RandomWords(alphabet, asked_for),
        automaton_type="moore",
        max_learning_rounds=max_rounds,
        print_level=0,
    )
    machine = _moore(learned, letters).minimised()
    words = random_words(letters, checks, check_length, generator)
    wrong = int((answers(words) != machine.labels(words)).sum())
    return LearnedMachine(machine, checks, check_length, wrong, words.numel(), asked)


def _labels_of_steps(model: SequenceModel[Any], machine: MooreMachine, steps: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the labels ``(n,)`` of ``steps (n, 2)``, states and letters, each after a shortest word to its state."""
    words: dict[int, tuple[int, ...]] = {machine.start: ()}
    queue = [machine.start]
    for state in queue:
        for letter, target in enumerate(machine.transitions[state].tolist()):
            if target not in words:
                words[target] = (*words[state], letter)
                queue.append(target)
    asked = [(*words[state], letter) for state, letter in steps.tolist()]
    longest = max(map(len, asked))
    # What follows a position does not change its label.
    tokens = torch.tensor([[*word, *[0] * (longest - len(word))] for word in asked])
    ends = torch.tensor([len(word) - 1 for word in asked])
    said = torch.cat([labels_said(model, part) for part in tokens.split(_OBSERVED_WORDS)])
    return said[torch.arange(len(asked)), ends].numpy()


def _moore(learned: Any, letters: int) -> MooreMachine:
    """Return AALpy's machine as one of ours."""
    number = {state.state_id: index for index, state in enumerate(learned.states)}
    table = [[number[state.transitions[letter].state_id] for letter in range(letters)] for state in learned.states]
    outputs = [state.output for state in learned.states]
    return MooreMachine(np.array(table), np.array(outputs), number[learned.initial_state.state_id])
