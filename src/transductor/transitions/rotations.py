"""What the families of rotations over skew-symmetric matrices have in common."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from transductor.kernels.rotation import skew_dim
from transductor.transitions.base import ChartedFamily
from transductor.transitions.laws import Determinant, Law, Orthogonal


class SkewFamily(ChartedFamily):
    """A chart over skew-symmetric matrices, with ``M ≈ M₀(I + slope·A)`` near A = 0."""

    slope: ClassVar[float]

    def origin(self) -> Tensor:
        """A = 0."""
        return torch.zeros(skew_dim(self.state_dim))

    def default_scale(self) -> float:
        """‖M − M₀‖₂ is about 0.3: a skew matrix with entries of deviation s has norm about 2s√d."""
        return 0.15 / (self.slope * math.sqrt(self.state_dim))

    def lipschitz_of_chart(self) -> float | None:
        """‖A‖_F is √2 times the norm of the raw numbers."""
        return self.slope * math.sqrt(2)


class SignedFamily(SkewFamily):
    """A rotation times ``diag(±1)``, the signs fixed at the start."""

    options = ("negatives",)
    signs: Tensor

    def __init__(
        self,
        *,
        state_dim: int,
        vocab_size: int | None = None,
        feature_dim: int | None = None,
        negatives: int | None = None,
        init_scale: float | None = None,
    ) -> None:
        super().__init__(state_dim=state_dim, vocab_size=vocab_size, feature_dim=feature_dim, init_scale=init_scale)
        self.negatives = min(1, state_dim - 1) if negatives is None else negatives
        if not (isinstance(self.negatives, int) and 0 <= self.negatives <= state_dim):
            raise ValueError(f"negatives must be an integer in [0, state_dim = {state_dim}]; got {negatives!r}")
        signs = torch.ones(state_dim)
        signs[state_dim - self.negatives :] = -1
        self.register_buffer("signs", signs if vocab_size is None else signs.repeat(vocab_size, 1))

    @abstractmethod
    def rotation(self, raw: Tensor) -> Tensor:
        """Raw numbers to rotations ``(..., D, D)``."""

    def chart(self, raw: Tensor) -> Tensor:
        """The rotation with signed columns."""
        return self.rotation(raw) * self.signs.to(raw.dtype).unsqueeze(-2)

    def start_matrix(self) -> Tensor:
        """The signs."""
        return torch.diag(self.signs if self.signs.ndim == 1 else self.signs[0]).float()

    def laws(self) -> tuple[Law, ...]:
        """Orthogonal; the determinant is the product of the signs, certified where all tokens share it."""
        products = self.signs.prod(-1).flatten().unique().tolist()
        return (Orthogonal(), Determinant(int(products[0]))) if len(products) == 1 else (Orthogonal(),)
