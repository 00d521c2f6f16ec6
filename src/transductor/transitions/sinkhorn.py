"""F3: the relaxation of permutations."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor

from transductor.checks import check_positive
from transductor.transitions.base import ChartedFamily
from transductor.transitions.laws import DoublyStochastic, Law, SpectralNorm
from transductor.transitions.stochastic import staying_logits


def doubly_stochastic(logits: Tensor, iterations: int) -> Tensor:
    """``(..., D, D)`` logits to doubly stochastic matrices: Sinkhorn's rounds, then an exact landing.

    A finite number of rounds leaves the sums slightly off.  Shrinking the rows and columns that exceed 1
    and filling what is missing with one rank-one term lands exactly on the polytope.
    """
    for _ in range(iterations):
        logits = logits - logits.logsumexp(-1, keepdim=True)
        logits = logits - logits.logsumexp(-2, keepdim=True)
    matrix = logits.exp()
    matrix = matrix / matrix.sum(-1, keepdim=True).clamp_min(1)
    matrix = matrix / matrix.sum(-2, keepdim=True).clamp_min(1)
    missing_rows = (1 - matrix.sum(-1, keepdim=True)).clamp_min(0)
    missing_columns = (1 - matrix.sum(-2, keepdim=True)).clamp_min(0)
    total = missing_rows.sum(-2, keepdim=True).clamp_min(torch.finfo(matrix.dtype).tiny)
    return matrix + missing_rows * (missing_columns / total)


def _check_temperature(temperature: float) -> None:
    if not (isinstance(temperature, (int, float)) and 0 < temperature < math.inf):
        raise ValueError(f"temperature must be a positive finite number; got {temperature!r}")


@final
class SinkhornTransitions(ChartedFamily):
    """Doubly stochastic matrices: what lies between permutations.

    Args:
        temperature: Divides the logits; near 0 the matrices come close to permutations.  May be changed
            while training.
        iterations: Rounds of Sinkhorn's normalisation.
    """

    name = "sinkhorn"
    options = ("temperature", "iterations", "identity_weight")

    def __init__(
        self,
        *,
        state_dim: int,
        vocab_size: int | None = None,
        feature_dim: int | None = None,
        temperature: float = 1.0,
        iterations: int = 20,
        identity_weight: float = 0.9,
        init_scale: float | None = None,
    ) -> None:
        check_positive("iterations", iterations)
        _check_temperature(temperature)
        self.temperature, self.iterations, self.identity_weight = temperature, iterations, identity_weight
        super().__init__(state_dim=state_dim, vocab_size=vocab_size, feature_dim=feature_dim, init_scale=init_scale)

    def origin(self) -> Tensor:
        """Logits that give staying put its weight."""
        return self.temperature * staying_logits(self.state_dim, self.identity_weight)

    def default_scale(self) -> float:
        """Of a logit, whatever d."""
        return 0.1

    def chart(self, raw: Tensor) -> Tensor:
        """Logits to the Birkhoff polytope."""
        _check_temperature(self.temperature)
        logits = raw.unflatten(-1, (self.state_dim, self.state_dim)) / self.temperature
        return doubly_stochastic(logits, self.iterations)

    def start_from(self, raw: Tensor) -> Tensor:
        """A distribution."""
        return torch.softmax(raw / self.temperature, -1)

    def laws(self) -> tuple[Law, ...]:
        """Rows and columns are distributions, hence ‖M‖₂ ≤ 1."""
        return (DoublyStochastic(), SpectralNorm(1.0))
