"""What diagonal families have in common: each coordinate on its own, O(d) a step."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from transductor.transitions.capped import CappedFamily
from transductor.transitions.laws import Law, SpectralNorm, Support


class ElementwiseFamily(CappedFamily):
    """``diag(λ)`` with eigenvalues |λ| ≤ γ, a function of one raw number each."""

    @abstractmethod
    def eigenvalues(self, raw: Tensor) -> Tensor:
        """``(..., D)`` to ``(..., D)``."""

    def default_scale(self) -> float:
        """Of an angle or a logit, whatever d."""
        return 0.1

    def factors(self, raw: Tensor) -> tuple[Tensor, ...]:
        """The diagonal."""
        return (self.eigenvalues(raw),)

    def act(self, state: Tensor, *factors: Tensor) -> Tensor:
        """Elementwise."""
        return factors[0] * state

    def chart(self, raw: Tensor) -> Tensor:
        """The diagonal as a matrix."""
        return torch.diag_embed(self.eigenvalues(raw))

    def start_matrix(self) -> Tensor:
        """γ I."""
        return self.spectral_cap * torch.eye(self.state_dim)

    def step_cost(self) -> int:
        """One product per coordinate."""
        return self.state_dim

    def laws(self) -> tuple[Law, ...]:
        """Diagonal, |λ| ≤ γ."""
        pattern = tuple(tuple(i == j for j in range(self.state_dim)) for i in range(self.state_dim))
        return (Support("diagonal", pattern), SpectralNorm(self.spectral_cap))
