"""Cayley transitions are the rotations without eigenvalue −1."""

from __future__ import annotations

from typing import final

from torch import Tensor

from transductor.kernels.rotation import cayley_rotation
from transductor.transitions.rotations import RotationFamily


@final
class CayleyTransitions(RotationFamily):
    """``(I + A)(I − A)⁻¹`` with A skew: strictly orthogonal, det +1.

    The limit of this family: −1 is never an eigenvalue, because ``C(A) + I = 2(I − A)⁻¹`` is invertible.  No
    pure Cayley head of any dimension decides parity with an affine threshold at all lengths; a network on it can,
    from a quarter turn and ``h₁² − h₂²``.
    :class:`SquaredCayleyTransitions` reaches every rotation, :class:`OrthogonalTransitions` every orthogonal
    matrix.
    """

    name = "cayley"
    slope = 2

    def chart(self, raw: Tensor) -> Tensor:
        """Apply the Cayley transform."""
        return cayley_rotation(raw, self.state_dim)
