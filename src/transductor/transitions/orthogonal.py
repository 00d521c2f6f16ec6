"""F7: the whole orthogonal group, and the default for it."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor

from transductor.notation import check_positive
from transductor.transitions.base import ChartedFamily
from transductor.transitions.laws import Law, Orthogonal
from transductor.transitions.rotations import cayley, skew, skew_dim, small_rotation, start_signs

__all__ = ["OrthogonalTransitions"]


@final
class OrthogonalTransitions(ChartedFamily):
    """``C(A)² · diag(±1)``, C the Cayley map: the default orthogonal family.

    Every rotation is the square of one without eigenvalue −1, so ``C(A)²`` reaches all of SO(d) at finite A, and
    the signs reach det −1.  With one negative sign eigenvalue −1 is there from the first step, and training only
    has to turn it; of the orthogonal families this one learned parity and mod-5 counting best (docs, "Which
    orthogonal family?").

    Args:
        negatives: How many coordinates, the last ones, start flipped, for every token; they cannot change while
            training, because det +1 and det −1 are disconnected.  Default 1 (0 when d = 1).  ``signs`` is a
            buffer of shape ``(V, D)`` (features: ``(D)``) and may be set by who knows better.
    """

    name = "orthogonal"
    options = ("negatives",)
    chart_lipschitz = 4 * math.sqrt(2)
    signs: Tensor

    def __init__(
        self,
        *,
        state_dim: int,
        vocab_size: int | None = None,
        feature_dim: int | None = None,
        negatives: int | None = None,
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
        self.negatives = min(1, state_dim - 1) if negatives is None else negatives
        self.register_buffer("signs", start_signs(state_dim, vocab_size, self.negatives))

    def chart(self, raw: Tensor) -> Tensor:
        """The squared Cayley transform with signed columns."""
        half = cayley(skew(raw, self.state_dim))
        return (half @ half) * self.signs.to(raw.dtype).unsqueeze(-2)

    def start_matrix(self) -> Tensor:
        """The signs."""
        return torch.diag(self.signs if self.signs.ndim == 1 else self.signs[0]).float()

    def laws(self) -> tuple[Law, ...]:
        """Orthogonal; the determinant is the product of the signs."""
        return (Orthogonal(),)
