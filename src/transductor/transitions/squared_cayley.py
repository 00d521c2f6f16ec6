"""F7: every rotation, by one solve and one product."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor

from transductor.notation import check_positive
from transductor.transitions.base import ChartedFamily
from transductor.transitions.laws import Determinant, Law, Orthogonal
from transductor.transitions.rotations import cayley, skew, skew_dim, small_rotation

__all__ = ["SquaredCayleyTransitions"]


@final
class SquaredCayleyTransitions(ChartedFamily):
    """``C(A)²``: all of SO(d).

    Every rotation is the square of one without eigenvalue −1, so it is reached in the interior: a half turn sits
    at ‖A‖ = 1, not at infinity as for the plain Cayley map.  det −1 is not reached; give the state one more
    dimension, or use :class:`OrthogonalTransitions`, which adds signs.
    """

    name = "squared_cayley"
    chart_lipschitz = 4 * math.sqrt(2)

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
            init_scale=small_rotation(state_dim, 4) if init_scale is None else init_scale,
            origin=torch.zeros(skew_dim(state_dim)),
        )

    def chart(self, raw: Tensor) -> Tensor:
        """The square of the Cayley transform."""
        half = cayley(skew(raw, self.state_dim))
        return half @ half

    def laws(self) -> tuple[Law, ...]:
        """A rotation."""
        return (Orthogonal(), Determinant(1))
