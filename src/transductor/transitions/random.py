"""Random transitions are frozen; only a readout on top of them learns."""

from __future__ import annotations

import math
from typing import Unpack, final

import torch
from torch import Tensor

from transductor.transitions.base import Sizes
from transductor.transitions.capped import CappedFamily, capped_lipschitz, spectrally_capped


@final
class RandomTransitions(CappedFamily):
    """Gaussian matrices that never train, capped at ``spectral_cap``.

    They are Gaussian because features from a near-identity start are almost collinear (condition number 2e16 at
    length 6, against about 400).
    """

    name = "random"

    def __init__(self, *, spectral_cap: float = 0.99, **sizes: Unpack[Sizes]) -> None:
        super().__init__(spectral_cap=spectral_cap, **sizes)
        self.requires_grad_(False)

    def origin(self) -> Tensor:
        """Center the noise at zero."""
        return torch.zeros(self.state_dim**2)

    def default_scale(self) -> float:
        """Give singular values up to about 2 before the cap."""
        return 1 / math.sqrt(self.state_dim)

    def chart(self, raw: Tensor) -> Tensor:
        """Read the raw numbers as entries, then cap."""
        return spectrally_capped(raw.unflatten(-1, (self.state_dim, self.state_dim)), self.spectral_cap)

    def lipschitz_of_chart(self) -> float | None:
        """Return the constant of the cap: numbers are placed, then capped."""
        return capped_lipschitz(self.state_dim)

    def start_matrix(self) -> None:
        """Promise nothing: the matrices are random."""
