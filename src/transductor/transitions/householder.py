"""F7: products of reflections."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor

from transductor.checks import check_positive
from transductor.kernels.precise import precise_product
from transductor.transitions.base import ChartedFamily
from transductor.transitions.laws import Determinant, Law, Orthogonal


@final
class HouseholderTransitions(ChartedFamily):
    """``Π (I − 2 v vᵀ / ‖v‖²)``, k reflections: orthogonal, det (−1)^k, O(k d) a step.

    Every permutation of d points is a product of at most d − 1 reflections.  Reflections start in equal
    pairs, which cancel; an odd one is left over and starts as the flip of the first coordinate.
    """

    name = "householder"
    options = ("reflections",)

    def __init__(
        self,
        *,
        state_dim: int,
        vocab_size: int | None = None,
        feature_dim: int | None = None,
        reflections: int = 4,
        init_scale: float | None = None,
    ) -> None:
        check_positive("reflections", reflections)
        self.reflections = reflections
        super().__init__(state_dim=state_dim, vocab_size=vocab_size, feature_dim=feature_dim, init_scale=init_scale)

    def origin(self) -> Tensor:
        """Normals along the axes, in equal pairs after the odd one."""
        odd = self.reflections % 2
        axes = torch.cat((torch.zeros(odd, dtype=torch.long), torch.arange(self.reflections - odd) // 2))
        return torch.nn.functional.one_hot(axes % self.state_dim, self.state_dim).float().flatten()

    def default_scale(self) -> float:
        """Normals of length 1 are tilted by about 0.06."""
        return 0.06 / math.sqrt(self.state_dim)

    def factors(self, raw: Tensor) -> tuple[Tensor, ...]:
        """Unit normals ``(..., k, D)``."""
        normals = raw.unflatten(-1, (self.reflections, self.state_dim))
        # A zero normal would be no reflection: it counts as the first axis.  Scaled first, so that the norm of
        # a tiny one does not underflow.
        largest = normals.detach().abs().amax(-1, keepdim=True)
        first = torch.eye(self.state_dim, dtype=raw.dtype, device=raw.device)[0]
        normals = torch.where(largest > 0, normals / largest.where(largest > 0, 1.0), first)
        return (normals / normals.norm(dim=-1, keepdim=True),)

    def act(self, state: Tensor, *factors: Tensor) -> Tensor:
        """One reflection after another."""
        for normal in factors[0].unbind(-2):
            state = state - 2 * normal * (normal * state).sum(-1, keepdim=True)
        return state

    def chart(self, raw: Tensor) -> Tensor:
        """The product as a matrix: reflections applied to the identity's columns."""
        matrix = torch.eye(self.state_dim, dtype=raw.dtype, device=raw.device)
        for normal in self.factors(raw)[0].unbind(-2):
            matrix = matrix - 2 * normal.unsqueeze(-1) * precise_product(normal.unsqueeze(-2), matrix)
        return matrix

    def start_matrix(self) -> Tensor:
        """The identity, with the first coordinate flipped for odd k."""
        start = torch.eye(self.state_dim)
        start[0, 0] = (-1) ** self.reflections
        return start

    def step_cost(self) -> int:
        """2 k d."""
        return 2 * self.reflections * self.state_dim

    def laws(self) -> tuple[Law, ...]:
        """Orthogonal with known determinant."""
        return (Orthogonal(), Determinant((-1) ** self.reflections))
