"""Families made of families share a drive, and give their parts to a spec."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from transductor.transitions.base import FamilySpec, TransitionFamily
from transductor.transitions.laws import Law, OnBlock


class CompositeFamily(TransitionFamily):
    """A family built of parts that share one drive."""

    def __init__(self, *parts: TransitionFamily) -> None:
        if not parts:
            raise ValueError(f"a {self.name} needs at least one part")
        for part in parts:
            if not isinstance(part, TransitionFamily):
                raise TypeError(f"the parts of a {self.name} must be transition families; got {type(part).__name__}")
        if len({id(part) for part in parts}) < len(parts):
            raise ValueError(
                f"the parts of a {self.name} must be different objects; copy.deepcopy a family to repeat it"
            )
        first = parts[0]
        for part in parts[1:]:
            if (part.vocab_size, part.feature_dim) != (first.vocab_size, first.feature_dim):
                raise ValueError(
                    f"the parts of a {self.name} must share one drive; got {first.extra_repr()} and {part.extra_repr()}"
                )
        state_dim = self.joint_dim([part.state_dim for part in parts])
        super().__init__(state_dim=state_dim, vocab_size=first.vocab_size, feature_dim=first.feature_dim)
        self.parts = nn.ModuleList(parts)

    def joint_dim(self, dims: list[int]) -> int:
        """Return the state dimension of parts with these dimensions; they add, except in a product."""
        return sum(dims)

    @property
    def families(self) -> tuple[TransitionFamily, ...]:
        """The parts as families."""
        return tuple(part for part in self.parts if isinstance(part, TransitionFamily))

    @property
    def part_dims(self) -> list[int]:
        """The state dimension of each part."""
        return [part.state_dim for part in self.families]

    def arguments(self) -> Mapping[str, Any]:
        """Return what the constructor takes beside the parts."""
        return {}

    def spec(self) -> FamilySpec:
        """Return the specs of the parts under the name of the composite."""
        return FamilySpec(self.name, self.arguments(), tuple(part.spec() for part in self.families))

    def built_parts(self, features: Tensor | None) -> list[Tensor]:
        """Build the matrices of each part."""
        return [part.build(features) for part in self.families]


class BlockComposite(CompositeFamily):
    """A family with its parts as blocks along the diagonal; dimensions add."""

    def start_matrix(self) -> Tensor | None:
        """Place the parts' starts on the diagonal."""
        starts = [start for part in self.families if (start := part.start_matrix()) is not None]
        return torch.block_diag(*starts) if len(starts) == len(self.families) else None

    def start_from(self, raw: Tensor) -> Tensor:
        """Let each part map its own coordinates."""
        pieces = raw.split(self.part_dims)
        return torch.cat([part.start_from(piece) for part, piece in zip(self.families, pieces, strict=True)])

    def placed(self, blocks: list[Tensor]) -> Tensor:
        """Return ``(..., D, D)`` with the blocks on the diagonal."""
        out = blocks[0].new_zeros(*blocks[0].shape[:-2], self.state_dim, self.state_dim)
        begin = 0
        for block in blocks:
            end = begin + block.shape[-1]
            out[..., begin:end, begin:end] = block
            begin = end
        return out

    def coupling_slopes(self) -> list[float]:
        """Return Lipschitz constants of what stands beside the diagonal; here nothing does."""
        return []

    def lipschitz_bound(self) -> float | None:
        """Add the squared constants of the blocks, and take the root."""
        bounds = [bound for part in self.families if (bound := part.lipschitz_bound()) is not None]
        return math.hypot(*bounds, *self.coupling_slopes()) if len(bounds) == len(self.families) else None

    def block_laws(self) -> list[Law]:
        """Return each part's own laws, on its block."""
        laws: list[Law] = []
        begin = 0
        for part in self.families:
            laws += [OnBlock(begin, part.state_dim, law) for law in part.laws()]
            begin += part.state_dim
        return laws
