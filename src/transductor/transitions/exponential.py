"""F7: every rotation, by the exponential map."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from transductor.kernels.rotation import polished, skew
from transductor.transitions.laws import Determinant, Law, Orthogonal
from transductor.transitions.rotations import SkewFamily


@final
class ExponentialTransitions(SkewFamily):
    """``exp(A)`` with A skew: all of SO(d), angles read off directly.  det −1 is not reached."""

    name = "exponential"
    slope = 1

    def chart(self, raw: Tensor) -> Tensor:
        """The matrix exponential."""
        return polished(torch.linalg.matrix_exp(skew(raw, self.state_dim)))

    def laws(self) -> tuple[Law, ...]:
        """A rotation."""
        return (Orthogonal(), Determinant(1))
