"""Affine transitions are affine maps, written as matrices in homogeneous coordinates."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from transductor.transitions.base import ChartedFamily
from transductor.transitions.laws import AffineRow, Law


@final
class AffineTransitions(ChartedFamily):
    """``h ↦ A h + b`` as the linear map ``[[A, b], [0, 1]]`` on d coordinates, the last of them constantly 1.

    An affine automaton is a linear one with one more state, so sums, products and cascades apply as they are.
    """

    name = "affine"

    def origin(self) -> Tensor:
        """Start at A = I, b = 0."""
        return torch.eye(self.state_dim)[:-1].flatten()

    def chart(self, raw: Tensor) -> Tensor:
        """Place the raw numbers in all rows but the last."""
        above = raw.unflatten(-1, (self.state_dim - 1, self.state_dim))
        last = torch.eye(self.state_dim, dtype=raw.dtype, device=raw.device)[-1:]
        return torch.cat((above, last.expand(*raw.shape[:-1], 1, -1)), -2)

    def start_from(self, raw: Tensor) -> Tensor:
        """Set the last coordinate to 1."""
        return torch.cat((raw[:-1], torch.ones_like(raw[-1:])))

    def lipschitz_of_chart(self) -> float | None:
        """Return 1: the chart only places numbers."""
        return 1.0

    def laws(self) -> tuple[Law, ...]:
        """The last coordinate never changes."""
        return (AffineRow(),)
