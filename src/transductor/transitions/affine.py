"""F1: affine maps in homogeneous coordinates."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor

from transductor.notation import check_positive
from transductor.transitions.base import ChartedFamily
from transductor.transitions.laws import AffineRow, Law

__all__ = ["AffineTransitions"]


@final
class AffineTransitions(ChartedFamily):
    """``h ↦ A h + b`` as the linear map ``[[A, b], [0, 1]]`` on d coordinates, the last of them constantly 1.

    An affine automaton is a linear one with one more state, so sums, products and cascades apply as they are.
    """

    name = "affine"
    chart_lipschitz = 1.0

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
            init_scale=0.1 / math.sqrt(state_dim) if init_scale is None else init_scale,
            origin=torch.eye(state_dim)[:-1].flatten(),
        )

    def chart(self, raw: Tensor) -> Tensor:
        """Entries of all rows but the last."""
        above = raw.unflatten(-1, (self.state_dim - 1, self.state_dim))
        last = torch.eye(self.state_dim, dtype=raw.dtype, device=raw.device)[-1:]
        return torch.cat((above, last.expand(*raw.shape[:-1], 1, -1)), -2)

    def start_from(self, raw: Tensor) -> Tensor:
        """The last coordinate is 1."""
        return torch.cat((raw[:-1], torch.ones_like(raw[-1:])))

    def laws(self) -> tuple[Law, ...]:
        """The last coordinate is kept."""
        return (AffineRow(),)
