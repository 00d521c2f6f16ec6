"""F2: independent decays and flips."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from transductor.notation import check_positive
from transductor.transitions.base import ChartedFamily
from transductor.transitions.diagonal import diagonal_support
from transductor.transitions.laws import Law, SpectralNorm
from transductor.transitions.spectral import check_spectral_cap

__all__ = ["SignedDiagonalTransitions"]


@final
class SignedDiagonalTransitions(ChartedFamily):
    """``diag(γ cos θ)``: every λ in [−γ, γ], both ends reached exactly, so parity takes one coordinate.

    At θ = 0 and θ = π the value is stationary in θ: a small error of the angle costs only its square.
    """

    name = "signed_diagonal"
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
        self.chart_lipschitz = spectral_cap
        super().__init__(
            state_dim=state_dim,
            vocab_size=vocab_size,
            feature_dim=feature_dim,
            init_scale=init_scale,
            # Not 0, where the gradient vanishes.
            origin=torch.full((state_dim,), 0.3),
        )
        self.spectral_cap = spectral_cap

    def factors(self, raw: Tensor) -> tuple[Tensor, ...]:
        """The diagonal ``(..., D)``."""
        return (self.spectral_cap * torch.cos(raw),)

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
