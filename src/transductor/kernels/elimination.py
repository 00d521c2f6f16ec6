"""Cayley rotations of many small skew matrices at once (Triton)."""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["cayley_rotations"]


@triton.jit
def cayley_rotations(skews, out, D: tl.constexpr, BLOCK: tl.constexpr):
    """``(I + A)(I − A)⁻¹ = 2(I − A)⁻¹ − I``, one program per matrix: Gauss–Jordan elimination in float64.

    The symmetric part of I − A is the identity, so no pivot vanishes and none is searched for; what that costs in
    digits when A is large, one Newton step for the inverse brings back.
    """
    begin = tl.program_id(0).to(tl.int64) * (D * D)
    i = tl.arange(0, BLOCK)[:, None]
    j = tl.arange(0, BLOCK)[None, :]
    inner = (i < D) & (j < D)
    eye = (i == j).to(tl.float64)
    matrix = eye - tl.load(skews + begin + i * D + j, mask=inner, other=0.0).to(tl.float64)
    left = matrix
    inverse = eye
    for k in range(D):
        column = tl.sum(tl.where(j == k, left, 0.0), 1)[:, None]
        row = tl.sum(tl.where(i == k, left, 0.0), 0)[None, :]
        answers = tl.sum(tl.where(i == k, inverse, 0.0), 0)[None, :]
        pivot = tl.sum(tl.sum(tl.where((i == k) & (j == k), left, 0.0), 1), 0)
        # Every row but the k-th loses its k-th column; the k-th is divided by its pivot.
        factor = tl.where(i == k, 1.0 - 1.0 / pivot, column / pivot)
        left = left - factor * row
        inverse = inverse - factor * answers
    residual = 2.0 * eye - tl.dot(matrix, inverse, input_precision="ieee", out_dtype=tl.float64)
    inverse = tl.dot(inverse, residual, input_precision="ieee", out_dtype=tl.float64)
    tl.store(out + begin + i * D + j, 2.0 * inverse - eye, mask=inner)
