"""F10: Toeplitz matrices."""

from __future__ import annotations

from typing import final

from torch import Tensor

from transductor.transitions.laws import ConstantAlong, Law, SpectralNorm
from transductor.transitions.striped import StripedFamily


@final
class ToeplitzTransitions(StripedFamily):
    """``M[i, j] = m[i − j]``: convolution over the state, 2d − 1 numbers, capped at ``spectral_cap``."""

    name = "toeplitz"

    @staticmethod
    def places_of(rows: Tensor, columns: Tensor) -> Tensor:
        """i − j."""
        return rows - columns + len(columns) - 1

    def laws(self) -> tuple[Law, ...]:
        """Toeplitz structure, ‖M‖₂ ≤ γ."""
        return (ConstantAlong("Toeplitz", 1), SpectralNorm(self.spectral_cap))
