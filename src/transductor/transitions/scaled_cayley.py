"""Scaled Cayley transitions are rotations that forget at a learned rate."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor

from transductor.kernels.rotation import cayley_rotation
from transductor.transitions.laws import Law, ScaledOrthogonal
from transductor.transitions.rotations import SkewFamily


@final
class ScaledCayleyTransitions(SkewFamily):
    """``g · C(A)`` with a learned gain ``g = σ(θ)`` per token (or feature): ‖M‖ = g.

    The paper's decay regime, starting at g = 0.95; its conservation regime g = 1 is
    :class:`CayleyTransitions`.
    """

    name = "scaled_cayley"
    slope = 2

    def origin(self) -> Tensor:
        """Start at A = 0 and, as the last number, σ(θ) = 0.95."""
        return torch.cat((super().origin(), torch.tensor([math.log(0.95 / 0.05)])))

    def chart(self, raw: Tensor) -> Tensor:
        """Multiply the rotation by the gain."""
        return torch.sigmoid(raw[..., -1, None, None]) * cayley_rotation(raw[..., :-1], self.state_dim)

    def lipschitz_of_chart(self) -> float | None:
        """Bound d(gC) = dg C + g dC, with ‖C‖_F = √d, g ≤ 1, g' ≤ 1/4."""
        return math.sqrt(self.state_dim / 16 + 8)

    def laws(self) -> tuple[Law, ...]:
        """Every matrix is a rotation times a gain in (0, 1)."""
        return (ScaledOrthogonal(),)
