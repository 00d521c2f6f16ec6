"""Squared Cayley transitions are all rotations, by one solve and one product."""

from __future__ import annotations

from typing import final

from torch import Tensor

from transductor.kernels.rotation import cayley_rotation
from transductor.transitions.rotations import RotationFamily


@final
class SquaredCayleyTransitions(RotationFamily):
    """``C(A)²``: all of SO(d).

    Every rotation is the square of one without eigenvalue −1, so it is reached in the interior: a half turn sits
    at ‖A‖ = 1, not at infinity as for the plain Cayley map.  det −1 is not reached; give the state one more
    dimension, or use :class:`OrthogonalTransitions`, which adds signs.
    """

    name = "squared_cayley"
    slope = 4

    def chart(self, raw: Tensor) -> Tensor:
        """Apply the Cayley transform and square it."""
        return cayley_rotation(raw, self.state_dim, squared=True)
