"""Maps from skew-symmetric matrices to rotations, shared by the orthogonal families."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["cayley", "skew", "skew_dim", "small_rotation", "start_signs"]


def skew_dim(state_dim: int) -> int:
    """Free numbers of a skew-symmetric matrix: d(d−1)/2."""
    return state_dim * (state_dim - 1) // 2


def skew(raw: Tensor, state_dim: int) -> Tensor:
    """``(..., d(d−1)/2)`` to skew-symmetric ``(..., d, d)``; ‖A‖_F = √2 ‖raw‖."""
    rows, columns = torch.triu_indices(state_dim, state_dim, 1, device=raw.device)
    upper = raw.new_zeros(*raw.shape[:-1], state_dim, state_dim)
    upper[..., rows, columns] = raw
    return upper - upper.mT


def cayley(skew_matrices: Tensor) -> Tensor:
    """``(I + A)(I − A)⁻¹``: a rotation without eigenvalue −1.  Lipschitz constant 2."""
    eye = torch.eye(skew_matrices.shape[-1], dtype=skew_matrices.dtype, device=skew_matrices.device)
    # I + A and (I − A)⁻¹ commute, so one solve from the left suffices.
    rotation: Tensor = torch.linalg.solve(eye - skew_matrices, eye + skew_matrices)
    return rotation


def small_rotation(state_dim: int, slope: float) -> float:
    """Noise for raw numbers such that ‖M − I‖₂ is about 0.3, where M ≈ I + slope·A.

    A skew matrix with entries of deviation s has norm about 2s√d.
    """
    return 0.15 / (slope * math.sqrt(state_dim))


def start_signs(state_dim: int, vocab_size: int | None, negatives: int) -> Tensor:
    """``(V, D)`` (features: ``(D)``) of ones, the last ``negatives`` coordinates −1."""
    if not (isinstance(negatives, int) and 0 <= negatives <= state_dim):
        raise ValueError(f"negatives must be an integer in [0, state_dim = {state_dim}]; got {negatives!r}")
    signs = torch.ones(state_dim)
    signs[state_dim - negatives :] = -1
    return signs if vocab_size is None else signs.repeat(vocab_size, 1)
