"""F10: Toeplitz matrices."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor

from transductor.notation import check_positive
from transductor.transitions.base import ChartedFamily
from transductor.transitions.laws import ConstantAlong, Law, SpectralNorm
from transductor.transitions.spectral import check_spectral_cap, spectrally_capped

__all__ = ["ToeplitzTransitions"]


@final
class ToeplitzTransitions(ChartedFamily):
    """``M[i, j] = m[i − j]``: convolution over the state, 2d − 1 numbers, capped at ``spectral_cap``."""

    name = "toeplitz"
    options = ("spectral_cap",)

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
        check_positive("state_dim", state_dim)
        origin = torch.zeros(2 * state_dim - 1)
        origin[state_dim - 1] = 1
        super().__init__(
            state_dim=state_dim,
            vocab_size=vocab_size,
            feature_dim=feature_dim,
            init_scale=0.1 / math.sqrt(state_dim) if init_scale is None else init_scale,
            origin=origin,
        )
        self.spectral_cap = spectral_cap
        rows = torch.arange(state_dim)
        self.register_buffer("places", rows[:, None] - rows + state_dim - 1, persistent=False)

    def chart(self, raw: Tensor) -> Tensor:
        """Entries spread along their diagonals."""
        return spectrally_capped(raw[..., self.get_buffer("places")], self.spectral_cap)

    def start_matrix(self) -> Tensor:
        """The identity, scaled down to the cap."""
        return min(1.0, self.spectral_cap) * torch.eye(self.state_dim)

    def laws(self) -> tuple[Law, ...]:
        """Toeplitz structure, ‖M‖₂ ≤ γ."""
        return (ConstantAlong("Toeplitz", 1), SpectralNorm(self.spectral_cap))
