"""Stochastic transitions are column-stochastic: a finite automaton that can be differentiated."""

from __future__ import annotations

import math
from typing import ClassVar, Unpack, final

import torch
from torch import Tensor

from transductor.transitions.base import ChartedFamily, Sizes
from transductor.transitions.laws import ColumnStochastic, Law


def softmax_or_argmax(logits: Tensor, temperature: float, dim: int) -> Tensor:
    """Return the softmax of ``logits / temperature``; at temperature 0 its exact limit, a one-hot argmax."""
    if not 0 <= temperature < math.inf:
        raise ValueError(f"temperature must be a finite number ≥ 0; got {temperature!r}")
    if temperature > 0:
        return torch.softmax(logits / temperature, dim)
    hard = torch.zeros_like(logits)
    return hard.scatter(dim, logits.argmax(dim, keepdim=True), 1.0)


def staying_logits(state_dim: int, weight: float) -> Tensor:
    """Return ``(D·D)`` logits whose softmax puts ``weight`` on the diagonal and spreads the rest evenly."""
    if not 0 < weight < 1:
        raise ValueError(f"identity_weight must lie in (0, 1); got {weight!r}")
    return (math.log(weight / (1 - weight) * max(1, state_dim - 1)) * torch.eye(state_dim)).flatten()


class LogitFamily(ChartedFamily):
    """A family of distributions computed from logits, which start at staying in a state with some weight."""

    options: ClassVar[tuple[str, ...]] = ("temperature", "identity_weight")

    def __init__(self, *, temperature: float = 1.0, identity_weight: float = 0.9, **sizes: Unpack[Sizes]) -> None:
        if not (isinstance(temperature, (int, float)) and 0 <= temperature < math.inf):
            raise ValueError(f"temperature must be a finite number ≥ 0; got {temperature!r}")
        self.temperature, self.identity_weight = temperature, identity_weight
        super().__init__(**sizes)

    def origin(self) -> Tensor:
        """Start at logits that give staying in a state its weight."""
        return (self.temperature or 1.0) * staying_logits(self.state_dim, self.identity_weight)

    def default_scale(self) -> float:
        """Return the scale of a logit, which does not depend on d."""
        return 0.1

    def start_from(self, raw: Tensor) -> Tensor:
        """Return a distribution."""
        return softmax_or_argmax(raw, self.temperature, -1)


@final
class StochasticTransitions(LogitFamily):
    """Columns are distributions over the next state: a softmax over ``to``.

    At any positive temperature every entry is positive, so the head leaks: it never is a permutation, an
    identity or a reset, and its memory has a finite horizon.  ``temperature = 0`` is the exact limit, a
    deterministic automaton, through which no gradient flows.

    Args:
        temperature: Divides the logits.  May be changed while training (anneal 1 → 0.05, then 0).
        identity_weight: Weight of staying in a state, at the start.
    """

    name = "stochastic"

    def chart(self, raw: Tensor) -> Tensor:
        """Take the softmax over ``to``."""
        return softmax_or_argmax(raw.unflatten(-1, (self.state_dim, self.state_dim)), self.temperature, -2)

    def lipschitz_of_chart(self) -> float | None:
        """Return 1/(2 temperature): the Jacobian of a softmax has norm at most 1/2."""
        return 0.5 / self.temperature if self.temperature else None

    def laws(self) -> tuple[Law, ...]:
        """Columns are distributions."""
        return (ColumnStochastic(),)
