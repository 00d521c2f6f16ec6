"""F2: independent decays."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor

from transductor.notation import check_positive
from transductor.transitions.base import ChartedFamily
from transductor.transitions.laws import Law, SpectralNorm, Support
from transductor.transitions.spectral import check_spectral_cap

__all__ = ["DiagonalTransitions", "diagonal_support"]


def diagonal_support(state_dim: int) -> Support:
    """The pattern of a diagonal matrix."""
    return Support("diagonal", tuple(tuple(i == j for j in range(state_dim)) for i in range(state_dim)))


@final
class DiagonalTransitions(ChartedFamily):
    """``diag(γ σ(θ))``: each coordinate decays at its own rate in (0, γ), starting at 0.95 γ.  O(d) a step."""

    name = "diagonal"
    options = ("spectral_cap",)

    def __init__(
        self,
        *,
        state_dim: int,
        vocab_size: int | None = None,
        feature_dim: int | None = None,
        spectral_cap: float = 1.0,
        init_scale: float = 0.1,
    ) -> None:
        check_positive("state_dim", state_dim)
        check_spectral_cap(spectral_cap)
        self.chart_lipschitz = spectral_cap / 4
        super().__init__(
            state_dim=state_dim,
            vocab_size=vocab_size,
            feature_dim=feature_dim,
            init_scale=init_scale,
            origin=torch.full((state_dim,), math.log(0.95 / 0.05)),
        )
        self.spectral_cap = spectral_cap

    def factors(self, raw: Tensor) -> tuple[Tensor, ...]:
        """The diagonal ``(..., D)``."""
        return (self.spectral_cap * torch.sigmoid(raw),)

    def act(self, state: Tensor, *factors: Tensor) -> Tensor:
        """Elementwise."""
        return factors[0] * state

    def chart(self, raw: Tensor) -> Tensor:
        """The diagonal as a matrix."""
        return torch.diag_embed(self.factors(raw)[0])

    def start_matrix(self) -> Tensor:
        """γ I."""
        return self.spectral_cap * torch.eye(self.state_dim)

    def step_cost(self) -> int:
        """One product per coordinate."""
        return self.state_dim

    def laws(self) -> tuple[Law, ...]:
        """Diagonal, |λ| ≤ γ."""
        return (diagonal_support(self.state_dim), SpectralNorm(self.spectral_cap))
