"""Families with a spectral cap bound the norm of every matrix."""

from __future__ import annotations

from typing import ClassVar, Unpack

import torch
from torch import Tensor

from transductor.transitions.base import ChartedFamily, Sizes
from transductor.transitions.laws import Law, SpectralNorm
from transductor.transitions.spectral import check_spectral_cap


class CappedFamily(ChartedFamily):
    """A chart whose matrices satisfy ``‖M‖₂ ≤ spectral_cap``."""

    options: ClassVar[tuple[str, ...]] = ("spectral_cap",)

    def __init__(self, *, spectral_cap: float = 1.0, **sizes: Unpack[Sizes]) -> None:
        check_spectral_cap(spectral_cap)
        self.spectral_cap = spectral_cap
        super().__init__(**sizes)

    def start_matrix(self) -> Tensor | None:
        """Return the identity, scaled down to the cap."""
        return min(1.0, self.spectral_cap) * torch.eye(self.state_dim)

    def structure(self) -> tuple[Law, ...]:
        """Return the laws beside the cap."""
        return ()

    def laws(self) -> tuple[Law, ...]:
        """The structure holds, and ‖M‖₂ ≤ γ."""
        return (*self.structure(), SpectralNorm(self.spectral_cap))
