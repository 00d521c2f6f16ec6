"""Diagonal transitions let each coordinate decay at its own rate."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor

from transductor.transitions.capped import ElementwiseFamily


@final
class DiagonalTransitions(ElementwiseFamily):
    """``diag(γ σ(θ))``: each coordinate decays at its own rate in (0, γ), starting at 0.95 γ.  O(d) a step."""

    name = "diagonal"

    def origin(self) -> Tensor:
        """Start at σ(θ) = 0.95."""
        return torch.full((self.state_dim,), math.log(0.95 / 0.05))

    def eigenvalues(self, raw: Tensor) -> Tensor:
        """Return γ σ(θ)."""
        return self.spectral_cap * torch.sigmoid(raw)

    def lipschitz_of_chart(self) -> float | None:
        """Return γ/4, because σ' ≤ 1/4."""
        return self.spectral_cap / 4
