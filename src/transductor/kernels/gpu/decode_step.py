"""The kernel for one decoded token of a head and the projections of its state (Triton)."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def decode_step(
    table,
    classes,
    tokens,
    states,
    weight,
    after,
    terms,
    symbols,
    vocabulary,
    D: tl.constexpr,
    OUTPUTS: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write ``h' = M h`` to ``after (B, D)``, ``weight (OUTPUTS, D) h'`` to ``terms (OUTPUTS / WIDTH, B, WIDTH)``.

    A program for each block of outputs and each row: the step is so small that every one of them takes it.  A token,
    or its class, that the table does not know makes the state NaN, and nothing is read out of bounds.
    """
    row = tl.program_id(1)
    rows = tl.num_programs(1)
    each = tl.arange(0, BLOCK_D)
    letter = tl.load(tokens + row).to(tl.int64) + tl.zeros((BLOCK_D,), tl.int64)  # for each row of the matrix
    if classes is not None:
        listed = (letter >= 0) & (letter < vocabulary)
        letter = tl.where(listed, tl.load(classes + letter, mask=listed, other=0).to(tl.int64), -1)
    known = (letter >= 0) & (letter < symbols)
    i = each[:, None]
    j = each[None, :]
    places = letter[:, None] * (D * D) + i * D + j
    matrix = tl.load(table + places, mask=(i < D) & (j < D) & known[:, None], other=0.0)
    before = tl.load(states + row * D + j, mask=j < D, other=0.0)
    state = tl.where(known, tl.sum(matrix * before, 1), float("nan"))
    if tl.program_id(0) == 0:
        tl.store(after + row * D + each, state, mask=each < D)
    outputs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    coefficients = tl.load(weight + outputs[:, None] * D + j, mask=(outputs[:, None] < OUTPUTS) & (j < D), other=0.0)
    shown = tl.where(each < D, state, 0.0)
    if weight.dtype.element_ty == tl.float64:
        projected = tl.sum(coefficients * shown.to(tl.float64)[None, :], 1)
    else:  # as a linear map would: operands in the precision of the weight, sums in float32
        rounded = shown.to(tl.float32).to(weight.dtype.element_ty).to(tl.float32)
        projected = tl.sum(coefficients.to(tl.float32) * rounded[None, :], 1)
    place = (outputs // WIDTH) * (rows * WIDTH) + row * WIDTH + outputs % WIDTH
    tl.store(terms + place, projected, mask=outputs < OUTPUTS)
