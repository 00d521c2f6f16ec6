"""Householder transitions are products of reflections."""

from __future__ import annotations

import math
from typing import Unpack, final

import torch
from torch import Tensor

from transductor.checks import check_positive
from transductor.kernels.precise import precise_product
from transductor.transitions.base import ChartedFamily, Sizes
from transductor.transitions.laws import Determinant, Law, Orthogonal


@final
class HouseholderTransitions(ChartedFamily):
    """``Π (I − 2 v vᵀ / ‖v‖²)``, k reflections: orthogonal, det (−1)^k, O(k d) a step.

    Every permutation of d points is a product of at most d − 1 reflections.  Reflections start in equal
    pairs, which cancel; an odd one is left over and starts as the flip of the first coordinate.

    Args:
        reflections: How many, k.
    """

    name = "householder"
    options = ("reflections",)

    def __init__(self, *, reflections: int = 4, **sizes: Unpack[Sizes]) -> None:
        check_positive("reflections", reflections)
        self.reflections = reflections
        super().__init__(**sizes)

    def origin(self) -> Tensor:
        """Start with normals along the axes, in equal pairs after the odd one."""
        odd = self.reflections % 2
        axes = torch.cat((torch.zeros(odd, dtype=torch.long), torch.arange(self.reflections - odd) // 2))
        return torch.nn.functional.one_hot(axes % self.state_dim, self.state_dim).float().flatten()

    def default_scale(self) -> float:
        """Tilt the normals, of length 1, by about 0.06."""
        return 0.06 / math.sqrt(self.state_dim)

    def factors(self, raw: Tensor) -> tuple[Tensor, ...]:
        """Return the unit normals ``(..., k, D)``."""
        normals = raw.unflatten(-1, (self.reflections, self.state_dim))
        # A zero normal has no reflection: the first axis takes its place.  Normals are scaled before their norm is
        # taken, so that the norm of a tiny one does not underflow.
        largest = normals.detach().abs().amax(-1, keepdim=True)
        first = torch.eye(self.state_dim, dtype=raw.dtype, device=raw.device)[0]
        normals = torch.where(largest > 0, normals / largest.where(largest > 0, 1.0), first)
        return (normals / normals.norm(dim=-1, keepdim=True),)

    def act(self, state: Tensor, *factors: Tensor) -> Tensor:
        """Apply one reflection after another."""
        for normal in factors[0].unbind(-2):
            state = state - 2 * normal * (normal * state).sum(-1, keepdim=True)
        return state

    def chart(self, raw: Tensor) -> Tensor:
        """Apply the reflections to the columns of the identity."""
        matrix = torch.eye(self.state_dim, dtype=raw.dtype, device=raw.device)
        for normal in self.factors(raw)[0].unbind(-2):
            matrix = matrix - 2 * normal.unsqueeze(-1) * precise_product(normal.unsqueeze(-2), matrix)
        return matrix

    def start_matrix(self) -> Tensor:
        """Return the identity, with the first coordinate flipped for odd k."""
        start = torch.eye(self.state_dim)
        start[0, 0] = (-1) ** self.reflections
        return start

    def lipschitz_of_chart(self) -> None:
        """There is none: the direction of a normal near zero turns by any angle with a small change."""

    def step_cost(self) -> int:
        """Count 2 k d products."""
        return 2 * self.reflections * self.state_dim

    def laws(self) -> tuple[Law, ...]:
        """Every matrix is orthogonal with determinant (−1)^k."""
        return (Orthogonal(), Determinant((-1) ** self.reflections))
