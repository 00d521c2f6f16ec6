"""F7: the whole orthogonal group, by signs."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor

from transductor.notation import check_positive
from transductor.transitions.base import ChartedFamily
from transductor.transitions.laws import Law, Orthogonal
from transductor.transitions.rotations import cayley, skew, skew_dim, small_rotation, start_signs

__all__ = ["SignedCayleyTransitions"]


@final
class SignedCayleyTransitions(ChartedFamily):
    """``C(A) · diag(±1)``: every orthogonal matrix is of this form for some signs.

    det +1 and det −1 are disconnected and training cannot cross, so the signs are fixed at the start: the
    last ``negatives`` coordinates are −1 for every token.  One negative and one spare dimension reach every
    orthogonal matrix of dimension d − 1.  ``signs`` is a buffer of shape ``(V, D)`` (features: ``(D)``) and
    may be set by who knows better.
    """

    name = "signed_cayley"
    options = ("negatives",)
    chart_lipschitz = 2 * math.sqrt(2)
    signs: Tensor

    def __init__(
        self,
        *,
        state_dim: int,
        vocab_size: int | None = None,
        feature_dim: int | None = None,
        negatives: int = 1,
        init_scale: float | None = None,
    ) -> None:
        check_positive("state_dim", state_dim)
        super().__init__(
            state_dim=state_dim,
            vocab_size=vocab_size,
            feature_dim=feature_dim,
            init_scale=small_rotation(state_dim, 2) if init_scale is None else init_scale,
            origin=torch.zeros(skew_dim(state_dim)),
        )
        self.negatives = negatives
        self.register_buffer("signs", start_signs(state_dim, vocab_size, negatives))

    def chart(self, raw: Tensor) -> Tensor:
        """The Cayley transform with signed columns."""
        return cayley(skew(raw, self.state_dim)) * self.signs.to(raw.dtype).unsqueeze(-2)

    def start_matrix(self) -> Tensor:
        """The signs."""
        return torch.diag(self.signs if self.signs.ndim == 1 else self.signs[0]).float()

    def laws(self) -> tuple[Law, ...]:
        """Orthogonal; the determinant is the product of the signs."""
        return (Orthogonal(),)
