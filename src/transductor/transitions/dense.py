"""F1: unconstrained matrices."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor

from transductor.notation import check_positive
from transductor.transitions.base import ChartedFamily
from transductor.transitions.laws import Law

__all__ = ["DenseTransitions"]


@final
class DenseTransitions(ChartedFamily):
    """Any matrix, starting near the identity.

    The family for tasks that no rotation can do (multiplication by zero); nothing bounds its norm.
    """

    name = "dense"
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
            origin=torch.eye(state_dim).flatten(),
        )

    def chart(self, raw: Tensor) -> Tensor:
        """The raw numbers are the entries."""
        return raw.reshape(*raw.shape[:-1], self.state_dim, self.state_dim)

    def laws(self) -> tuple[Law, ...]:
        """None."""
        return ()
