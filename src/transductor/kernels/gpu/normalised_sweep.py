"""The normalised recurrence over many chunks at once, and its adjoint (Triton); a program takes one chunk.

The matrix of a step is read as one tile, and the state it is multiplied with lies along its columns.  No sum leaves
the program, which for d ≤ 64 in float32 is a single warp, so that nothing waits at a barrier.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _norm(state, KIND: tl.constexpr):
    """Return the l1 (1), l2 (2) or largest (3) norm of a state, as one number."""
    if KIND == 1:
        size = tl.sum(tl.abs(state), 0)
    elif KIND == 2:
        largest = tl.max(tl.abs(state), 0)
        safe = tl.where(largest > 0, largest, 1.0)
        ratio = state / safe
        size = largest * tl.sqrt(tl.sum(ratio * ratio, 0))
    else:
        size = tl.max(tl.abs(state), 0)
        size = tl.where(tl.sum(state, 0) == tl.sum(state, 0), size, float("nan"))  # a maximum forgets NaN
    return size


@triton.jit
def _exponent(size, ACC: tl.constexpr):
    """Return e such that ``size · 2^-e`` is near 1, and ``2^-e``; 0 for size 0, and at most 126 in absolute value."""
    if tl.float64 == ACC:
        power = (size.to(tl.int64, bitcast=True) >> 52 & 2047) - 1022
        power = tl.where(size == 0, 0, tl.minimum(tl.maximum(power, -1000), 1000))
        factor = (1023 - power << 52).to(tl.float64, bitcast=True)
    else:
        power = (size.to(tl.int32, bitcast=True) >> 23 & 255) - 126
        power = tl.where(size == 0, 0, tl.minimum(tl.maximum(power, -126), 126))
        factor = (127 - power << 23).to(tl.float32, bitcast=True)
    return power.to(tl.int32), factor


@triton.jit
def _matrix(
    matrices, tokens, place, i, j, symbols, D: tl.constexpr, BLOCK: tl.constexpr, ACC: tl.constexpr, DENSE: tl.constexpr
):
    """Load the matrix of a position, ``(to, from)``, and whether its token is one of the table's."""
    if DENSE:
        which = place
        known = place >= 0
    else:
        which = tl.load(tokens + place).to(tl.int64)
        known = (which >= 0) & (which < symbols)
        which = tl.where(known, which, 0)
    address = matrices + which * D * D + i[:, None] * D + j[None, :]
    if D == BLOCK:
        matrix = tl.load(address).to(ACC)
    else:
        matrix = tl.load(address, mask=(i < D)[:, None] & (j < D)[None, :], other=0.0).to(ACC)
    return matrix, known


@triton.jit(do_not_specialize=["chunks", "time", "length", "warm", "symbols"])
def advance(
    matrices, tokens, rows, starts, states, norms, powers, ends,
    chunks, time, length, warm, symbols,
    D: tl.constexpr, BLOCK: tl.constexpr, KIND: tl.constexpr, ACC: tl.constexpr, DENSE: tl.constexpr,
    WRITES: tl.constexpr, LIMIT: tl.constexpr,
):  # fmt: skip
    """Advance every chunk from its start, and write where it ends, scaled by a power of two.

    With ``WRITES`` all states, divided by their norms, the norms and the powers of two that were taken out since the
    chunk began; without, only the last ``warm`` steps of each chunk are taken.
    """
    lane = tl.program_id(0).to(tl.int64)
    row = tl.load(rows + lane // chunks).to(tl.int64)
    chunk = lane % chunks
    begin = chunk * length
    end = tl.minimum(begin + length, time)
    if not WRITES:
        begin = tl.maximum(begin, end - warm)
    i = tl.arange(0, BLOCK)
    j = tl.arange(0, BLOCK)
    state = tl.load(starts + (row * chunks + chunk) * D + j, mask=j < D, other=0.0).to(ACC)
    taken = tl.zeros((), tl.int32)
    for t in range(begin, end):
        place = row * time + t
        matrix, known = _matrix(matrices, tokens, place, i, j, symbols, D, BLOCK, ACC, DENSE)
        state = tl.sum(matrix * state[None, :], 1)
        state = tl.where(known | (i >= D), state, float("nan"))
        power, factor = _exponent(_norm(state, KIND), ACC)
        state = state * factor
        taken += power
        if WRITES:
            size = _norm(state, KIND)
            tl.store(states + place * D + i, state / tl.where(size == 0, 1.0, size), mask=i < D)
            tl.store(norms + place, size)
            tl.store(powers + place, taken)
    tl.store(ends + (row * chunks + chunk) * D + i, state, mask=i < D)


@triton.jit
def _cut(adjoint, LIMIT: tl.constexpr):
    """Cut an adjoint where it would overflow later; NaN stays."""
    return tl.where(adjoint > LIMIT, LIMIT, tl.where(adjoint < -LIMIT, -LIMIT, adjoint))


@triton.jit
def _slope(state, KIND: tl.constexpr):
    """Return the (sub)gradient of the norm at a normalised state."""
    if KIND == 1:
        slope = tl.where(state >= 0, 1.0, -1.0)
    elif KIND == 2:
        slope = state
    else:
        sizes = tl.abs(state)
        largest = sizes == tl.max(sizes, 0)
        sign = tl.where(state > 0, 1.0, tl.where(state < 0, -1.0, 0.0))
        slope = tl.where(largest, sign, 0.0) / tl.sum(largest.to(state.dtype), 0)
    return slope


@triton.jit(do_not_specialize=["chunks", "time", "length", "warm", "symbols"])
def retreat(
    matrices, tokens, rows, starts, grad, states, totals, inverse, adjoints, ends,
    chunks, time, length, warm, symbols,
    D: tl.constexpr, BLOCK: tl.constexpr, KIND: tl.constexpr, ACC: tl.constexpr, DENSE: tl.constexpr,
    WRITES: tl.constexpr, LIMIT: tl.constexpr,
):  # fmt: skip
    """Go back through every chunk from the adjoint at its end, and write what leaves it at its beginning.

    With ``WRITES`` all adjoints ``q_t``; without, only the first ``warm`` steps of each chunk are gone through.
    """
    lane = tl.program_id(0).to(tl.int64)
    row = tl.load(rows + lane // chunks).to(tl.int64)
    chunk = lane % chunks
    begin = chunk * length
    end = tl.minimum(begin + length, time)
    if not WRITES:
        end = tl.minimum(end, begin + warm)
    i = tl.arange(0, BLOCK)
    j = tl.arange(0, BLOCK)
    inside = i < D
    incoming = tl.load(starts + (row * chunks + chunk) * D + i, mask=inside, other=0.0).to(ACC)
    for back in range(end - begin):
        place = row * time + end - 1 - back
        matrix, _ = _matrix(matrices, tokens, place, i, j, symbols, D, BLOCK, ACC, DENSE)
        state = tl.load(states + place * D + i, mask=inside, other=0.0)
        pulled = tl.load(grad + place * D + i, mask=inside, other=0.0) + incoming
        along = tl.load(totals + place) - tl.sum(state * pulled, 0)
        slope = tl.where(inside, _slope(state, KIND), 0.0)
        adjoint = _cut((pulled + along * slope) * tl.load(inverse + place), LIMIT)
        if WRITES:
            tl.store(adjoints + place * D + i, adjoint, mask=inside)
        incoming = _cut(tl.sum(matrix * adjoint[:, None], 0), LIMIT)
    tl.store(ends + (row * chunks + chunk) * D + j, incoming, mask=j < D)
