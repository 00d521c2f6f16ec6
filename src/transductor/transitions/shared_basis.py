"""F9: few matrices, mixed per token."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor, nn

from transductor.checks import check_positive
from transductor.kernels.precise import precise_product
from transductor.transitions.base import ChartedFamily
from transductor.transitions.laws import Law, SpanRank


@final
class SharedBasisTransitions(ChartedFamily):
    """``Σ_k a_{σ,k} B_k``: V·K coefficients and K·d² numbers for the basis, for large vocabularies.

    The first basis matrix starts near the identity with coefficient 1.
    """

    name = "shared_basis"
    options = ("basis_size",)

    def __init__(
        self,
        *,
        state_dim: int,
        vocab_size: int | None = None,
        feature_dim: int | None = None,
        basis_size: int = 4,
        init_scale: float | None = None,
    ) -> None:
        check_positive("basis_size", basis_size)
        self.basis_size = basis_size
        super().__init__(state_dim=state_dim, vocab_size=vocab_size, feature_dim=feature_dim, init_scale=init_scale)
        noise = torch.randn(basis_size, state_dim, state_dim) / math.sqrt(state_dim)
        noise[0] = self.init_scale * noise[0] / 2 + torch.eye(state_dim)
        self.basis = nn.Parameter(noise)

    def origin(self) -> Tensor:
        """Only the first basis matrix."""
        return torch.eye(self.basis_size)[0]

    def default_scale(self) -> float:
        """Of a coefficient; basis matrices have norm about 2."""
        return 0.05

    def chart(self, raw: Tensor) -> Tensor:
        """The mixture."""
        basis = self.basis.to(raw.dtype)
        return precise_product(raw, basis.flatten(1)).reshape(*raw.shape[:-1], *basis.shape[1:])

    def lipschitz_of_chart(self) -> float | None:
        """Linear in the coefficients: the norm of the flattened basis."""
        return float(torch.linalg.matrix_norm(self.basis.detach().double().flatten(1), 2))

    def laws(self) -> tuple[Law, ...]:
        """All matrices lie in the span of the basis."""
        return (SpanRank(self.basis_size),)
