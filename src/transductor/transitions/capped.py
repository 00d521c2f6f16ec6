"""What families with a spectral cap have in common."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from transductor.transitions.base import ChartedFamily
from transductor.transitions.spectral import check_spectral_cap


class CappedFamily(ChartedFamily):
    """A chart whose matrices satisfy ``‖M‖₂ ≤ spectral_cap``."""

    options: ClassVar[tuple[str, ...]] = ("spectral_cap",)

    def __init__(
        self,
        *,
        state_dim: int,
        vocab_size: int | None = None,
        feature_dim: int | None = None,
        spectral_cap: float = 1.0,
        init_scale: float | None = None,
    ) -> None:
        check_spectral_cap(spectral_cap)
        self.spectral_cap = spectral_cap
        super().__init__(state_dim=state_dim, vocab_size=vocab_size, feature_dim=feature_dim, init_scale=init_scale)

    def start_matrix(self) -> Tensor | None:
        """The identity, scaled down to the cap."""
        return min(1.0, self.spectral_cap) * torch.eye(self.state_dim)
