"""F6: rotations that forget."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor

from transductor.notation import check_positive
from transductor.transitions.base import ChartedFamily
from transductor.transitions.laws import Law, ScaledOrthogonal
from transductor.transitions.rotations import cayley, skew, skew_dim, small_rotation

__all__ = ["ScaledCayleyTransitions"]


@final
class ScaledCayleyTransitions(ChartedFamily):
    """``g · C(A)`` with a learned gain ``g = σ(θ)`` per token (or feature): ‖M‖ = g.

    The paper's decay regime, starting at g = 0.95; its conservation regime g = 1 is
    :class:`CayleyTransitions`.
    """

    name = "scaled_cayley"

    def __init__(
        self,
        *,
        state_dim: int,
        vocab_size: int | None = None,
        feature_dim: int | None = None,
        init_scale: float | None = None,
    ) -> None:
        check_positive("state_dim", state_dim)
        origin = torch.zeros(skew_dim(state_dim) + 1)
        origin[-1] = math.log(0.95 / 0.05)
        # d(gC) = dg C + g dC with ‖C‖_F = √d, |g| ≤ 1, |g'| ≤ 1/4.
        self.chart_lipschitz = math.sqrt(state_dim / 16 + 8)
        super().__init__(
            state_dim=state_dim,
            vocab_size=vocab_size,
            feature_dim=feature_dim,
            init_scale=small_rotation(state_dim, 2) if init_scale is None else init_scale,
            origin=origin,
        )

    def chart(self, raw: Tensor) -> Tensor:
        """Gain times rotation."""
        return torch.sigmoid(raw[..., -1, None, None]) * cayley(skew(raw[..., :-1], self.state_dim))

    def laws(self) -> tuple[Law, ...]:
        """A rotation up to a gain in (0, 1)."""
        return (ScaledOrthogonal(),)
