"""A direct sum runs automata side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import final

import torch
from torch import Tensor

from transductor.transitions.base import Stepper
from transductor.transitions.composite import BlockComposite
from transductor.transitions.laws import BlockTriangular, Law, SpectralNorm, shared_laws, spectral_bound


@final
class DirectSum(BlockComposite):
    """``M₁ ⊕ M₂ ⊕ …``: independent automata in parallel; dimensions add."""

    name = "direct_sum"

    def build(self, features: Tensor | None) -> Tensor:
        """Place the parts on the diagonal."""
        return self.placed(self.built_parts(features))

    def stepper(self) -> Stepper:
        """Step each part by itself."""
        dims = self.part_dims

        def step(state: Tensor, drive: Tensor, advances: Sequence[Stepper]) -> Tensor:
            parts = zip(advances, state.split(dims, -1), strict=True)
            return torch.cat([advance(part, drive) for advance, part in parts], -1)

        steppers = [part.stepper() for part in self.families]
        return replace(Stepper.of_parts(steppers, step), moves=all(part.moves for part in steppers))

    def blocks(self) -> tuple[int, ...]:
        """Return the blocks of all parts."""
        return tuple(size for part in self.families for size in part.blocks() or (part.state_dim,))

    def step_cost(self) -> int:
        """Add up the parts' costs."""
        return sum(part.step_cost() for part in self.families)

    def laws(self) -> tuple[Law, ...]:
        """The matrix is block-diagonal; what all parts share holds, and each part's laws hold on its block."""
        laws: list[Law] = [BlockTriangular(tuple(self.part_dims), 0)]
        laws += shared_laws([part.laws() for part in self.families], lambda law, others: law.of_direct_sum(others))
        bounds = [bound for part in self.families if (bound := spectral_bound(part.laws())) is not None]
        if len(bounds) == len(self.families):
            laws.append(SpectralNorm(max(bounds)))
        return (*laws, *self.block_laws())
