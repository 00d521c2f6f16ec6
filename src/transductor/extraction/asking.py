"""A model asked for its machine, with counterexamples from given words, and judged on words held out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from transductor.automata.moore import IGNORED, MooreMachine
from transductor.automata.token_alphabet import TokenAlphabet
from transductor.extraction.observable_distance import Contexts, ObservedHead, observable_coordinates, states_along
from transductor.extraction.probing import LabelJudge, Words, labels_at_tokens, labels_said, states_visited
from transductor.extraction.questions import Answers, Hypothesis, Word, description_bits, hypotheses
from transductor.model import RationalReadout, RationalTransductor

_MOST_WORDS = 4096
_HELD_OUT = 0.25
_MAX_STATES, _MAX_ROUNDS = 200, 100
_PATIENCE = 10  # refinements without a better description after which L* is stopped


@dataclass(frozen=True)
class Asked:
    """A machine that a model gave when asked, and how well it fits words that were held out.

    Attributes:
        machine: The smallest one, over the letters.
        means: ``(states, D)``: the mean of the head's states wherever words pass a state and the labels agree.
        firsts: ``(states, D)``: the head's state after the word that found a state.
        agreement: The share of decided positions of the held-out words whose label is the machine's.
        spread: The largest distance, of states on the words' way, from the mean that stands for them.
        separation: The smallest distance of two means; 1 if there is only one.
        supported: Whether machine and mistakes are a shorter description of the words' labels than the labels are.
    """

    machine: MooreMachine
    means: Tensor
    firsts: Tensor
    agreement: float
    spread: float
    separation: float
    supported: bool

    def refusal(self, needed: float) -> str:
        """Say why the machine was not taken."""
        answered = f"asked for its machine, it answers like one of {self.machine.states} states"
        if not self.supported:
            return f"{answered}, more than these words can support"
        return f"{answered} on {self.agreement:.2%} of held-out words' labels (needed: {needed:.0%})"


def answers_of(labels: Callable[[Tensor], Tensor], alphabet: TokenAlphabet) -> Answers:
    """Return the function that gives the label after each of many words, from one of tokens ``(B, T)`` to labels."""

    def answers(words: Sequence[Word]) -> Sequence[int]:
        asked = Words.of_rows(words)
        begins = alphabet.begin is not None
        if not begins and not asked.letters.shape[1]:
            return [IGNORED] * len(words)
        # What follows a position does not change its label.
        said = labels(asked.tokens(alphabet))
        last: list[int] = said[torch.arange(len(words)), (asked.lengths - int(not begins)).clamp_min(0)].tolist()
        shown = alphabet.shows_empty_word
        return [label if word or shown else IGNORED for word, label in zip(words, last, strict=True)]

    return answers


def asked(
    model: RationalReadout | RationalTransductor,
    head: ObservedHead,
    words: Words,
    alphabet: TokenAlphabet,
    max_states: int,
) -> Asked:
    """Return the machine that describes a model's answers on the words with the fewest bits, among those of L*.

    Only positions at which the model is decided are counterexamples, and no question is longer than a word and a
    suffix of one: a model is asked about nothing far beyond what it was trained for.

    Args:
        model: The model, whose head in float64 is ``head``.
        head: The matrices of the letters, and the state before a word.
        words: A quarter of them is held out.
        alphabet: Which tokens are letters.
        max_states: Larger machines are not looked for.
    """
    words = words.shuffled().rows(slice(_MOST_WORDS))  # those held out are like the others
    held = math.ceil(_HELD_OUT * len(words)) if len(words) > 1 else 0
    judge = LabelJudge(model, words, alphabet, everything=True)
    learning, judging = slice(held, None), slice(0, held or 1)

    def wrong(machine: MooreMachine, part: slice) -> Tensor:
        said = labels_at_tokens(machine, words.rows(part), alphabet)
        differs: Tensor = judge.decided[part] & (said != judge.labels[part])
        return differs

    def counterexample(machine: MooreMachine) -> Word | None:
        places = wrong(machine, learning).nonzero()
        if not len(places):
            return None
        row, place = places[places[:, 1].argmin()].tolist()
        length = place + (alphabet.begin is None)
        return tuple(words.rows(learning).letters[row, :length].tolist())

    best: tuple[float, Hypothesis] | None = None
    unimproved, positions = 0, int(judge.decided[learning].sum())
    for hypothesis in hypotheses(
        len(alphabet.letters),
        answers_of(partial(labels_said, judge.model), alphabet),
        counterexample,
        max_states=min(max_states, _MAX_STATES),
        max_rounds=_MAX_ROUNDS,
    ):
        bits = description_bits(hypothesis.machine, int(wrong(hypothesis.machine, learning).sum()), positions)
        unimproved += 1
        if best is None or bits < best[0]:
            best, unimproved = (bits, hypothesis), 0
        if unimproved >= _PATIENCE:
            break
    assert best is not None  # a table of one row is always closed or has successors to add
    hypothesis = best[1]
    kept = hypothesis.machine.representative_states(empty_word=alphabet.shows_empty_word).tolist()
    machine = hypothesis.machine.minimised(empty_word=alphabet.shows_empty_word)
    decided = int(judge.decided[judging].sum())
    mistakes = int(wrong(machine, judging).sum())
    firsts = _states_after(head, [hypothesis.access[state] for state in kept])
    means, spread, separation = _located(head, words, machine, judge, firsts)
    return Asked(
        machine,
        means,
        firsts,
        1 - mistakes / decided if decided else 0.0,
        spread,
        separation,
        supported(machine, judge, words),
    )


def supported(machine: MooreMachine, judge: LabelJudge, words: Words, *, labelled: bool = True) -> bool:
    """Return whether a machine, with the mistakes it makes, is a shorter description of labels than the labels alone.

    Only the labels at the ends of words count: those along a word follow from one another.

    Args:
        machine: A machine over the letters.
        judge: Its words are beginnings of ``words``, and their mistakes are taken for those of all.
        words: The words that the model was asked about.
        labelled: Whether the machine's outputs are labels; if not, it is taken to make no mistakes.
    """
    last = judge.words.lengths - int(judge.alphabet.begin is None)
    rows = torch.nonzero(last >= 0).flatten()
    ends = rows, last[rows]
    counts = torch.bincount(judge.labels[ends]).double()
    shares = counts[counts > 0] / counts.sum()
    scale = len(words) / max(1, len(judge.words))
    alone = float(-(shares * shares.log2()).sum() * len(rows)) * scale
    said = labels_at_tokens(machine, judge.words, judge.alphabet)[ends]
    wrong = int(((said != judge.labels[ends]) & judge.decided[ends]).sum()) if labelled else 0
    return description_bits(machine, round(wrong * scale), round(len(rows) * scale)) < alone


def determined(machine: MooreMachine, judge: LabelJudge) -> float:
    """Return the share of decided positions whose label is the usual one after that state and letter.

    Where it is small, the layers that read the head know more than its state, by attention say, and a machine of its
    states alone would explain no label.
    """
    words, width = judge.words, judge.words.letters.shape[1]
    after = states_visited(machine, words.letters)
    before = torch.cat([torch.full((len(words), 1), machine.start), after[:, :-1]], 1)[:, :width]
    decided, labels = (each[:, each.shape[1] - width :] for each in (judge.decided, judge.labels))
    steps = (before * machine.letters + words.letters)[decided]
    if not len(steps):
        return 1.0
    votes = torch.zeros(machine.states * machine.letters, int(labels.max()) + 1, dtype=torch.long)
    votes.index_put_((steps, labels[decided]), torch.tensor(1), accumulate=True)
    return float(votes.max(1).values.sum() / votes.sum())


def _states_after(head: ObservedHead, words: list[Word]) -> Tensor:
    """Return the head's states ``(n, D)`` after words."""
    padded = Words.of_rows(words)
    states = states_along(head, Contexts.of(None, len(head.table)), padded.letters)[0]
    return states[torch.arange(len(words)), padded.lengths]


