"""Exponential transitions are all rotations, by the matrix exponential."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from transductor.kernels.rotation import polished, skew
from transductor.transitions.rotations import RotationFamily


@final
class ExponentialTransitions(RotationFamily):
    """``exp(A)`` with A skew: all of SO(d); the raw numbers are angles.  det −1 is not reached."""

    name = "exponential"
    slope = 1

    def chart(self, raw: Tensor) -> Tensor:
        """Apply the matrix exponential, then one Newton step back to an orthogonal matrix."""
        return polished(torch.linalg.matrix_exp(skew(raw, self.state_dim)))
