"""The gradient of a large table: positions sorted by token, and sums over runs of equal tokens (Triton).

Nothing is added atomically: a run that crosses the edge of a tile leaves a part in each, and they are summed in order.
"""

from __future__ import annotations

import triton
import triton.language as tl

from transductor.kernels.gpu.gradients import states_before


@triton.jit(do_not_specialize=["begin", "count", "symbols", "lowest"])
def sorting_keys(
    tokens, mask, out, begin, count, symbols, lowest, TILE: tl.constexpr, MASKED: tl.constexpr
):  # fmt: skip
    """Write what positions are sorted by: their token plus ``lowest``; V in its place where it is unknown or masked."""
    slot = tl.program_id(0) * TILE + tl.arange(0, TILE)
    held = slot < count
    place = begin + slot.to(tl.int64)
    real = held
    if MASKED:
        real = real & (tl.load(mask + place, mask=held, other=0) != 0)
    token = tl.load(tokens + place, mask=real, other=symbols)
    key = tl.where((token >= 0) & (token < symbols), token, symbols).to(tl.int32) + lowest
    tl.store(out + slot, key, mask=held)


@triton.jit
def _gathered(
    adjoints, states, initial, starts, order, slot, stop, begin, time, i, j, D: tl.constexpr, PITCH: tl.constexpr,
    PACKED: tl.constexpr,
):  # fmt: skip
    """Load ``δ_t[i]``, ``h_{t-1}[j … j+3]`` and ``h_{t-1}[j+4 … j+7]`` of a place in the order."""
    held = slot < stop
    here = tl.load(order + slot, mask=held, other=0)
    place = here + begin
    document = place // time
    first = place % time == 0
    if PACKED:
        document = tl.load(starts + place, mask=held, other=-1).to(tl.int64)
        first = document >= 0
    before = tl.where(first, initial + document * D, states + (place - 1) * PITCH)
    width = tl.where(held, D, 0)
    four = j[:, None] + tl.arange(0, 4)[None, :]
    adjoint = tl.load(adjoints + here * D + i, mask=i < width, other=0.0)
    low = tl.load(before + four, mask=four < width, other=0.0)
    high = tl.load(before + four + 4, mask=four + 4 < width, other=0.0)
    return adjoint, low, high


@triton.jit
def _put(target, low, high, i, j, width):
    """Store the sum that a thread holds eight columns of; ``width`` 0 stores nothing."""
    four = j[:, None] + tl.arange(0, 4)[None, :]
    rows = (i < width)[:, None]
    tl.store(target + four, low, mask=rows & (four < width))
    tl.store(target + four + 4, high, mask=rows & (four + 4 < width))


