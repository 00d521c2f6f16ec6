"""A model asked about words: which words, what it says, and what it would say if its head were in other states."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transductor.automata.moore import MooreMachine
from transductor.automata.token_alphabet import TokenAlphabet
from transductor.checks import check_token_ids
from transductor.model import RationalReadout, RationalTransductor, SequenceModel
from transductor.model.token_positions import TokenPositions
from transductor.recurrence import Layout

# A machine is compared with its head on words of this length: longer than what many are trained on, short enough that
# a head trained to be right does not yet drift.
JUDGED_WORDS, JUDGED_LENGTH = 256, 64

# A label counts where it is ahead of the next by this share of the usual height of a label over the mean logit: where a
# model was taught nothing its logits are close to one another, and their order means nothing.
_DECIDED = 0.1
_COMMON = 3  # a label that is said less often is not judged
_AT_ONCE = 1 << 16  # positions that a model is asked about together

# Tokens (B, T), or sequences of tokens of unequal length.
Sequences = Tensor | Sequence[Sequence[int]] | Sequence[Tensor]


@dataclass(frozen=True)
class Words:
    """Words of letters, of unequal length.

    Attributes:
        letters: ``(B, T)`` int64; a row is filled up after its end, and nothing there counts.
        lengths: ``(B)``.
    """

    letters: Tensor
    lengths: Tensor

    @classmethod
    def of_rows(cls, rows: Sequence[Sequence[int]]) -> Words:
        """Return words from rows of unequal length; empty ones are words too."""
        lengths = torch.tensor([len(row) for row in rows], dtype=torch.long)
        letters = torch.zeros(len(rows), max(map(len, rows), default=0), dtype=torch.long)
        for number, row in enumerate(rows):
            letters[number, : len(row)] = torch.as_tensor(row, dtype=torch.long)
        return cls(letters, lengths)

    @classmethod
    def of_table(cls, letters: Tensor) -> Words:
        """Return the words of ``(B, T)`` letters, all of one length."""
        return cls(letters, torch.full((len(letters),), letters.shape[1], dtype=torch.long))

    @classmethod
    def random(cls, letters: int, count: int, length: int, generator: torch.Generator | None = None) -> Words:
        """Draw random words of one length; without a generator they are the same at every call."""
        return cls.of_table(random_words(letters, count, length, generator))

    @property
    def inside(self) -> Tensor:
        """Which places ``(B, T)`` belong to a word."""
        return torch.arange(self.letters.shape[1]) < self.lengths[:, None]

    def __len__(self) -> int:
        return len(self.letters)

    def beginnings(self, count: int, length: int) -> Words:
        """Return the first words, cut after ``length`` letters."""
        return Words(self.letters[:count, :length], self.lengths[:count].clamp_max(length))

    def shuffled(self) -> Words:
        """Return the words in an order that is random, and the same every time: files are often sorted."""
        return self.rows(torch.randperm(len(self), generator=torch.Generator().manual_seed(0)))

    def rows(self, chosen: Tensor | slice) -> Words:
        """Return some of the words."""
        return Words(self.letters[chosen], self.lengths[chosen])

    def tokens(self, alphabet: TokenAlphabet) -> Tensor:
        """Return ``(B, T)`` tokens, or ``(B, 1 + T)`` where words have a token before them."""
        tokens = torch.tensor(alphabet.letters)[self.letters]
        if alphabet.begin is None:
            return tokens
        return torch.cat([torch.full((len(tokens), 1), alphabet.begin), tokens], 1)

    def positions(self, alphabet: TokenAlphabet) -> Tensor:
        """Return at which places of :meth:`tokens` there is a label that means something."""
        if alphabet.begin is None:
            return self.inside
        return torch.cat([torch.full((len(self), 1), alphabet.empty_word), self.inside], 1)


def words_of_tokens(words: Sequences, alphabet: TokenAlphabet) -> Words:
    """Return words that are given as tokens, ``(B, T)`` or of unequal length; the token before a word comes first.

    Raises:
        ValueError: Where there are none, or not of this alphabet.
    """
    if isinstance(words, Tensor):
        if words.ndim != 2 or not words.numel():
            raise ValueError(f"words must be tokens of shape (B, T), at least one; got {tuple(words.shape)}")
        check_token_ids("words", words, alphabet.vocab_size)
        if not alphabet.restricted:
            return Words.of_table(words.long().cpu())
        words = words.tolist()
    if not isinstance(words, Sequence) or not len(words):
        raise ValueError(f"words must be tokens of shape (B, T) or lists of tokens, at least one; got {words!r:.60}")
    rows = [row.tolist() if isinstance(row, Tensor) else list(row) for row in words]
    inside = [alphabet.in_letters(row) for row in rows]
    if not any(inside):
        raise ValueError("words must hold at least one letter; all of them are empty")
    return Words.of_rows(inside)


def random_words(letters: int, count: int, length: int, generator: torch.Generator | None = None) -> Tensor:
    """Draw random words ``(B, T)``; without a generator they are the same at every call."""
    generator = torch.Generator().manual_seed(0) if generator is None else generator
    return torch.randint(0, letters, (count, length), generator=generator)


def words_or_random(words: Words | None, letters: int, count: int = JUDGED_WORDS, length: int = JUDGED_LENGTH) -> Words:
    """Return the beginnings of words, or random words if there are none."""
    return Words.random(letters, count, length) if words is None else words.beginnings(count, length)


def labels_said(model: SequenceModel[Any], tokens: Tensor) -> Tensor:
    """Return the model's argmax ``(B, T)`` on the CPU, without gradient, in evaluation mode."""
    training = model.training
    with torch.no_grad():
        device = next(model.parameters()).device
        parts = tokens.split(max(1, _AT_ONCE // max(1, tokens.shape[1])))
        labels = torch.cat([model.eval()(part.to(device)).argmax(-1).cpu() for part in parts])
    model.train(training)
    return labels


def states_visited(machine: MooreMachine, tokens: Tensor) -> Tensor:
    """Return the machine's state after every letter of ``tokens (B, T)``."""
    return MooreMachine(machine.transitions, np.arange(machine.states), machine.start).labels(tokens)


def states_at_tokens(machine: MooreMachine, words: Words, alphabet: TokenAlphabet) -> Tensor:
    """Return the state of a machine over letters at every place of the words' tokens."""
    after = states_visited(machine, words.letters)
    if alphabet.begin is None:
        return after
    return torch.cat([torch.full((len(words), 1), machine.start), after], 1)


def labels_at_tokens(machine: MooreMachine, words: Words, alphabet: TokenAlphabet) -> Tensor:
    """Return the label of a machine over letters at every place of the words' tokens."""
    return torch.tensor(machine.outputs)[states_at_tokens(machine, words, alphabet)]


def logits_given_states(model: RationalReadout | RationalTransductor, tokens: Tensor, shown: Tensor) -> Tensor:
    """Return the model's logits ``(B, T, K)`` as if its head had shown ``shown (B, T, output_dim)``."""
    logits: Tensor
    if isinstance(model, RationalReadout):
        logits = model.readout(shown)
    else:
        positions = TokenPositions.of(model.checked_tokens(tokens), Layout())
        logits = model.backbone(tokens, positions, model.injection.into(shown))[0]
    return logits


class LabelJudge:
    """Measures how many of a model's labels stay when representatives stand for the states of its head.

    The words are no longer than a model can be expected to be right.

    Args:
        model: In any precision; judged in float64.
        words: Random ones if not given.
        alphabet: Which tokens are letters; all of them if not given.
        everything: Judge all words at their full length, and not the first beginnings.
    """

    @torch.no_grad()
    def __init__(
        self,
        model: RationalReadout | RationalTransductor,
        words: Words | None,
        alphabet: TokenAlphabet | None = None,
        *,
        everything: bool = False,
    ) -> None:
        self.model = copy.deepcopy(model).double().cpu().eval()
        self.alphabet = alphabet or TokenAlphabet.all_tokens(model.vocab_size)
        letters = len(self.alphabet.letters)
        self.words = words if everything and words is not None else words_or_random(words, letters)
        self.tokens = self.words.tokens(self.alphabet)
        counts = self.words.positions(self.alphabet)
        logits = self.model(self.tokens)
        best, second = logits.topk(2).values.unbind(-1)
        height = (best - logits.mean(-1))[counts].square().mean().sqrt()
        self.decided = counts & (best - second >= _DECIDED * height) & (best > second)
        self.labels = logits.argmax(-1)

    @torch.no_grad()
    def agreement(self, machine: MooreMachine, states: Tensor) -> float:
        """Return the share of decided positions whose label stays, the mean over all labels; 0 where none is decided.

        Every label counts the same: of a language that few words belong to, a machine that accepts none would keep
        nearly all positions.

        Args:
            machine: A machine over the letters.
            states: ``(states, D)``: what stands for each of its states.
        """
        shown = states[states_at_tokens(machine, self.words, self.alphabet)]
        if self.model.rational_head.shows_previous:
            first = states[machine.start]
            if self.alphabet.begin is not None:
                first = self.model.rational_head.initial_state().to(states)
            shown = torch.cat([shown, torch.cat([first.expand(len(shown), 1, -1), shown[:, :-1]], 1)], -1)
        logits = logits_given_states(self.model, self.tokens, shown)
        stays, labels = (logits.argmax(-1) == self.labels)[self.decided].double(), self.labels[self.decided]
        counts = torch.bincount(labels)
        kept = torch.zeros(len(counts), dtype=torch.float64).index_add_(0, labels, stays)
        # One or two positions may be where a model that is nearly right is wrong.
        common = counts >= min(_COMMON, int(counts.max())) if len(counts) else counts > 0
        return float((kept[common] / counts[common]).mean()) if len(labels) else 0.0
