"""Toeplitz transitions are constant along diagonals."""

from __future__ import annotations

from typing import final

from torch import Tensor

from transductor.transitions.capped import StripedFamily
from transductor.transitions.laws import ConstantAlong, Law


@final
class ToeplitzTransitions(StripedFamily):
    """``M[i, j] = m[i − j]``: convolution over the state, 2d − 1 numbers, capped at ``spectral_cap``."""

    name = "toeplitz"

    @staticmethod
    def places_of(rows: Tensor, columns: Tensor) -> Tensor:
        """Count the diagonals: i − j + d − 1."""
        return rows - columns + len(columns) - 1

    def structure(self) -> tuple[Law, ...]:
        """The matrix is a Toeplitz matrix."""
        return (ConstantAlong("Toeplitz", 1),)
