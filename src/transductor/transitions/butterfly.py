"""Butterfly transitions mix all coordinates in log₂ d levels, as a fast Fourier transform does."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from transductor.transitions.capped import CappedFamily, capped_lipschitz, spectral_scale
from transductor.transitions.laws import ButterflyRank, Law


@final
class ButterflyTransitions(CappedFamily):
    """A product of ⌈log₂ d⌉ levels; level l mixes coordinate i with its partner ``i xor 2^l``, as an FFT does.

    Every d is allowed: a coordinate without a partner is only scaled.  Capped at ``spectral_cap``; O(d log d) a step.
    """

    name = "butterfly"

    def register_structure(self) -> None:
        """Register the partner of each coordinate, level by level."""
        strides = 2 ** torch.arange(self.levels)
        own = torch.arange(self.state_dim)
        partners = own ^ strides[:, None]
        alone = partners >= self.state_dim
        self.register_buffer("partners", partners.where(~alone, own), persistent=False)
        self.register_buffer("paired", ~alone, persistent=False)

    @property
    def levels(self) -> int:
        """The number of levels: ⌈log₂ d⌉, at least one."""
        return max(1, (self.state_dim - 1).bit_length())

    def origin(self) -> Tensor:
        """Start with the identity at every level."""
        origin = torch.zeros(self.levels, self.state_dim, 2)
        origin[..., 0] = 1
        return origin.flatten()

    def default_scale(self) -> float:
        """Return a small scale of a coefficient, because the noise of log₂ d levels adds up."""
        return 0.03

    def _mixed(self, coefficients: Tensor, columns: Tensor) -> Tensor:
        """Apply all levels, coefficients ``(..., levels, D, 2)``, to ``columns (..., D, C)``."""
        partners = self.get_buffer("partners")
        for level in range(self.levels):
            own, other = coefficients[..., level, :, :1], coefficients[..., level, :, 1:]
            columns = own * columns + other * columns[..., partners[level], :]
        return columns

    def factors(self, raw: Tensor) -> tuple[Tensor, ...]:
        """Return the coefficients ``(..., levels, D, 2)`` and the scale ``(...)`` that meets the cap."""
        coefficients = raw.unflatten(-1, (self.levels, self.state_dim, 2))
        paired = torch.stack((torch.ones_like(self.get_buffer("paired")), self.get_buffer("paired")), -1)
        coefficients = coefficients * paired
        eye = torch.eye(self.state_dim, dtype=raw.dtype, device=raw.device)
        return coefficients, spectral_scale(self._mixed(coefficients, eye), self.spectral_cap)

    def act(self, state: Tensor, *factors: Tensor) -> Tensor:
        """Apply the levels to the state, in O(d log d)."""
        coefficients, scale = factors
        return self._mixed(coefficients, state.unsqueeze(-1)).squeeze(-1) * scale.unsqueeze(-1)

    def chart(self, raw: Tensor) -> Tensor:
        """Apply the levels to the identity."""
        coefficients, scale = self.factors(raw)
        eye = torch.eye(self.state_dim, dtype=raw.dtype, device=raw.device)
        return self._mixed(coefficients, eye) * scale[..., None, None]

    def lipschitz_of_chart(self) -> float | None:
        """One level is the cap's; of several there is none, because a small change is multiplied by other levels."""
        return capped_lipschitz(self.state_dim) if self.levels == 1 else None

    def step_cost(self) -> int:
        """Count 2 d products per level."""
        return 2 * self.state_dim * self.levels

    def structure(self) -> tuple[Law, ...]:
        """The matrix is a butterfly."""
        return (ButterflyRank(),)
