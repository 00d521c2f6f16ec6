"""Families over skew-symmetric matrices share their start, and rotations their laws."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar, Unpack

import torch
from torch import Tensor

from transductor.kernels.rotation import skew_dim
from transductor.transitions.base import ChartedFamily, Sizes
from transductor.transitions.laws import Determinant, Law, Orthogonal


class SkewFamily(ChartedFamily):
    """A chart over skew-symmetric matrices, with ``M ≈ M₀(I + slope·A)`` near A = 0."""

    slope: ClassVar[float]

    def origin(self) -> Tensor:
        """Start at A = 0."""
        return torch.zeros(skew_dim(self.state_dim))

    def default_scale(self) -> float:
        """Make ‖M − M₀‖₂ about 0.3: a skew matrix with entries of deviation s has norm about 2s√d."""
        return 0.15 / (self.slope * math.sqrt(self.state_dim))

    def lipschitz_of_chart(self) -> float | None:
        """Return √2 times the slope: ‖A‖_F is √2 times the norm of the raw numbers."""
        return self.slope * math.sqrt(2)


class RotationFamily(SkewFamily):
    """A family of rotations."""

    def laws(self) -> tuple[Law, ...]:
        """Every matrix is orthogonal with det +1."""
        return (Orthogonal(), Determinant(1))


class SignedFamily(SkewFamily):
    """A rotation times ``diag(±1)``, the signs fixed at the start."""

    options = ("negatives",)
    signs: Tensor

    def __init__(self, *, negatives: int | None = None, **sizes: Unpack[Sizes]) -> None:
        super().__init__(**sizes)
        self.negatives = min(1, self.state_dim - 1) if negatives is None else negatives
        if not (isinstance(self.negatives, int) and 0 <= self.negatives <= self.state_dim):
            raise ValueError(f"negatives must be an integer in [0, state_dim = {self.state_dim}]; got {negatives!r}")
        signs = torch.ones(self.state_dim)
        signs[self.state_dim - self.negatives :] = -1
        self.register_buffer("signs", signs if self.vocab_size is None else signs.repeat(self.vocab_size, 1))

    @abstractmethod
    def rotation(self, raw: Tensor) -> Tensor:
        """Map raw numbers to rotations ``(..., D, D)``."""

    def chart(self, raw: Tensor) -> Tensor:
        """Multiply the rotation's columns by the signs."""
        return self.rotation(raw) * self.signs.to(raw.dtype).unsqueeze(-2)

    def start_matrix(self) -> Tensor:
        """Return the signs as a diagonal matrix."""
        return torch.diag(self.signs if self.signs.ndim == 1 else self.signs[0]).float()

    def laws(self) -> tuple[Law, ...]:
        """Every matrix is orthogonal, and its determinant is the product of the signs, where all tokens share it."""
        products = self.signs.prod(-1).flatten().unique().tolist()
        return (Orthogonal(), Determinant(int(products[0]))) if len(products) == 1 else (Orthogonal(),)
