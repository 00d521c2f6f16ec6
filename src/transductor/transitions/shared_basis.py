"""Shared-basis transitions mix a few learned matrices, with coefficients per token."""

from __future__ import annotations

import math
from typing import Unpack, final

import torch
from torch import Tensor, nn

from transductor.checks import check_positive
from transductor.kernels.precise import precise_product
from transductor.transitions.base import ChartedFamily, Sizes
from transductor.transitions.laws import Law, SpanRank


@final
class SharedBasisTransitions(ChartedFamily):
    """``Σ_k a_{σ,k} B_k``: V·K coefficients and K·d² numbers for the basis, for large vocabularies.

    The first basis matrix starts near the identity with coefficient 1.

    Args:
        basis_size: Number of basis matrices, K.
    """

    name = "shared_basis"
    options = ("basis_size",)

    def __init__(self, *, basis_size: int = 4, **sizes: Unpack[Sizes]) -> None:
        check_positive("basis_size", basis_size)
        self.basis_size = basis_size
        super().__init__(**sizes)
        noise = torch.randn(basis_size, self.state_dim, self.state_dim) / math.sqrt(self.state_dim)
        noise[0] = self.init_scale * noise[0] / 2 + torch.eye(self.state_dim)
        self.basis = nn.Parameter(noise)

    def origin(self) -> Tensor:
        """Start with the first basis matrix alone."""
        return torch.eye(self.basis_size)[0]

    def default_scale(self) -> float:
        """Return the scale of a coefficient; basis matrices have norm about 2."""
        return 0.05

    def chart(self, raw: Tensor) -> Tensor:
        """Mix the basis."""
        basis = self.basis.to(raw.dtype)
        return precise_product(raw, basis.flatten(1)).reshape(*raw.shape[:-1], *basis.shape[1:])

    def lipschitz_of_chart(self) -> float | None:
        """Return the norm of the flattened basis: the chart is linear in the coefficients."""
        return float(torch.linalg.matrix_norm(self.basis.detach().double().flatten(1), 2))

    def laws(self) -> tuple[Law, ...]:
        """All matrices lie in the span of the basis."""
        return (SpanRank(self.basis_size),)
