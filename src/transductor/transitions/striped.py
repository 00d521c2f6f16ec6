"""Toeplitz and Hankel families spread 2d − 1 numbers along the diagonals of a matrix."""

from __future__ import annotations

import math
from abc import abstractmethod

import torch
from torch import Tensor

from transductor.transitions.capped import CappedFamily
from transductor.transitions.spectral import capped_lipschitz, spectrally_capped


class StripedFamily(CappedFamily):
    """``M[i, j] = m[places[i, j]]``, capped at ``spectral_cap``; starts with only the middle number 1."""

    def register_structure(self) -> None:
        """Register which number stands where."""
        rows = torch.arange(self.state_dim)
        self.register_buffer("places", self.places_of(rows[:, None], rows), persistent=False)

    @staticmethod
    @abstractmethod
    def places_of(rows: Tensor, columns: Tensor) -> Tensor:
        """Return which of the numbers stands at (i, j), counted from 0."""

    def origin(self) -> Tensor:
        """Start with 1 as the middle number and 0 elsewhere."""
        origin = torch.zeros(2 * self.state_dim - 1)
        origin[self.state_dim - 1] = 1
        return origin

    def chart(self, raw: Tensor) -> Tensor:
        """Spread the numbers along their diagonals, then cap."""
        return spectrally_capped(raw[..., self.get_buffer("places")], self.spectral_cap)

    def lipschitz_of_chart(self) -> float | None:
        """Return √d, because each number stands at most d times, times the constant of the cap."""
        return math.sqrt(self.state_dim) * capped_lipschitz(self.state_dim)

    def start_matrix(self) -> Tensor:
        """Return the chart of the origin."""
        return self.chart(self.origin().to(self.get_buffer("places").device)).cpu()
