"""A tensor product runs two automata in step; their series are multiplied word by word."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from transductor.transitions.base import Stepper, TransitionFamily
from transductor.transitions.composite import CompositeFamily
from transductor.transitions.laws import (
    KroneckerRank,
    Law,
    SpectralNorm,
    frobenius_bound,
    shared_laws,
    spectral_bound,
)


def _kronecker(left: Tensor, right: Tensor) -> Tensor:
    """Return the batched Kronecker product of ``(..., a, a)`` and ``(..., b, b)``."""
    product = left[..., :, None, :, None] * right[..., None, :, None, :]
    return product.flatten(-4, -3).flatten(-2, -1)


@final
class TensorProduct(CompositeFamily):
    """``M₁ ⊗ M₂``: dimensions multiply.  Nest for more than two factors."""

    name = "tensor_product"

    def __init__(self, left: TransitionFamily, right: TransitionFamily) -> None:
        super().__init__(left, right)

    def joint_dim(self, dims: list[int]) -> int:
        """Multiply the dimensions."""
        return math.prod(dims)

    def build(self, features: Tensor | None) -> Tensor:
        """Take Kronecker products of the parts."""
        return _kronecker(*self.built_parts(features))

    def stepper(self) -> Stepper:
        """Let both factors act on a small matrix through their own steppers: ``(A ⊗ B) vec(H) = vec(A H Bᵀ)``."""
        a, b = self.part_dims

        def step(state: Tensor, drive: Tensor, advances: Sequence[Stepper]) -> Tensor:
            left, right = advances
            # Rows are the right factor's states, columns the left's; each acts on its own axis.
            square = state.unflatten(-1, (a, b))
            square = right(square.flatten(0, 1), drive.repeat_interleave(a, 0)).unflatten(0, (-1, a))
            columns = square.mT.flatten(0, 1)
            moved: Tensor = left(columns, drive.repeat_interleave(b, 0)).unflatten(0, (-1, b))
            return moved.mT.flatten(-2)

        return Stepper.of_parts([part.stepper() for part in self.families], step)

    def step_cost(self) -> int:
        """Count each factor once per state of the other."""
        (left, right), (a, b) = self.families, self.part_dims
        return b * left.step_cost() + a * right.step_cost()

    def start_matrix(self) -> Tensor | None:
        """Return the Kronecker product of the starts."""
        left, right = (part.start_matrix() for part in self.families)
        return None if left is None or right is None else torch.kron(left, right)

    def start_from(self, raw: Tensor) -> Tensor:
        """Return the product of the parts' starts; where no part restricts its start, the raw numbers themselves."""
        left, right = self.families
        if all(type(part).start_from is TransitionFamily.start_from for part in (left, right)):
            return raw
        square = raw.unflatten(0, (left.state_dim, right.state_dim))
        # Sums over one axis, scaled to keep the size of the raw numbers.
        left_start = left.start_from(square.sum(1) / math.sqrt(right.state_dim))
        right_start = right.start_from(square.sum(0) / math.sqrt(left.state_dim))
        return torch.kron(left_start, right_start)

    def lipschitz_bound(self) -> float | None:
        """Bound d(A ⊗ B) = dA ⊗ B + A ⊗ dB, with ‖A‖_F ≤ √d ‖A‖₂, where laws bound both norms."""
        left, right = (part.lipschitz_bound() for part in self.families)
        of_left, of_right = (frobenius_bound(part.laws(), part.state_dim) for part in self.families)
        if left is None or right is None or of_left is None or of_right is None:
            return None
        return left * of_right + of_left * right

    def laws(self) -> tuple[Law, ...]:
        """The matrix is a Kronecker product, and what both factors share holds."""
        parts = [part.laws() for part in self.families]
        laws: list[Law] = [KroneckerRank(*self.part_dims)]
        laws += shared_laws(parts, lambda law, others: law.of_tensor_product(others))
        bounds = [spectral_bound(part) for part in parts]
        if bounds[0] is not None and bounds[1] is not None:
            laws.append(SpectralNorm(bounds[0] * bounds[1]))
        return tuple(laws)
