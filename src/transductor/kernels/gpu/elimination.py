"""Kernels for Cayley rotations of many small skew matrices, and for their gradients (Triton)."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _place(i, j, D: tl.constexpr):
    """Return the index of entry ``(i, j)``, i < j < D, among the D(D−1)/2 above the diagonal, row by row."""
    return i * D - i * (i + 1) // 2 + j - i - 1


@triton.jit
def _inverse(matrix, i, j, D: tl.constexpr):
    """Invert by Gauss–Jordan elimination, in the precision of ``matrix``, without a search for pivots."""
    for k in range(D):
        column = tl.sum(tl.where(j == k, matrix, 0.0), 1)[:, None]
        row = tl.sum(tl.where(i == k, matrix, 0.0), 0)[None, :]
        factor = 1.0 / tl.sum(tl.sum(tl.where(j == k, row, 0.0), 1), 0)
        scaled = row * factor
        # The k-th row is divided by its pivot, every other loses its k-th column; what they do to I takes its place.
        others = tl.where(j == k, -column * factor, matrix - column * scaled)
        matrix = tl.where(i == k, tl.where(j == k, factor, scaled), others)
    return matrix


@triton.jit
def cayley_rotations(raw, out, squares, D: tl.constexpr, BLOCK: tl.constexpr):
    """Compute ``(I + A)(I − A)⁻¹ = 2(I − A)⁻¹ − I``, one program per matrix.

    The symmetric part of I − A is the identity, so no pivot vanishes.  What elimination costs in digits, a step of
    third order for the inverse X, ``X(I + R + R²)`` with ``R = I − (I − A)X`` in float64, and one towards the nearest
    orthogonal matrix bring back.  Elimination is done in the precision of ``raw``; where A is so large that float32
    leaves an R above 2⁻¹⁴, again in float64.

    A is given by its entries ``raw`` above the diagonal, row by row.  ``squares``, if given, receives the squares of
    the rotations.
    """
    begin = tl.program_id(0).to(tl.int64) * (D * D)
    raw += tl.program_id(0).to(tl.int64) * (D * (D - 1) // 2)
    i = tl.arange(0, BLOCK)[:, None]
    j = tl.arange(0, BLOCK)[None, :]
    inner = (i < D) & (j < D)
    eye = (i == j).to(tl.float64)
    upper = tl.load(raw + _place(i, j, D), mask=inner & (i < j), other=0.0)
    matrix = eye - (upper - tl.trans(upper)).to(tl.float64)
    inverse = _inverse(matrix.to(raw.dtype.element_ty), i, j, D).to(tl.float64)
    residual = eye - tl.dot(matrix, inverse, input_precision="ieee", out_dtype=tl.float64)
    if raw.dtype.element_ty != tl.float64:
        if tl.max(tl.max(tl.abs(residual), 1), 0) > 6.103515625e-05:
            inverse = _inverse(matrix, i, j, D)
            residual = eye - tl.dot(matrix, inverse, input_precision="ieee", out_dtype=tl.float64)
    residual += tl.dot(residual, residual, input_precision="ieee", out_dtype=tl.float64)
    inverse += tl.dot(inverse, residual, input_precision="ieee", out_dtype=tl.float64)
    rotation = 2.0 * inverse - eye
    excess = 1.5 * eye - 0.5 * tl.dot(tl.trans(rotation), rotation, input_precision="ieee", out_dtype=tl.float64)
    rotation = tl.dot(rotation, excess, input_precision="ieee", out_dtype=tl.float64)
    tl.store(out + begin + i * D + j, rotation, mask=inner)
    if squares is not None:
        square = tl.dot(rotation, rotation, input_precision="ieee", out_dtype=tl.float64)
        tl.store(squares + begin + i * D + j, square, mask=inner)


@triton.jit
def cayley_gradients(rotations, grads, out, D: tl.constexpr, BLOCK: tl.constexpr, SQUARED: tl.constexpr):
    """Compute the gradient of A from G, that of ``C`` (``SQUARED``: of ``C²``): ``½ (I + C)ᵀ G (I + C)ᵀ``, in float64.

    ``out`` receives the gradient of the entries of A above the diagonal, whose negatives stand below it.
    """
    begin = tl.program_id(0).to(tl.int64) * (D * D)
    out += tl.program_id(0).to(tl.int64) * (D * (D - 1) // 2)
    i = tl.arange(0, BLOCK)[:, None]
    j = tl.arange(0, BLOCK)[None, :]
    inner = (i < D) & (j < D)
    transposed = tl.load(rotations + begin + j * D + i, mask=inner, other=0.0).to(tl.float64)
    grad = tl.load(grads + begin + i * D + j, mask=inner, other=0.0).to(tl.float64)
    if SQUARED:
        outer = tl.dot(grad, transposed, input_precision="ieee", out_dtype=tl.float64)
        grad = outer + tl.dot(transposed, grad, input_precision="ieee", out_dtype=tl.float64)
    side = (i == j).to(tl.float64) + transposed
    half = 0.5 * tl.dot(side, grad, input_precision="ieee", out_dtype=tl.float64)
    to_skews = tl.dot(half, side, input_precision="ieee", out_dtype=tl.float64)
    tl.store(out + _place(i, j, D), to_skews - tl.trans(to_skews), mask=inner & (i < j))
