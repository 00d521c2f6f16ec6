"""F5: the paper's rotations."""

from __future__ import annotations

from typing import final

from torch import Tensor

from transductor.kernels.rotation import cayley_rotation
from transductor.transitions.laws import Determinant, Law, Orthogonal
from transductor.transitions.rotations import SkewFamily


@final
class CayleyTransitions(SkewFamily):
    """``(I + A)(I − A)⁻¹`` with A skew: strictly orthogonal, det +1.

    The limit of this family: −1 is never an eigenvalue, because ``C(A) + I = 2(I − A)⁻¹`` is invertible.  No
    pure Cayley head of any dimension decides parity with an affine threshold at all lengths.
    :class:`SquaredCayleyTransitions` reaches every rotation, :class:`OrthogonalTransitions` every orthogonal
    matrix.
    """

    name = "cayley"
    slope = 2

    def chart(self, raw: Tensor) -> Tensor:
        """The Cayley transform."""
        return cayley_rotation(raw, self.state_dim)

    def laws(self) -> tuple[Law, ...]:
        """A rotation."""
        return (Orthogonal(), Determinant(1))