def _located(
    head: ObservedHead, words: Words, machine: MooreMachine, judge: LabelJudge, firsts: Tensor
) -> tuple[Tensor, float, float]:
    """Return for each state the mean of the head's states on the words, how far those are from it, and means apart.

    A linear readout gives the mean the label that it gives to all of them.
    """
    contexts = Contexts.of(None, len(head.table))
    states = states_along(head, contexts, words.letters)[0]
    first = torch.full((len(words), 1), machine.start)
    numbers = torch.cat([first, states_visited(machine, words.letters)], 1)
    agrees = judge.decided & (torch.tensor(machine.outputs)[numbers[:, -judge.labels.shape[1] :]] == judge.labels)
    shown = torch.zeros_like(numbers, dtype=torch.bool)
    shown[:, -agrees.shape[1] :] = agrees
    states, numbers = states[shown], numbers[shown]
    fine = states.isfinite().all(-1)
    states, numbers = states[fine], numbers[fine]
    counts = torch.bincount(numbers, minlength=machine.states).clamp_min(1)[:, None]
    sums = torch.zeros(machine.states, states.shape[1], dtype=states.dtype).index_add_(0, numbers, states)
    visited = torch.bincount(numbers, minlength=machine.states) > 0
    means = torch.where(visited[:, None], sums / counts, firsts)
    metric = observable_coordinates(head, contexts, None)[0]
    spread = float(((states - means[numbers]) @ metric).norm(dim=1).max()) if len(states) else 0.0
    gaps = torch.pdist(means @ metric)
    return means, spread, float(gaps.min()) if len(gaps) else 1.0
