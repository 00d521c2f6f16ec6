"""Kernels for the gradient of the matrices: ``Σ δ_t h_{t-1}ᵀ`` per token, ``δ_t h_{t-1}ᵀ`` per position (Triton).

Sums are taken in an order that depends on the shapes alone, so equal runs give equal bits: nothing is added atomically.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def states_before(states, initial, starts, place, time, keep, j, D: tl.constexpr, PACKED: tl.constexpr):
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
    earlier = states + ((place - 1).to(tl.int64) * D)[:, None] + j[None, :]
    before = tl.load(earlier, mask=inner & (first == 0)[:, None], other=0.0)
    return before + tl.load(initial + (document * D)[:, None] + j[None, :], mask=begun, other=0.0)


@triton.jit
def _position(
    adjoints, states, initial, tokens, mask, starts, row, position, begin, inside, time, i, j,
    D: tl.constexpr, MASKED: tl.constexpr, PACKED: tl.constexpr,
):  # fmt: skip
    """Load the token (-1 if the step is not real), ``δ_t[i]``, ``h_{t-1}[j … j+3]`` and ``h_{t-1}[j+4 … j+7]``."""
    place = row * time + position
    if MASKED:
        inside = inside & (tl.load(mask + place, mask=inside, other=0) != 0)
    token = tl.load(tokens + place, mask=inside, other=-1).to(tl.int32)
    document = row
    first = position == 0
    if PACKED:
        document = tl.load(starts + position, mask=inside, other=-1).to(tl.int64)
        first = document >= 0
    before = tl.where(first, initial + document * D, states + (place - 1) * D)
    four = j[:, None] + tl.arange(0, 4)[None, :]
    width = tl.where(inside, D, 0)
    adjoint = tl.load(adjoints + (place - begin) * D + i, mask=i < width, other=0.0)
    low = tl.load(before + four, mask=four < width, other=0.0)
    high = tl.load(before + four + 4, mask=four + 4 < width, other=0.0)
    return token, adjoint, low, high


@triton.jit
def _added(sums, token, adjoint, low, high, FIRST: tl.constexpr, COUNT: tl.constexpr):
    """Add one position to the sum of its token, by a tree of branches that all threads take together."""
    if COUNT == 1:
        changed = ()
        for part in tl.static_range(len(sums)):
            if part == 2 * FIRST:
                changed = changed + (sums[part] + adjoint * low,)
            elif part == 2 * FIRST + 1:
                changed = changed + (sums[part] + adjoint * high,)
            else:
                changed = changed + (sums[part],)
        sums = changed
    else:
        HALF: tl.constexpr = COUNT // 2
        if token < FIRST + HALF:
            sums = _added(sums, token, adjoint, low, high, FIRST, HALF)
        else:
            sums = _added(sums, token, adjoint, low, high, FIRST + HALF, COUNT - HALF)
    return sums


@triton.jit(do_not_specialize=["first_row", "spans", "span", "begin", "end", "time"])
def switched(
    adjoints, states, initial, tokens, mask, starts, out, first_row, spans, span, begin, end, time,
    D: tl.constexpr, BLOCK: tl.constexpr, SYMBOLS: tl.constexpr, AHEAD: tl.constexpr, MASKED: tl.constexpr,
    PACKED: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Sum over few tokens: a program goes through one span of a row and keeps a sum for every token in registers.

    A thread owns eight columns of one row of every sum.  ``out (programs, SYMBOLS, D, D)``; only the flat positions
    from ``begin`` to ``end`` count, and ``adjoints`` begin there.
    """
    pid = tl.program_id(0)
    row = (first_row + pid // spans).to(tl.int64)
    start = tl.maximum((pid % spans) * span, begin - row * time)
    stop = tl.minimum(tl.minimum((pid % spans) * span + span, time), end - row * time)
    r = tl.arange(0, BLOCK * BLOCK // 8)
    i = r // (BLOCK // 8)
    j = (r % (BLOCK // 8)) * 8
    sums = ()
    for _ in tl.static_range(2 * SYMBOLS):
        sums = sums + (tl.zeros([BLOCK * BLOCK // 8, 4], ACC),)
    upcoming = ()
    for ahead in tl.static_range(AHEAD):
        upcoming = upcoming + (
            _position(
                adjoints, states, initial, tokens, mask, starts, row, start + ahead, begin, start + ahead < stop,
                time, i, j, D, MASKED, PACKED,
            ),
        )  # fmt: skip
    for step in range(0, stop - start, AHEAD):
        current = upcoming
        upcoming = ()
        for ahead in tl.static_range(AHEAD):
            position = start + step + AHEAD + ahead
            upcoming = upcoming + (
                _position(
                    adjoints, states, initial, tokens, mask, starts, row, position, begin, position < stop,
                    time, i, j, D, MASKED, PACKED,
                ),
            )  # fmt: skip
        for ahead in tl.static_range(AHEAD):
            token, adjoint, low, high = current[ahead]
            sums = _added(sums, token, adjoint.to(ACC)[:, None], low.to(ACC), high.to(ACC), 0, SYMBOLS)
    four = j[:, None] + tl.arange(0, 4)[None, :]
    for symbol in tl.static_range(SYMBOLS):
        begins = (pid.to(tl.int64) * SYMBOLS + symbol) * (D * D) + (i * D)[:, None]
        rows = (i < D)[:, None]
        tl.store(out + begins + four, sums[2 * symbol], mask=rows & (four < D))
        tl.store(out + begins + four + 4, sums[2 * symbol + 1], mask=rows & (four + 4 < D))


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
    D: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr, MASKED: tl.constexpr, PACKED: tl.constexpr,
    PRECISION: tl.constexpr, ACC: tl.constexpr,
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
        before = states_before(states, initial, starts, begin + here, time, held, i, D, PACKED)
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
    before = states_before(states, initial, starts, place, time, keep, i, D, PACKED)
    where = (place.to(tl.int64) * (D * D))[:, None, None] + (i * D)[None, :, None] + i[None, None, :]
    rows = inner[:, :, None] & (i < D)[None, None, :]
    tl.store(out + where, adjoint[:, :, None] * before[:, None, :], mask=rows)
