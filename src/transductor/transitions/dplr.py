"""DPLR transitions are diagonal plus low rank."""

from __future__ import annotations

import math
from typing import Unpack, final

import torch
from torch import Tensor

from transductor.checks import check_positive
from transductor.kernels.precise import precise_product
from transductor.transitions.base import Sizes, matvec
from transductor.transitions.capped import CappedFamily, spectral_scale


@final
class DPLRTransitions(CappedFamily):
    """``(D + U Vᵀ) / max(1, ‖D + U Vᵀ‖₂ / γ)`` with U, V of rank r: mixing and fading memory, O(d r) a step.

    The diagonal starts at 1, U and V at noise, as in the paper.

    Args:
        rank: Columns r of U and V.
        spectral_cap: Bound γ of ‖M‖₂.
    """

    name = "dplr"
    options = ("rank", "spectral_cap")

    def __init__(self, *, rank: int = 1, spectral_cap: float = 1.0, **sizes: Unpack[Sizes]) -> None:
        check_positive("rank", rank)
        self.rank = rank
        super().__init__(spectral_cap=spectral_cap, **sizes)

    def origin(self) -> Tensor:
        """Start at the diagonal 1 and U = V = 0."""
        origin = torch.zeros(self.state_dim, 1 + 2 * self.rank)
        origin[:, 0] = 1
        return origin.flatten()

    def default_scale(self) -> float:
        """Scale the noise by the rank: U Vᵀ is a sum of r products of two small numbers."""
        return 0.1 / math.sqrt(self.rank)

    def factors(self, raw: Tensor) -> tuple[Tensor, ...]:
        """Return the diagonal ``(..., D)``, U and V ``(..., D, r)``, with the diagonal and U scaled to the cap."""
        diagonal, left, right = raw.unflatten(-1, (self.state_dim, -1)).split([1, self.rank, self.rank], -1)
        diagonal = diagonal.squeeze(-1)
        scale = spectral_scale(torch.diag_embed(diagonal) + precise_product(left, right.mT), self.spectral_cap)
        return diagonal * scale.unsqueeze(-1), left * scale[..., None, None], right

    def act(self, state: Tensor, *factors: Tensor) -> Tensor:
        """Apply the diagonal, and U after Vᵀ, in O(d r)."""
        diagonal, left, right = factors
        return diagonal * state + matvec(left, matvec(right.mT, state))

    def chart(self, raw: Tensor) -> Tensor:
        """Return the matrix, for the parallel scan."""
        diagonal, left, right = self.factors(raw)
        return torch.diag_embed(diagonal) + precise_product(left, right.mT)

    def lipschitz_of_chart(self) -> None:
        """There is none: while U is large, a small change of V moves U Vᵀ by as much as one likes."""

    def step_cost(self) -> int:
        """Count d + 2 d r products."""
        return self.state_dim * (1 + 2 * self.rank)
