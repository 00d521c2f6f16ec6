"""F7: every rotation, by the exponential map."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor

from transductor.notation import check_positive
from transductor.transitions.base import ChartedFamily
from transductor.transitions.laws import Determinant, Law, Orthogonal
from transductor.transitions.rotations import skew, skew_dim, small_rotation

__all__ = ["ExponentialTransitions"]


@final
class ExponentialTransitions(ChartedFamily):
    """``exp(A)`` with A skew: all of SO(d), angles read off directly.  det −1 is not reached."""

    name = "exponential"
    chart_lipschitz = math.sqrt(2)

    def __init__(
        self,
        *,
        state_dim: int,
        vocab_size: int | None = None,
        feature_dim: int | None = None,
        init_scale: float | None = None,
    ) -> None:
        check_positive("state_dim", state_dim)
        super().__init__(
            state_dim=state_dim,
            vocab_size=vocab_size,
            feature_dim=feature_dim,
            init_scale=small_rotation(state_dim, 1) if init_scale is None else init_scale,
            origin=torch.zeros(skew_dim(state_dim)),
        )

    def chart(self, raw: Tensor) -> Tensor:
        """The matrix exponential."""
        rotation: Tensor = torch.linalg.matrix_exp(skew(raw, self.state_dim))
        # Squaring s times inside matrix_exp costs s bits of orthogonality; one Newton step gives them back.
        return 1.5 * rotation - 0.5 * rotation @ (rotation.mT @ rotation)

    def laws(self) -> tuple[Law, ...]:
        """A rotation."""
        return (Orthogonal(), Determinant(1))
