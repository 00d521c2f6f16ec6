"""What Toeplitz and Hankel matrices have in common: 2d − 1 numbers spread along diagonals."""

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
        """Which number stands where."""
        rows = torch.arange(self.state_dim)
        self.register_buffer("places", self.places_of(rows[:, None], rows), persistent=False)

    @staticmethod
    @abstractmethod
    def places_of(rows: Tensor, columns: Tensor) -> Tensor:
        """Which number stands at (i, j), relative to the smallest."""

    def origin(self) -> Tensor:
        """The middle number is 1."""
        origin = torch.zeros(2 * self.state_dim - 1)
        origin[self.state_dim - 1] = 1
        return origin

    def chart(self, raw: Tensor) -> Tensor:
        """Numbers spread along their diagonals."""
        return spectrally_capped(raw[..., self.get_buffer("places")], self.spectral_cap)

    def lipschitz_of_chart(self) -> float | None:
        """Each number stands at most d times, then the cap."""
        return math.sqrt(self.state_dim) * capped_lipschitz(self.state_dim)

    def start_matrix(self) -> Tensor:
        """The chart of the origin."""
        return self.chart(self.origin().to(self.get_buffer("places").device)).cpu()
