"""How much of what a model says stays when representatives stand for the states of its head."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from transductor.automata.moore import MooreMachine
from transductor.extraction.observable_distance import JUDGED_LENGTH, JUDGED_WORDS, sample_words
from transductor.heads import LookbackHead
from transductor.model import RationalReadout, RationalTransductor
from transductor.model.base import layout

# A label counts where it is ahead of the next by this share of the usual height of a label over the mean logit: where a
# model was taught nothing its logits are close to one another, and their order means nothing.
_DECIDED = 0.1


class Judge:
    """Compares machines with one model's labels on words no longer than a model can be expected to be right.

    Args:
        model: In any precision; judged in float64.
        words: ``(B, T)``; random ones if not given.
    """

    @torch.no_grad()
    def __init__(self, model: RationalReadout | RationalTransductor, words: Tensor | None) -> None:
        self.model = copy.deepcopy(model).double().cpu().eval()
        letters = self.model.vocab_size
        if words is None:
            words = sample_words(letters, JUDGED_WORDS, JUDGED_LENGTH)
        self.words = words[:JUDGED_WORDS, :JUDGED_LENGTH]
        self.places = layout(self.words, letters, None, None, None).places
        logits = self.model(self.words)
        best, second = logits.topk(2).values.unbind(-1)
        self.decided = best - second >= _DECIDED * (best - logits.mean(-1)).square().mean().sqrt()
        self.labels = logits.argmax(-1)

    @torch.no_grad()
    def agreement(self, machine: MooreMachine, states: Tensor) -> float:
        """Share of decided positions whose label stays.

        Args:
            machine: Its outputs number its states.
            states: ``(states, D)``: what stands for each.
        """
        shown = states[machine.labels(self.words)]
        if isinstance(self.model.rational_head, LookbackHead):
            first = states[machine.start].expand(len(self.words), 1, -1)
            shown = torch.cat([shown, torch.cat([first, shown[:, :-1]], 1)], -1)
        if isinstance(self.model, RationalReadout):
            logits = self.model.readout(shown)
        else:
            logits = self.model.backbone(self.words, self.places, self.model.injection.into(shown))[0]
        stays = (logits.argmax(-1) == self.labels)[self.decided]
        return float(stays.double().mean()) if len(stays) else 1.0
