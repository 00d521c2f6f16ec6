"""F10: Hankel matrices."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor

from transductor.notation import check_positive
from transductor.transitions.base import ChartedFamily
from transductor.transitions.laws import ConstantAlong, Law, SpectralNorm
from transductor.transitions.spectral import check_spectral_cap, spectrally_capped

__all__ = ["HankelTransitions"]


@final
class HankelTransitions(ChartedFamily):
    """``M[i, j] = m[i + j]``: correlation over the state, 2d − 1 numbers, capped at ``spectral_cap``.

    The identity is not Hankel for d > 1; the family starts near the exchange matrix, whose square is the
    identity.
    """

    name = "hankel"
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
        self.register_buffer("places", rows[:, None] + rows, persistent=False)

    def chart(self, raw: Tensor) -> Tensor:
        """Entries spread along their diagonals."""
        return spectrally_capped(raw[..., self.get_buffer("places")], self.spectral_cap)

    def start_matrix(self) -> Tensor:
        """The exchange matrix (no Hankel matrix is the identity), scaled down to the cap."""
        return min(1.0, self.spectral_cap) * torch.eye(self.state_dim).flip(0)

    def laws(self) -> tuple[Law, ...]:
        """Hankel structure, ‖M‖₂ ≤ γ."""
        return (ConstantAlong("Hankel", -1), SpectralNorm(self.spectral_cap))
