"""A cascade is a chain of automata in which each one drives the next."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, final

import torch
from torch import Tensor, nn

from transductor.checks import working_dtype
from transductor.kernels.precise import precise_product
from transductor.transitions.base import Stepper, TransitionFamily, matvec
from transductor.transitions.composite import BlockComposite
from transductor.transitions.laws import BlockTriangular, Law


@final
class Cascade(BlockComposite):
    """Block lower triangular: ``h²_t = M²_{x_t} h²_{t−1} + C_{x_t} h¹_{t−1}``, each part coupled to the one before.

    A part always reads the *previous* state of its predecessor, as in the paper's block matrix.  Couplings are per
    token (or an affine map of features) and start near zero.
    """

    name = "cascade"

    def __init__(self, *parts: TransitionFamily, init_scale: float = 0.02) -> None:
        super().__init__(*parts)
        if not (isinstance(init_scale, (int, float)) and 0 <= init_scale < math.inf):
            raise ValueError(f"init_scale must be a finite number ≥ 0; got {init_scale!r}")
        self.init_scale = init_scale
        sizes = [later.state_dim * earlier.state_dim for earlier, later in pairwise(parts)]
        self.couplings = nn.ParameterList()
        for size, (earlier, later) in zip(sizes, pairwise(parts), strict=True):
            scale = init_scale / math.sqrt(max(earlier.state_dim, later.state_dim))
            rows = self.vocab_size if self.feature_dim is None else self.feature_dim + 1
            assert rows is not None
            self.couplings.append(nn.Parameter(scale * torch.randn(rows, size)))

    def _coupling(self, index: int, features: Tensor | None) -> Tensor:
        """Return the coupling of a part to its successor: ``(V, d₂, d₁)`` or ``(..., d₂, d₁)``."""
        parameter = self.couplings[index]
        raw: Tensor = parameter.to(working_dtype(parameter.dtype))
        if features is not None:
            raw = precise_product(features.to(raw.dtype), raw[:-1]) + raw[-1]
        return raw.reshape(*raw.shape[:-1], self.part_dims[index + 1], self.part_dims[index])

    def build(self, features: Tensor | None) -> Tensor:
        """Place the parts on the diagonal and the couplings below."""
        out = self.placed(self.built_parts(features))
        before = 0
        for index, (earlier, later) in enumerate(pairwise(self.part_dims)):
            begin = before + earlier
            out[..., begin : begin + later, before:begin] = self._coupling(index, features)
            before = begin
        return out

    def stepper(self) -> Stepper:
        """Step each part by itself and add the coupling to its predecessor's previous state."""
        dims = self.part_dims
        tables = () if self.vocab_size is None else [self._coupling(i, None) for i in range(len(dims) - 1)]

        def step(state: Tensor, drive: Tensor, advances: Sequence[Stepper], *tables: Tensor) -> Tensor:
            before = state.split(dims, -1)
            after = []
            for index, (advance, part) in enumerate(zip(advances, before, strict=True)):
                moved = advance(part, drive)
                if index:
                    i = index - 1
                    coupling = tables[i].index_select(0, drive) if tables else self._coupling(i, drive)
                    moved = moved + matvec(coupling, before[i])
                after.append(moved)
            return torch.cat(after, -1)

        return Stepper.of_parts([part.stepper() for part in self.families], step, *tables)

    def step_cost(self) -> int:
        """Add up the parts and the couplings."""
        return sum(part.step_cost() for part in self.families) + sum(a * b for a, b in pairwise(self.part_dims))

    def coupling_slopes(self) -> list[float]:
        """Return the norm of each coupling as a linear map of the features."""
        linear = [] if self.feature_dim is None else [coupling.detach().double()[:-1] for coupling in self.couplings]
        return [float(torch.linalg.matrix_norm(weight, 2)) if weight.numel() else 0.0 for weight in linear]

    def arguments(self) -> Mapping[str, Any]:
        """Return the scale of the couplings."""
        return {"init_scale": self.init_scale}

    def laws(self) -> tuple[Law, ...]:
        """The matrix is block triangular, and each part's laws hold on its block."""
        return (BlockTriangular(tuple(self.part_dims), 1), *self.block_laws())
