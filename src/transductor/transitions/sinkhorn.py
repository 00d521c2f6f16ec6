"""Sinkhorn transitions are doubly stochastic: the relaxation of permutations."""

from __future__ import annotations

import math
from typing import Unpack, final

import torch
from torch import Tensor

from transductor.checks import check_positive
from transductor.transitions.base import Sizes
from transductor.transitions.laws import DoublyStochastic, Law, SpectralNorm
from transductor.transitions.stochastic import LogitFamily


def doubly_stochastic(logits: Tensor, iterations: int) -> Tensor:
    """Map logits ``(..., D, D)`` to doubly stochastic matrices, exact after any number of Sinkhorn's rounds.

    A finite number of rounds leaves the sums slightly off.  Shrinking the rows and columns that exceed 1
    and adding what is missing as one rank-one term gives sums of exactly 1.
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
class SinkhornTransitions(LogitFamily):
    """Doubly stochastic matrices: the convex hull of the permutations.

    Args:
        temperature: Divides the logits; near 0 the matrices come close to permutations.  May be changed
            while training.
        iterations: Rounds of Sinkhorn's normalisation.
        identity_weight: Weight of staying in a state, at the start.
    """

    name = "sinkhorn"
    options = ("temperature", "iterations", "identity_weight")

    def __init__(
        self, *, temperature: float = 1.0, iterations: int = 20, identity_weight: float = 0.9, **sizes: Unpack[Sizes]
    ) -> None:
        check_positive("iterations", iterations)
        _check_temperature(temperature)
        self.iterations = iterations
        super().__init__(temperature=temperature, identity_weight=identity_weight, **sizes)

    def chart(self, raw: Tensor) -> Tensor:
        """Read the raw numbers as logits and normalise them."""
        _check_temperature(self.temperature)
        logits = raw.unflatten(-1, (self.state_dim, self.state_dim)) / self.temperature
        return doubly_stochastic(logits, self.iterations)

    def lipschitz_of_chart(self) -> float | None:
        """Bound the n rounds in the largest norm of logarithms, and what follows them in the Frobenius norm.

        Both potentials of a round are logarithms of sums of exponentials of the logits minus the other potential.  Such
        a logarithm moves by no more than its argument does, so after n rounds the potentials have moved by at most
        2n − 1 and 2n times the change of the logits, and the logarithms of the entries by 4n times.  Columns are then
        distributions, ‖M‖_F ≤ √d.  Dividing a row, or a column, by its sum is a projection along it, of norm at
        most √d; the rank-one term ``r cᵀ / Σr`` adds d + √d.
        """
        root = math.sqrt(self.state_dim)
        return 4 * self.iterations * root * self.state_dim * (1 + root + self.state_dim) / self.temperature

    def laws(self) -> tuple[Law, ...]:
        """Rows and columns are distributions, hence ‖M‖₂ ≤ 1."""
        return (DoublyStochastic(), SpectralNorm(1.0))
