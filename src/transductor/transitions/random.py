"""F12: frozen random features."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor

from transductor.transitions.capped import CappedFamily
from transductor.transitions.laws import Law, SpectralNorm
from transductor.transitions.spectral import capped_lipschitz, spectrally_capped


@final
class RandomTransitions(CappedFamily):
    """Gaussian matrices that never train, capped at ``spectral_cap``: only a readout on top learns.

    Gaussian on purpose: features from a near-identity start are almost collinear (condition number 2e16 at
    length 6 against about 400).
    """

    name = "random"

    def __init__(
        self,
        *,
        state_dim: int,
        vocab_size: int | None = None,
        feature_dim: int | None = None,
        spectral_cap: float = 0.99,
        init_scale: float | None = None,
    ) -> None:
        super().__init__(
            state_dim=state_dim,
            vocab_size=vocab_size,
            feature_dim=feature_dim,
            spectral_cap=spectral_cap,
            init_scale=init_scale,
        )
        self.requires_grad_(False)

    def origin(self) -> Tensor:
        """Zero."""
        return torch.zeros(self.state_dim**2)

    def default_scale(self) -> float:
        """Singular values up to about 2 before the cap."""
        return 1 / math.sqrt(self.state_dim)

    def chart(self, raw: Tensor) -> Tensor:
        """Entries, capped."""
        return spectrally_capped(raw.unflatten(-1, (self.state_dim, self.state_dim)), self.spectral_cap)

    def lipschitz_of_chart(self) -> float | None:
        """Numbers are placed, then capped."""
        return capped_lipschitz(self.state_dim)

    def start_matrix(self) -> None:
        """No promise: it is random."""

    def laws(self) -> tuple[Law, ...]:
        """‖M‖₂ ≤ γ."""
        return (SpectralNorm(self.spectral_cap),)
