"""Hankel transitions are constant along anti-diagonals."""

from __future__ import annotations

from typing import final

from torch import Tensor

from transductor.transitions.capped import StripedFamily
from transductor.transitions.laws import ConstantAlong, Law


@final
class HankelTransitions(StripedFamily):
    """``M[i, j] = m[i + j]``: correlation over the state, 2d − 1 numbers, capped at ``spectral_cap``.

    The identity is not Hankel for d > 1; the family starts near the exchange matrix, whose square is the
    identity.
    """

    name = "hankel"

    @staticmethod
    def places_of(rows: Tensor, columns: Tensor) -> Tensor:
        """Count the anti-diagonals: i + j."""
        return rows + columns

    def structure(self) -> tuple[Law, ...]:
        """The matrix is a Hankel matrix."""
        return (ConstantAlong("Hankel", -1),)
