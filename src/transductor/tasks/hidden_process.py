"""What tasks about hidden states share: a process of matrices, and Bayes' answer by the forward algorithm."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cache
from typing import final

import torch
from torch import Tensor

from transductor.automata.weighted import WeightedAutomaton
from transductor.tasks.base import Task

# States whose probabilities are this near are equally likely, whatever rounding says.
MARGIN = 1e-6


@dataclass(frozen=True)
class HiddenProcess(Task):
    """A task whose tokens tell about a hidden state; the label is the likeliest state, given the tokens so far.

    A label depends on tokens alone, so it is Bayes' answer and not the state itself, which :meth:`drawn` returns too.
    Of states that are equally likely it is the first.  A subclass has ``_process``, the start ``(K)`` and
    ``M[v, to, from]``: the probability of going to a state and showing token v.
    """

    @abstractmethod
    def _process(self) -> tuple[Tensor, Tensor]:
        """Return the start ``(K)`` and the matrices ``(V, K, K)``, in float64."""

    @abstractmethod
    def drawn(self, batch_size: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return tokens ``(B, T)`` and the hidden states after them ``(B, T)``."""

    @final
    def process(self) -> WeightedAutomaton:
        """Return the automaton whose value at a word is the probability that the tokens begin so."""
        start, matrices = _cached_process(self)
        ends = torch.ones_like(start).numpy()
        return WeightedAutomaton(start.numpy(), matrices.numpy(), ends, range(self.vocab_size), weights="float")

    @final
    def posterior(self, tokens: Tensor) -> Tensor:
        """Return how likely each state is after each position, ``(B, T, K)`` in float64: the best answer there is."""
        start, matrices = _cached_process(self)
        belief, beliefs = start.expand(len(tokens), -1), []
        for letters in tokens.unbind(1):
            belief = (matrices[letters] @ belief.unsqueeze(-1)).squeeze(-1)
            belief = belief / belief.sum(-1, keepdim=True)
            beliefs.append(belief)
        return torch.stack(beliefs, 1) if beliefs else start.new_zeros(len(tokens), 0, len(start))

    @final
    def excess(self, logits: Tensor, tokens: Tensor) -> float:
        """Return by what share of Bayes' own loss predictions ``(B, T, K)`` are worse: KL to Bayes over his entropy."""
        more, least = self.divergence(logits, tokens)
        return more / least

    @final
    def divergence(self, logits: Tensor, tokens: Tensor) -> tuple[float, float]:
        """Return two sums over all positions: by how much predictions lose more than Bayes, and what he loses."""
        right = self.posterior(tokens)
        best = right.clamp_min(1e-300).log()
        said = torch.log_softmax(logits.double(), -1)
        return float((right * (best - said)).sum()), -float((right * best).sum())

    @final
    def _sample(self, batch_size: int, length: int, generator: torch.Generator, bias: float | None) -> Tensor:
        return self.drawn(batch_size, length, generator)[0]

    @final
    def _labels(self, tokens: Tensor) -> Tensor:
        right = self.posterior(tokens)
        return (right >= right.amax(-1, keepdim=True) - MARGIN).int().argmax(-1)


@cache
def _cached_process(task: HiddenProcess) -> tuple[Tensor, Tensor]:
    return task._process()
