"""F10: Hankel matrices."""

from __future__ import annotations

from typing import final

from torch import Tensor

from transductor.transitions.laws import ConstantAlong, Law, SpectralNorm
from transductor.transitions.striped import StripedFamily


@final
class HankelTransitions(StripedFamily):
    """``M[i, j] = m[i + j]``: correlation over the state, 2d − 1 numbers, capped at ``spectral_cap``.

    The identity is not Hankel for d > 1; the family starts near the exchange matrix, whose square is the
    identity.
    """

    name = "hankel"

    @staticmethod
    def places_of(rows: Tensor, columns: Tensor) -> Tensor:
        """i + j."""
        return rows + columns

    def laws(self) -> tuple[Law, ...]:
        """Hankel structure, ‖M‖₂ ≤ γ."""
        return (ConstantAlong("Hankel", -1), SpectralNorm(self.spectral_cap))
