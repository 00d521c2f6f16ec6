"""Scaled Cayley transitions are rotations with a learned gain: they keep, forget or turn round."""

from __future__ import annotations

import math
from typing import Final, Unpack, final

import torch
from torch import Tensor

from transductor.checks import one_of
from transductor.kernels.rotation import cayley_rotation
from transductor.transitions.base import Sizes
from transductor.transitions.laws import Law, ScaledOrthogonal
from transductor.transitions.rotations import SkewFamily

GAINS: Final = ("decay", "signed")
_START: Final = 0.95


@final
class ScaledCayleyTransitions(SkewFamily):
    """``g · C(A)`` with a learned gain g per token (or feature), which starts at 0.95: ‖M‖ = |g|.

    Args:
        gains: ``"decay"`` is the paper's g = σ(θ), strictly between 0 and 1: every token forgets, and g = 1 is
            :class:`CayleyTransitions`.  ``"signed"`` is g = cos θ, which reaches 1, 0 and −1: one head conserves for
            some tokens and forgets for others.  It is stationary at ±1, where an error ε of the angle costs ε²/2, and
            g = −1 gives det −1 in odd dimensions.
    """

    name = "scaled_cayley"
    options = ("gains",)
    slope = 2

    def __init__(self, *, gains: str = "decay", **sizes: Unpack[Sizes]) -> None:
        one_of("gains", gains, GAINS)
        self.gains = gains
        super().__init__(**sizes)

    def origin(self) -> Tensor:
        """Start at A = 0 and, as the last number, the θ at which the gain is 0.95."""
        angle = math.acos(_START) if self.gains == "signed" else math.log(_START / (1 - _START))
        return torch.cat((super().origin(), torch.tensor([angle])))

    def chart(self, raw: Tensor) -> Tensor:
        """Multiply the rotation by the gain."""
        gain = torch.cos if self.gains == "signed" else torch.sigmoid
        return gain(raw[..., -1, None, None]) * cayley_rotation(raw[..., :-1], self.state_dim)

    def lipschitz_of_chart(self) -> float | None:
        """Bound d(gC) = dg C + g dC, with ‖C‖_F = √d, |g| ≤ 1, and g' at most 1/4 for σ and 1 for the cosine."""
        return math.sqrt((1.0 if self.gains == "signed" else 1 / 16) * self.state_dim + 8)

    def laws(self) -> tuple[Law, ...]:
        """Every matrix is a rotation times a gain in (0, 1), or in [−1, 1] where gains are signed."""
        return (ScaledOrthogonal(),)
