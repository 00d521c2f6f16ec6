"""A spectral cap bounds the norms of any family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

from torch import Tensor

from transductor.transitions.base import TransitionFamily
from transductor.transitions.capped import capped_lipschitz, check_spectral_cap, spectrally_capped
from transductor.transitions.composite import CompositeFamily
from transductor.transitions.laws import (
    BlockTriangular,
    ButterflyRank,
    ConstantAlong,
    KroneckerRank,
    Law,
    SpectralNorm,
    Support,
)


@final
class SpectralCap(CompositeFamily):
    """``W / max(1, ‖W‖₂ / γ)`` over another family: unchanged below the cap γ, and of norm γ above it."""

    name = "spectral_cap"

    def __init__(self, family: TransitionFamily, *, spectral_cap: float = 0.99) -> None:
        check_spectral_cap(spectral_cap)
        super().__init__(family)
        self.spectral_cap = spectral_cap

    def build(self, features: Tensor | None) -> Tensor:
        """Cap the part's matrices."""
        (matrices,) = self.built_parts(features)
        return spectrally_capped(matrices, self.spectral_cap)

    def start_matrix(self) -> Tensor | None:
        """Cap the part's start."""
        start = self.families[0].start_matrix()
        return None if start is None else spectrally_capped(start, self.spectral_cap)

    def start_from(self, raw: Tensor) -> Tensor:
        """Map the raw numbers as the part does."""
        return self.families[0].start_from(raw)

    def arguments(self) -> Mapping[str, Any]:
        """Return the cap."""
        return {"spectral_cap": self.spectral_cap}

    def lipschitz_bound(self) -> float | None:
        """Multiply the part's constant by the cap's."""
        bound = self.families[0].lipschitz_bound()
        return None if bound is None else capped_lipschitz(self.state_dim) * bound

    def laws(self) -> tuple[Law, ...]:
        """‖M‖₂ ≤ γ holds, and the part's structure, which scaling keeps."""
        structure = (Support, ConstantAlong, ButterflyRank, BlockTriangular, KroneckerRank)
        kept = [law for law in self.families[0].laws() if isinstance(law, structure)]
        return (SpectralNorm(self.spectral_cap), *kept)
