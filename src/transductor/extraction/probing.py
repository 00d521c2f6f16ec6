"""A model asked about words: which words, what it says, and what it would say if its head were in other states."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transductor.automata.moore import MooreMachine
from transductor.model import RationalReadout, RationalTransductor, SequenceModel
from transductor.model.token_positions import TokenPositions
from transductor.recurrence import Layout

# A machine is compared with its head on words of this length: longer than what many are trained on, short enough that
# a head trained to be right does not yet drift.
JUDGED_WORDS, JUDGED_LENGTH = 256, 64

# A label counts where it is ahead of the next by this share of the usual height of a label over the mean logit: where a
# model was taught nothing its logits are close to one another, and their order means nothing.
_DECIDED = 0.1


def random_words(letters: int, count: int, length: int, generator: torch.Generator | None = None) -> Tensor:
    """Draw random words ``(B, T)``; without a generator they are the same at every call."""
    generator = torch.Generator().manual_seed(0) if generator is None else generator
    return torch.randint(0, letters, (count, length), generator=generator)


def words_or_random(
    words: Tensor | None, letters: int, count: int = JUDGED_WORDS, length: int = JUDGED_LENGTH
) -> Tensor:
    """Return the beginning of ``words (B, T)``, or random words if there are none."""
    return random_words(letters, count, length) if words is None else words[:count, :length].long()


def labels_said(model: SequenceModel[Any], tokens: Tensor) -> Tensor:
    """Return the model's argmax ``(B, T)`` on the CPU, without gradient, in evaluation mode."""
    training = model.training
    with torch.no_grad():
        labels: Tensor = model.eval()(tokens.to(next(model.parameters()).device)).argmax(-1).cpu()
    model.train(training)
    return labels


def states_visited(machine: MooreMachine, tokens: Tensor) -> Tensor:
    """Return the machine's state after every letter of ``tokens (B, T)``."""
    return MooreMachine(machine.transitions, np.arange(machine.states), machine.start).labels(tokens)


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
        words: ``(B, T)``; random ones if not given.
    """

    @torch.no_grad()
    def __init__(self, model: RationalReadout | RationalTransductor, words: Tensor | None) -> None:
        self.model = copy.deepcopy(model).double().cpu().eval()
        self.words = words_or_random(words, self.model.vocab_size)
        logits = self.model(self.words)
        best, second = logits.topk(2).values.unbind(-1)
        height = (best - logits.mean(-1)).square().mean().sqrt()
        self.decided = (best - second >= _DECIDED * height) & (best > second)
        self.labels = logits.argmax(-1)

    @torch.no_grad()
    def agreement(self, machine: MooreMachine, states: Tensor) -> float:
        """Return the share of decided positions whose label stays; 0 where no position is decided.

        Args:
            machine: Its outputs number its states.
            states: ``(states, D)``: what stands for each.
        """
        shown = states[machine.labels(self.words)]
        if self.model.rational_head.shows_previous:
            first = states[machine.start].expand(len(self.words), 1, -1)
            shown = torch.cat([shown, torch.cat([first, shown[:, :-1]], 1)], -1)
        logits = logits_given_states(self.model, self.words, shown)
        stays = (logits.argmax(-1) == self.labels)[self.decided]
        return float(stays.double().mean()) if len(stays) else 0.0
