"""Kernels for the gradient of the matrices: ``Σ δ_t h_{t-1}ᵀ`` per token, ``δ_t h_{t-1}ᵀ`` per position (Triton).

Sums are taken in an order that depends on the shapes alone, so equal runs give equal bits: nothing is added atomically.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def states_before(
    states, initial, starts, place, time, keep, j, D: tl.constexpr, PITCH: tl.constexpr, PACKED: tl.constexpr
):  # fmt: skip
    """Load ``h_{t-1}`` for flat positions ``place (N)``: ``(N, BLOCK)``."""
    position = place % time
    if PACKED:
        document = tl.load(starts + position, mask=keep, other=-1)
        first = document >= 0
    else:
        document = place // time
        first = position == 0
    inner = keep[:, None] & (j < D)[None, :]
    begun = inner & first[:, None]
    earlier = states + ((place - 1).to(tl.int64) * PITCH)[:, None] + j[None, :]
    before = tl.load(earlier, mask=inner & (first == 0)[:, None], other=0.0)
    return before + tl.load(initial + (document * D)[:, None] + j[None, :], mask=begun, other=0.0)


@triton.jit(do_not_specialize=["parts", "size"])
def summed(partial, out, parts, size, LANES: tl.constexpr, TILE: tl.constexpr, ACC: tl.constexpr):
    """Sum ``out[k] = Σ_p partial[p, k]``: ``LANES`` interleaved sums in the order of p, then their sum."""
    k = tl.program_id(0) * TILE + tl.arange(0, TILE)
    lane = tl.arange(0, LANES)
    total = tl.zeros([LANES, TILE], ACC)
    for part in range(0, parts, LANES):
        p = (part + lane)[:, None]
        inside = (p < parts) & (k < size)[None, :]
        total += tl.load(partial + p.to(tl.int64) * size + k[None, :], mask=inside, other=0.0)
    tl.store(out + k, tl.sum(total, 0), mask=k < size)


@triton.jit(do_not_specialize=["begin", "count", "span", "time", "symbols"])
def picked(
    adjoints, states, initial, tokens, mask, starts, chosen, out, begin, count, span, time, symbols,
    D: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr, PITCH: tl.constexpr, MASKED: tl.constexpr,
    PACKED: tl.constexpr, PRECISION: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Sum over some tokens: a program picks one token's positions out of one span, and sums over those.

    The picked positions wait in ``chosen (count)``, behind those of the smaller tokens of the span.
    ``out (spans, symbols, D, D)``; flat positions from ``begin`` on, where ``adjoints`` begin.
    """
    symbol = tl.program_id(0)
    first = tl.program_id(1) * span
    stop = tl.minimum(first + span, count)
    smaller = tl.zeros([], tl.int32)
    for slot in range(first, stop, 512):
        here = slot + tl.arange(0, 512)
        token = _real_token(tokens, mask, begin, here, stop, symbols, MASKED)
        smaller += tl.sum((token < symbol).to(tl.int32))
    place = chosen + first + smaller
    matched = tl.zeros([], tl.int32)
    for slot in range(first, stop, 512):
        here = slot + tl.arange(0, 512)
        mine = (_real_token(tokens, mask, begin, here, stop, symbols, MASKED) == symbol).to(tl.int32)
        tl.store(place + matched + tl.cumsum(mine, 0) - 1, here, mask=mine > 0)
        matched += tl.sum(mine)
    tl.debug_barrier()  # what one thread has stored another reads
    i = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK, BLOCK], ACC)
    for slot in range(0, matched, TILE):
        t = slot + tl.arange(0, TILE)
        held = t < matched
        here = tl.load(place + t, mask=held, other=0)
        before = states_before(states, initial, starts, begin + here, time, held, i, D, PITCH, PACKED)
        adjoint = tl.load(
            adjoints + (here.to(tl.int64) * D)[None, :] + i[:, None], mask=(i < D)[:, None] & held[None, :], other=0.0
        )
        total += tl.dot(adjoint, before, input_precision=PRECISION, out_dtype=ACC)
    target = (tl.program_id(1).to(tl.int64) * symbols + symbol) * (D * D)
    tl.store(out + target + i[:, None] * D + i[None, :], total, mask=(i < D)[:, None] & (i < D)[None, :])


@triton.jit
def _real_token(tokens, mask, begin, here, stop, symbols, MASKED: tl.constexpr):
    """Load the tokens of the flat positions ``begin + here``; ``symbols`` where the step is not real."""
    real = here < stop
    if MASKED:
        real = real & (tl.load(mask + begin + here, mask=real, other=0) != 0)
    return tl.load(tokens + begin + here, mask=real, other=symbols)


@triton.jit(do_not_specialize=["begin", "count", "time"])
def outer(
    adjoints, states, initial, starts, out, begin, count, time,
    D: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr, PACKED: tl.constexpr,
):  # fmt: skip
    """Compute ``out[t] = δ_t h_{t-1}ᵀ`` for a matrix per position."""
    local = tl.program_id(0) * TILE + tl.arange(0, TILE)
    keep = local < count
    place = local + begin
    i = tl.arange(0, BLOCK)
    inner = keep[:, None] & (i < D)[None, :]
    adjoint = tl.load(adjoints + (local.to(tl.int64) * D)[:, None] + i[None, :], mask=inner, other=0.0)
    before = states_before(states, initial, starts, place, time, keep, i, D, D, PACKED)
    where = (place.to(tl.int64) * (D * D))[:, None, None] + (i * D)[None, :, None] + i[None, None, :]
    rows = inner[:, :, None] & (i < D)[None, None, :]
    tl.store(out + where, adjoint[:, :, None] * before[:, None, :], mask=rows)
