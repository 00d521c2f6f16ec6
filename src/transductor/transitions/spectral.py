"""A spectral cap divides a matrix by ``max(1, ‖W‖₂ / γ)``."""

from __future__ import annotations

import math

from torch import Tensor

from transductor.kernels.precise import precise_spectral_norm


def spectral_scale(matrices: Tensor, spectral_cap: float) -> Tensor:
    """Return ``1 / max(1, ‖W‖₂ / γ)`` for ``(..., D, D)``: exactly 1 below the cap."""
    return 1 / (precise_spectral_norm(matrices) / spectral_cap).clamp_min(1)


def spectrally_capped(matrices: Tensor, spectral_cap: float) -> Tensor:
    """Return matrices with ``‖·‖₂ ≤ γ``, unchanged below the cap."""
    return matrices * spectral_scale(matrices, spectral_cap)[..., None, None]


def check_spectral_cap(spectral_cap: float) -> None:
    """Refuse a cap that is not a positive number."""
    if not (isinstance(spectral_cap, (int, float)) and 0 < spectral_cap < float("inf")):
        raise ValueError(f"spectral_cap must be a positive number; got {spectral_cap!r}")


def capped_lipschitz(state_dim: int) -> float:
    """Return the cap's Frobenius Lipschitz constant: ``sW − s'W' = s(W − W') + (s − s')W'``, ‖W'‖_F ≤ √d ‖W'‖₂."""
    return 1 + math.sqrt(state_dim)
