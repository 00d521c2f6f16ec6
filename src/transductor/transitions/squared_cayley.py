"""F7: every rotation, by one solve and one product."""

from __future__ import annotations

from typing import final

from torch import Tensor

from transductor.kernels.rotation import cayley_rotation
from transductor.transitions.laws import Determinant, Law, Orthogonal
from transductor.transitions.rotations import SkewFamily


@final
class SquaredCayleyTransitions(SkewFamily):
    """``C(A)²``: all of SO(d).

    Every rotation is the square of one without eigenvalue −1, so it is reached in the interior: a half turn sits
    at ‖A‖ = 1, not at infinity as for the plain Cayley map.  det −1 is not reached; give the state one more
    dimension, or use :class:`OrthogonalTransitions`, which adds signs.
    """

    name = "squared_cayley"
    slope = 4

    def chart(self, raw: Tensor) -> Tensor:
        """The square of the Cayley transform."""
        return cayley_rotation(raw, self.state_dim, squared=True)

    def laws(self) -> tuple[Law, ...]:
        """A rotation."""
        return (Orthogonal(), Determinant(1))
