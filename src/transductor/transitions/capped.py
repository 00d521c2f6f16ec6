"""A spectral cap divides a matrix by ``max(1, ‖W‖₂ / γ)``; this module has the cap and the families that share it."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar, Unpack

import torch
from torch import Tensor

from transductor.kernels.precise import precise_spectral_norm
from transductor.transitions.base import ChartedFamily, Sizes
from transductor.transitions.laws import Law, SpectralNorm, Support


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


class CappedFamily(ChartedFamily):
    """A chart whose matrices satisfy ``‖M‖₂ ≤ spectral_cap``."""

    options: ClassVar[tuple[str, ...]] = ("spectral_cap",)

    def __init__(self, *, spectral_cap: float = 1.0, **sizes: Unpack[Sizes]) -> None:
        check_spectral_cap(spectral_cap)
        self.spectral_cap = spectral_cap
        super().__init__(**sizes)

    def start_matrix(self) -> Tensor | None:
        """Return the identity, scaled down to the cap."""
        return min(1.0, self.spectral_cap) * torch.eye(self.state_dim)

    def structure(self) -> tuple[Law, ...]:
        """Return the laws beside the cap."""
        return ()

    def laws(self) -> tuple[Law, ...]:
        """The structure holds, and ‖M‖₂ ≤ γ."""
        return (*self.structure(), SpectralNorm(self.spectral_cap))


class ElementwiseFamily(CappedFamily):
    """``diag(λ)`` with eigenvalues |λ| ≤ γ, a function of one raw number each."""

    @abstractmethod
    def eigenvalues(self, raw: Tensor) -> Tensor:
        """Map raw numbers ``(..., D)`` to eigenvalues ``(..., D)``."""

    def default_scale(self) -> float:
        """Return the scale of an angle or a logit, which does not depend on d."""
        return 0.1

    def factors(self, raw: Tensor) -> tuple[Tensor, ...]:
        """Return the diagonal."""
        return (self.eigenvalues(raw),)

    def act(self, state: Tensor, *factors: Tensor) -> Tensor:
        """Multiply coordinate by coordinate."""
        return factors[0] * state

    def chart(self, raw: Tensor) -> Tensor:
        """Return the diagonal as a matrix."""
        return torch.diag_embed(self.eigenvalues(raw))

    def start_matrix(self) -> Tensor:
        """Return γ I."""
        return self.spectral_cap * torch.eye(self.state_dim)

    def step_cost(self) -> int:
        """Count one product per coordinate."""
        return self.state_dim

    def structure(self) -> tuple[Law, ...]:
        """The matrix is diagonal."""
        return (Support("diagonal", tuple(map(tuple, torch.eye(self.state_dim, dtype=torch.bool).tolist()))),)


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
