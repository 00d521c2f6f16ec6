"""Diagonal families treat each coordinate by itself, in O(d) a step."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from transductor.transitions.capped import CappedFamily
from transductor.transitions.laws import Law, Support


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
