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
from transductor.automata.token_alphabet import TokenAlphabet
from transductor.checks import check_positive
from transductor.extraction.asking import answers_of
from transductor.extraction.extracting import Extraction
from transductor.extraction.probing import (
    Sequences,
    Words,
    labels_at_tokens,
    labels_said,
    states_visited,
    words_of_tokens,
)
from transductor.extraction.questions import Word, hypotheses
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
    model: RationalReadout | RationalTransductor, extraction: Extraction, *, words: Sequences | None = None
) -> LearnedMachine:
    """Return the machine of a complete model's labels, over the states of its head.

    The label after a letter is taken to depend on the letter and the state before it, and is what the model says most
    often on short words, or at least on a shortest one; where it depends on more than that, ``fit`` is less than one.

    Args:
        model: The model that ``extraction`` was made from.
        extraction: The states.
        words: As for :func:`~transductor.extraction.extract`; random ones if not given.  Half of them are only for the
            comparison.
    """
    states = extraction.machine
    alphabet = extraction.alphabet or TokenAlphabet.all_tokens(model.vocab_size)
    if words is None:
        given = Words.random(states.letters, _OBSERVED_WORDS, _OBSERVED_LENGTH)
    else:
        given = words_of_tokens(words, alphabet)
    if len(given) < 2:
        raise ValueError(f"words must be tokens of shape (B, T) with B at least 2; got {len(given)} words")
    said = labels_said(model, given.tokens(alphabet))
    after_letters = said[:, said.shape[1] - given.letters.shape[1] :]
    half = len(given) // 2
    first, inside = given.rows(slice(half)), given.inside[:half]
    after = states_visited(states, first.letters).numpy()
    before = np.concatenate([np.full((half, 1), states.start), after[:, :-1]], axis=1)[inside.numpy()]
    votes = np.zeros((states.states, states.letters, int(said.max()) + 1), dtype=np.int64)
    np.add.at(votes, (before, first.letters[inside].numpy(), after_letters[:half][inside].numpy()), 1)
    label = np.where(votes.any(axis=-1), votes.argmax(axis=-1), IGNORED)
    unseen = np.argwhere((label == IGNORED) & (states.transitions != extraction.sink))
    if len(unseen):
        label[tuple(unseen.T)] = _labels_of_steps(model, states, unseen, alphabet)
    machine = MooreMachine.explored(
        (states.start, int(said[0, 0]) if alphabet.shows_empty_word else IGNORED),
        states.letters,
        lambda pair, letter: (int(states.transitions[pair[0], letter]), int(label[pair[0], letter])),
        lambda pair: pair[1],
    ).minimised(empty_word=alphabet.shows_empty_word)
    fresh = given.rows(slice(half, None))
    counts = fresh.positions(alphabet)
    given_by_machine = labels_at_tokens(machine, fresh, alphabet)
    wrong = (given_by_machine != said[half:])[counts].sum()
    return LearnedMachine(machine, len(fresh), given.letters.shape[1], int(wrong), int(counts.sum()))


def extract_from_labels(
    labels: Labels | SequenceModel[Any],
    letters: int | TokenAlphabet,
    *,
    checks: int = 1000,
    check_length: int = 50,
    max_rounds: int = 1000,
    max_states: int = 2000,
    seed: int = 0,
) -> LearnedMachine:
    """Learn the machine of a function on words by asking it: Angluin's L*.

    Where hypothesis and function differ on one of ``checks`` random words, the word refines the hypothesis; learning
    ends when none differs.  The fit is then measured on as many fresh words.

    Args:
        labels: A function from tokens ``(B, T)`` to labels ``(B, T)``, like ``MooreMachine.labels``; or a model, which
            is asked for its argmax.
        letters: Size of the alphabet; or which tokens are letters, and what comes before a word.
        checks: Random words on which a hypothesis is tried.
        check_length: Length of these words.
        max_rounds: Refinements after which the last hypothesis is taken as it is.
        max_states: The last hypothesis before more states are needed is taken as it is.
        seed: Seed of these words.
    """
    for name, number in (("checks", checks), ("check_length", check_length), ("max_states", max_states)):
        check_positive(name, number)
    check_positive("max_rounds", max_rounds)
    if not isinstance(letters, TokenAlphabet):
        check_positive("letters", letters)
    alphabet = letters if isinstance(letters, TokenAlphabet) else TokenAlphabet.all_tokens(letters)
    said: Labels = partial(labels_said, labels) if isinstance(labels, SequenceModel) else labels
    generator = torch.Generator().manual_seed(seed)

    def tried(machine: MooreMachine) -> tuple[Words, Tensor]:
        """Return fresh random words, and where the machine is wrong on them."""
        words = Words.random(len(alphabet.letters), checks, check_length, generator)
        own = labels_at_tokens(machine, words, alphabet)
        return words, (said(words.tokens(alphabet)) != own) & words.positions(alphabet)

    def counterexample(machine: MooreMachine) -> Word | None:
        words, differs = tried(machine)
        places = differs.nonzero()
        if not len(places):
            return None
        row, place = places[places[:, 1].argmin()].tolist()  # short words make small tables
        return tuple(words.letters[row, : place + (alphabet.begin is None)].tolist())

    last = None
    for hypothesis in hypotheses(
        len(alphabet.letters),
        answers_of(said, alphabet),
        counterexample,
        max_states=max_states,
        max_rounds=max_rounds,
    ):
        last = hypothesis
    if last is None:
        raise ValueError(f"max_states must be larger: the function has more than {max_states} states")
    machine = last.machine.minimised(empty_word=alphabet.shows_empty_word)
    words, differs = tried(machine)
    positions = int(words.positions(alphabet).sum())
    return LearnedMachine(machine, checks, check_length, int(differs.sum()), positions, last.queries)


def _labels_of_steps(
    model: SequenceModel[Any], machine: MooreMachine, steps: NDArray[np.int64], alphabet: TokenAlphabet
) -> NDArray[np.int64]:
    """Return the labels ``(n,)`` of ``steps (n, 2)``, states and letters, each after a shortest word to its state."""
    words: dict[int, tuple[int, ...]] = {machine.start: ()}
    queue = [machine.start]
    for state in queue:
        for letter, target in enumerate(machine.transitions[state].tolist()):
            if target not in words:
                words[target] = (*words[state], letter)
                queue.append(target)
    answers = answers_of(partial(labels_said, model), alphabet)
    return np.array(answers([(*words[state], letter) for state, letter in steps.tolist()]))
