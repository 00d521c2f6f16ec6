"""F11: automata side by side."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from transductor.transitions.base import Stepper, TransitionFamily
from transductor.transitions.composite import CompositeFamily, check_parts
from transductor.transitions.laws import BlockTriangular, Law, OnBlock, shared_laws

__all__ = ["DirectSum"]


@final
class DirectSum(CompositeFamily):
    """``M₁ ⊕ M₂ ⊕ …``: independent automata in parallel; dimensions add."""

    name = "direct_sum"

    def __init__(self, *parts: TransitionFamily) -> None:
        check_parts(self.name, parts)
        super().__init__(parts, sum(part.state_dim for part in parts))

    def build(self, features: Tensor | None) -> Tensor:
        """Block-diagonal matrices."""
        built = self.built_parts(features)
        out = built[0].new_zeros(*built[0].shape[:-2], self.state_dim, self.state_dim)
        begin = 0
        for matrices in built:
            end = begin + matrices.shape[-1]
            out[..., begin:end, begin:end] = matrices
            begin = end
        return out

    def stepper(self) -> Stepper:
        """Each part steps on its own."""
        steppers, dims = [part.stepper() for part in self.families], self.part_dims
        return lambda state, drive: torch.cat(
            [step(part, drive) for step, part in zip(steppers, state.split(dims, -1), strict=True)], -1
        )

    def step_cost(self) -> int:
        """The parts' costs add."""
        return sum(part.step_cost() for part in self.families)

    def start_matrix(self) -> Tensor | None:
        """Block-diagonal in the parts' starts."""
        starts = [start for part in self.families if (start := part.start_matrix()) is not None]
        return torch.block_diag(*starts) if len(starts) == len(self.families) else None

    def start_from(self, raw: Tensor) -> Tensor:
        """Each part maps its own coordinates."""
        pieces = raw.split(self.part_dims)
        return torch.cat([part.start_from(piece) for part, piece in zip(self.families, pieces, strict=True)])

    def lipschitz_bound(self) -> float | None:
        """Squared constants of the blocks add."""
        bounds = [bound for part in self.families if (bound := part.lipschitz_bound()) is not None]
        return sum(bound**2 for bound in bounds) ** 0.5 if len(bounds) == len(self.families) else None

    def laws(self) -> tuple[Law, ...]:
        """The blocks, what all parts share, and each part's own laws on its block."""
        laws: list[Law] = [BlockTriangular(tuple(self.part_dims), 0)]
        for first, *others in shared_laws([part.laws() for part in self.families]):
            joined = first.of_direct_sum(others)
            if joined is not None:
                laws.append(joined)
        begin = 0
        for part in self.families:
            laws += [OnBlock(begin, part.state_dim, law) for law in part.laws()]
            begin += part.state_dim
        return tuple(laws)
