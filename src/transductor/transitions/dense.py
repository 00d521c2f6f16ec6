"""F1: unconstrained matrices."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from transductor.transitions.base import ChartedFamily
from transductor.transitions.laws import Law


@final
class DenseTransitions(ChartedFamily):
    """Any matrix, starting near the identity.

    The family for tasks that no rotation can do (multiplication by zero); nothing bounds its norm.
    """

    name = "dense"

    def origin(self) -> Tensor:
        """The identity."""
        return torch.eye(self.state_dim).flatten()

    def chart(self, raw: Tensor) -> Tensor:
        """The raw numbers are the entries."""
        return raw.reshape(*raw.shape[:-1], self.state_dim, self.state_dim)

    def lipschitz_of_chart(self) -> float | None:
        """The chart places numbers."""
        return 1.0

    def laws(self) -> tuple[Law, ...]:
        """None."""
        return ()
