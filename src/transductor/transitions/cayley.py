"""F5: the paper's rotations."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor

from transductor.notation import check_positive
from transductor.transitions.base import ChartedFamily
from transductor.transitions.laws import Determinant, Law, Orthogonal
from transductor.transitions.rotations import cayley, skew, skew_dim, small_rotation

__all__ = ["CayleyTransitions"]


@final
class CayleyTransitions(ChartedFamily):
    """``(I + A)(I − A)⁻¹`` with A skew: strictly orthogonal, det +1.

    The limit of this family: −1 is never an eigenvalue, because ``C(A) + I = 2(I − A)⁻¹`` is invertible.  No
    pure Cayley head of any dimension decides parity with an affine threshold at all lengths.
    :class:`SquaredCayleyTransitions` reaches every rotation, :class:`OrthogonalTransitions` every orthogonal
    matrix.
    """

    name = "cayley"
    chart_lipschitz = 2 * math.sqrt(2)

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
            init_scale=small_rotation(state_dim, 2) if init_scale is None else init_scale,
            origin=torch.zeros(skew_dim(state_dim)),
        )

    def chart(self, raw: Tensor) -> Tensor:
        """The Cayley transform."""
        return cayley(skew(raw, self.state_dim))

    def laws(self) -> tuple[Law, ...]:
        """A rotation."""
        return (Orthogonal(), Determinant(1))
