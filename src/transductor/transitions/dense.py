"""Dense transitions are matrices without any constraint."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from transductor.transitions.base import ChartedFamily
from transductor.transitions.laws import Law


@final
class DenseTransitions(ChartedFamily):
    """Any matrix, starting near the identity.

    Needed by tasks that no rotation can do, such as multiplication by zero.  Nothing bounds the norm.
    """

    name = "dense"

    def origin(self) -> Tensor:
        """Start at the identity."""
        return torch.eye(self.state_dim).flatten()

    def chart(self, raw: Tensor) -> Tensor:
        """Read the raw numbers as entries."""
        return raw.reshape(*raw.shape[:-1], self.state_dim, self.state_dim)

    def lipschitz_of_chart(self) -> float | None:
        """Return 1: the chart only places numbers."""
        return 1.0

    def laws(self) -> tuple[Law, ...]:
        """No law holds for all of them."""
        return ()