@triton.jit(do_not_specialize=["begin", "count", "time", "symbols", "lowest"])
def short_runs(
    adjoints, states, initial, starts, order, keys, out, edges, begin, count, time, symbols, lowest,
    D: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr, AHEAD: tl.constexpr, PITCH: tl.constexpr,
    PACKED: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Sum over runs of a few positions: a program goes through a tile of them in order.

    A run inside the tile is finished; one that crosses its edge leaves its part in ``edges[tile, 0]`` (begun before)
    or ``edges[tile, 1]`` (begun here).
    """
    tile = tl.program_id(0)
    origin = tile * TILE
    stop = tl.minimum(origin + TILE, count)
    r = tl.arange(0, BLOCK * BLOCK // 8)
    i = r // (BLOCK // 8)
    j = (r % (BLOCK // 8)) * 8
    at = (i * D)[:, None]
    beside = edges + tile.to(tl.int64) * (2 * D * D) + at
    earlier = tl.load(keys + origin - 1, mask=tile > 0, other=0).to(tl.int32) - lowest
    following = tl.load(keys + stop, mask=stop < count, other=0).to(tl.int32) - lowest
    current = tl.load(keys + origin).to(tl.int32) - lowest
    begun = ((tile > 0) & (current == earlier)).to(tl.int32)
    low_sum = tl.zeros([BLOCK * BLOCK // 8, 4], ACC)
    high_sum = tl.zeros([BLOCK * BLOCK // 8, 4], ACC)
    upcoming = ()
    for ahead in tl.static_range(AHEAD):
        upcoming = upcoming + (
            _gathered(
                adjoints, states, initial, starts, order, origin + ahead, stop, begin, time, i, j, D, PITCH, PACKED
            ),
        )  # fmt: skip
    for slot in range(origin, stop, AHEAD):
        held = upcoming
        upcoming = ()
        for ahead in tl.static_range(AHEAD):
            upcoming = upcoming + (
                _gathered(
                    adjoints, states, initial, starts, order, slot + AHEAD + ahead, stop, begin, time, i, j,
                    D, PITCH, PACKED,
                ),
            )  # fmt: skip
        for ahead in tl.static_range(AHEAD):
            token = current
            if slot + ahead < stop:
                token = tl.load(keys + slot + ahead).to(tl.int32) - lowest
            if token != current:
                width = tl.where(current < symbols, D, 0)
                _put(beside, low_sum, high_sum, i, j, tl.where(begun > 0, width, 0))
                _put(
                    out + current.to(tl.int64) * (D * D) + at, low_sum, high_sum, i, j, tl.where(begun > 0, 0, width)
                )  # fmt: skip
                low_sum = tl.zeros_like(low_sum)
                high_sum = tl.zeros_like(high_sum)
                begun = tl.zeros_like(begun)
                current = token
            adjoint, low, high = held[ahead]
            low_sum += adjoint.to(ACC)[:, None] * low.to(ACC)
            high_sum += adjoint.to(ACC)[:, None] * high.to(ACC)
    width = tl.where(current < symbols, D, 0)
    goes_on = (stop < count) & (current == following)
    _put(beside, low_sum, high_sum, i, j, tl.where(begun > 0, width, 0))
    _put(beside + D * D, low_sum, high_sum, i, j, tl.where((begun == 0) & goes_on, width, 0))
    _put(
        out + current.to(tl.int64) * (D * D) + at, low_sum, high_sum, i, j,
        tl.where((begun > 0) | goes_on, 0, width),
    )  # fmt: skip


@triton.jit(do_not_specialize=["begin", "count", "time", "symbols", "lowest"])
def grouped_runs(
    adjoints, states, initial, starts, order, keys, out, edges, begin, count, time, symbols, lowest,
    D: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr, PITCH: tl.constexpr, PACKED: tl.constexpr,
    PRECISION: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Sum over many tokens: a tile of positions sorted by token holds runs of equal tokens, each one small product.

    A run inside the tile is finished; one that crosses its edge leaves its part in ``edges[tile, 0]`` (begun before)
    or ``edges[tile, 1]`` (begun here).
    """
    tile = tl.program_id(0)
    slot = tile * TILE + tl.arange(0, TILE)
    held = slot < count
    token = tl.where(held, tl.load(keys + slot, mask=held, other=0).to(tl.int32) - lowest, symbols)
    place = tl.load(order + slot, mask=held, other=0).to(tl.int32) + begin
    i = tl.arange(0, BLOCK)
    inner = (i < D)[:, None]
    keep = token < symbols
    before = states_before(states, initial, starts, place, time, keep, i, D, PITCH, PACKED)
    inner_edge = (tile + 1) * TILE < count
    earlier = tl.load(keys + tile * TILE - 1, mask=tile > 0, other=0).to(tl.int32) - lowest
    following = tl.load(keys + (tile + 1) * TILE, mask=inner_edge, other=0).to(tl.int32) - lowest
    here = i[:, None] * D + i[None, :]
    done = 0
    total = tl.minimum(count - tile * TILE, TILE)
    while done < total:
        current = tl.min(tl.where(slot >= tile * TILE + done, token, 2147483647))
        mine = held & (token == current)
        chosen = tl.load(
            adjoints + ((place - begin).to(tl.int64) * D)[None, :] + i[:, None],
            mask=inner & (mine & keep)[None, :],
            other=0.0,
        )
        summed = tl.dot(chosen, before, input_precision=PRECISION, out_dtype=ACC)
        length = tl.sum(mine.to(tl.int32))
        begun = (done == 0) & (tile > 0) & (current == earlier)
        goes_on = (done + length == TILE) & inner_edge & (current == following)
        target = tl.where(begun, 0, 1) * D * D + tile.to(tl.int64) * 2 * D * D
        known = current < symbols
        crosses = begun | goes_on
        edge = tl.where(known & crosses, D, 0)
        finished = tl.where(known & (crosses == 0), D, 0)
        tl.store(edges + target + here, summed, mask=(i < edge)[:, None] & (i < edge)[None, :])
        inside = (i < finished)[:, None] & (i < finished)[None, :]
        tl.store(out + current.to(tl.int64) * D * D + here, summed, mask=inside)
        done += length


@triton.jit(do_not_specialize=["count", "symbols", "lowest"])
def joined_runs(
    keys, edges, out, count, symbols, lowest,
    D: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr, LANES: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Sum every run that leaves its tile over the tiles it crosses: ``LANES`` interleaved sums, then their sum."""
    tile = tl.program_id(0)
    inner_edge = (tile + 1) * TILE < count
    current = tl.load(keys + (tile + 1) * TILE - 1, mask=inner_edge, other=0).to(tl.int32)
    following = tl.load(keys + (tile + 1) * TILE, mask=inner_edge, other=0).to(tl.int32)
    first = tl.load(keys + tile * TILE).to(tl.int32)
    earlier = tl.load(keys + tile * TILE - 1, mask=tile > 0, other=0).to(tl.int32)
    began_here = (first != current) | (tile == 0) | (earlier != current)
    if inner_edge & (current == following) & began_here & (current - lowest < symbols):
        i = tl.arange(0, BLOCK)
        here = i[:, None] * D + i[None, :]
        inner = (i < D)[:, None] & (i < D)[None, :]
        total = tl.load(edges + (tile.to(tl.int64) + 1) * (2 * D * D) + here, mask=inner, other=0.0)
        last = tl.load(keys + (tile + 2) * TILE - 1, mask=(tile + 2) * TILE <= count, other=0).to(tl.int32)
        crosses = ((tile + 2) * TILE < count) & (last == current)
        if crosses:
            lane = tl.arange(0, LANES)
            sums = tl.zeros([LANES, BLOCK, BLOCK], ACC)
            other = tile + 2
            goes_on = 1
            while goes_on > 0:
                there = other + lane
                key = tl.load(keys + there * TILE, mask=there * TILE < count, other=0).to(tl.int32)
                part = (there * TILE < count) & (key == current)
                places = (edges + there.to(tl.int64) * (2 * D * D))[:, None, None] + here[None, :, :]
                sums += tl.load(places, mask=part[:, None, None] & inner[None, :, :], other=0.0)
                goes_on = tl.min(part.to(tl.int32))
                other += LANES
            total += tl.sum(sums, 0)
        begun = tl.load(edges + (tile.to(tl.int64) * 2 + 1) * D * D + here, mask=inner, other=0.0)
        tl.store(out + (current - lowest).to(tl.int64) * D * D + here, begun + total, mask=inner)
