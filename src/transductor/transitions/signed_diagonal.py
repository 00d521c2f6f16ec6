"""Signed diagonal transitions let each coordinate decay and flip by itself."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from transductor.transitions.capped import ElementwiseFamily


@final
class SignedDiagonalTransitions(ElementwiseFamily):
    """``diag(γ cos θ)``: every λ in [−γ, γ], both ends reached exactly, so parity takes one coordinate.

    At θ = 0 and θ = π the value is stationary in θ: a small error of the angle costs only its square.
    """

    name = "signed_diagonal"

    def origin(self) -> Tensor:
        """Start near θ = 0, but not at it, because the gradient vanishes there."""
        return torch.full((self.state_dim,), 0.3)

    def eigenvalues(self, raw: Tensor) -> Tensor:
        """Return γ cos θ."""
        return self.spectral_cap * torch.cos(raw)

    def lipschitz_of_chart(self) -> float | None:
        """Return γ, because |cos'| ≤ 1."""
        return self.spectral_cap
