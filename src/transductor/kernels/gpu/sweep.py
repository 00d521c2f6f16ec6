"""The vector recurrence over many chunks at once, in either direction of time (Triton).

A program advances ``LANES`` chunks side by side; one thread owns one row of one chunk's matrix.  A step reads
that row straight into registers, multiplies it with the chunk's state (shared through on-chip memory) and sums
inside the thread, so that no thread waits for another's partial sum.

The one kernel serves four passes: the states of all chunks, the response of every chunk to its additive terms, the
states that enter the chunks, and, with time and matrices reversed, the same three for the adjoints.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _joined(parts):
    """Join ``2ⁿ`` tensors ``(…)`` to one ``(…, 2, …, 2)``; the first new axis is the highest bit of the index."""
    for _ in tl.static_range(len(parts).bit_length() - 1):
        pairs = ()
        for k in tl.static_range(len(parts) // 2):
            pairs = pairs + (tl.join(parts[k], parts[k + len(parts) // 2]),)
        parts = pairs
    return parts[0]


@triton.jit
def _matrix_rows(
    begin, i, D: tl.constexpr, BLOCK: tl.constexpr, LANES: tl.constexpr, ORDERED: tl.constexpr
):  # fmt: skip
    """Load ``(LANES, BLOCK, BLOCK)``, a row per thread, of the matrices that begin at ``begin``."""
    parts = ()
    rows = (begin + i * D)[:, None]
    four = tl.arange(0, 4)[None, :]
    for k in tl.static_range(BLOCK // 4):
        if ORDERED:  # threads side by side read numbers side by side
            parts = parts + (tl.load((begin + i * 4)[:, None] + (k * 4 * BLOCK + four)),)
        elif D == BLOCK:
            parts = parts + (tl.load(rows + (k * 4 + four)),)
        else:
            inner = (i < D)[:, None] & (k * 4 + four < D)
            parts = parts + (tl.load(rows + (k * 4 + four), mask=inner, other=0.0),)
    joined = _joined(parts)
    if BLOCK == 8:
        joined = tl.permute(joined, (0, 2, 1))
    elif BLOCK == 16:
        joined = tl.permute(joined, (0, 2, 3, 1))
    elif BLOCK == 32:
        joined = tl.permute(joined, (0, 2, 3, 4, 1))
    elif BLOCK == 64:
        joined = tl.permute(joined, (0, 2, 3, 4, 5, 1))
    return tl.reshape(joined, (LANES, BLOCK, BLOCK))


@triton.jit
def _product(matrix, state, BLOCK: tl.constexpr, LANES: tl.constexpr, TRANSPOSED: tl.constexpr):
    """Compute ``M h``, or ``Mᵀ h``, for every lane."""
    vector = tl.reshape(state, (LANES, BLOCK))
    if TRANSPOSED:
        total = tl.sum(matrix * tl.expand_dims(vector, 2), 1)
    else:  # four partial sums inside the thread, then theirs
        terms = matrix * tl.expand_dims(vector, 1)
        total = tl.sum(tl.sum(tl.reshape(terms, (LANES, BLOCK, BLOCK // 4, 4)), 3), 2)
    return tl.reshape(total, (LANES * BLOCK,))


@triton.jit
def _letter(tokens, mask, row, position, inside, time, DENSE: tl.constexpr, MASKED: tl.constexpr):
    """Find which matrix the step uses, and whether the step is real."""
    place = row * time + position
    real = inside
    if MASKED:
        real = inside & (tl.load(mask + place, mask=inside, other=0) != 0)
    if DENSE:
        which = tl.where(real, place, 0)
    else:
        which = tl.load(tokens + place, mask=real, other=0)
    return which, real


@triton.jit
def _operands(
    letter, matrices, additive, starts, row, position, inside, i, time, symbols,
    D: tl.constexpr, BLOCK: tl.constexpr, LANES: tl.constexpr, ACC: tl.constexpr, DENSE: tl.constexpr,
    ORDERED: tl.constexpr, ADDITIVE: tl.constexpr, PITCH: tl.constexpr, MASKED: tl.constexpr, PACKED: tl.constexpr,
    REVERSED: tl.constexpr,
):  # fmt: skip
    """Load what one step computes with: matrix, additive term, whether it is real, which document begins."""
    which, real = letter
    known = real
    if not DENSE:
        known = (which >= 0) & (which < symbols)
        which = tl.where(known, which, 0).to(tl.int32)
    size: tl.constexpr = BLOCK * BLOCK if ORDERED else D * D
    matrix = _matrix_rows(matrices + which * size, i, D, BLOCK, LANES, ORDERED).to(ACC)
    term = tl.zeros([LANES * BLOCK], ACC)
    if ADDITIVE:
        term = tl.load(additive + (row * time + position) * PITCH + i, mask=inside & (i < D), other=0.0).to(ACC)
    if not DENSE:  # an unknown token shows in every state from here on
        term = tl.where(known, term, float("nan"))
    document = tl.full([LANES * BLOCK], -1, tl.int32)
    if PACKED:
        document = tl.load(starts + position, mask=inside, other=-1)
    return matrix, term, real, document


@triton.jit
def _stepped(
    state, fetched, initial, to_initial, inside, i,
    D: tl.constexpr, BLOCK: tl.constexpr, LANES: tl.constexpr, PACKED: tl.constexpr, REVERSED: tl.constexpr,
    TRANSPOSED: tl.constexpr, ADD_FIRST: tl.constexpr, WRITES_INITIAL: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Take one step: return the state after it, and what is written for its position."""
    matrix, term, real, document = fetched
    if PACKED and not REVERSED:
        begins = document >= 0
        state = tl.where(
            begins, tl.load(initial + document * D + i, mask=begins & (i < D), other=0.0).to(ACC), state
        )  # fmt: skip
    if ADD_FIRST:
        written = state + term
        after = tl.where(real, _product(matrix, written, BLOCK, LANES, TRANSPOSED), written)
        written = tl.where(real, written, 0.0)
    else:
        after = tl.where(real, _product(matrix, state, BLOCK, LANES, TRANSPOSED) + term, state)
        written = after
    after = tl.where(inside, after, state)
    if D != BLOCK:  # rows that do not exist stay zero, beside infinite ones too
        after = tl.where(i < D, after, 0.0)
    if PACKED and REVERSED:
        begins = document >= 0
        if WRITES_INITIAL:
            tl.store(to_initial + document * D + i, after, mask=begins & (i < D))
        after = tl.where(begins, 0.0, after)
    return after, written


@triton.jit
def _walked(
    state, matrices, tokens, additive, mask, starts, initial, to_initial, out,
    row, origin, distance, i, time, symbols, shift,
    D: tl.constexpr, BLOCK: tl.constexpr, LANES: tl.constexpr, AHEAD: tl.constexpr, ACC: tl.constexpr,
    DENSE: tl.constexpr, ORDERED: tl.constexpr, ADDITIVE: tl.constexpr, PITCH: tl.constexpr, MASKED: tl.constexpr,
    PACKED: tl.constexpr, REVERSED: tl.constexpr, ADD_FIRST: tl.constexpr, WRITE: tl.constexpr, OUT_PITCH: tl.constexpr,
):  # fmt: skip
    """Take ``distance`` steps from ``origin``, each lane its own; return the state after them.

    Operands are read ``AHEAD`` steps before their use (0: just before, which many warps hide as well), tokens earlier.
    """
    sign = -1 if REVERSED else 1
    DEPTH: tl.constexpr = max(AHEAD, 1)
    letters = ()
    upcoming = ()
    if AHEAD > 0:
        for ahead in tl.static_range(AHEAD):
            letter = _letter(tokens, mask, row, origin + sign * ahead, ahead < distance, time, DENSE, MASKED)
            upcoming = upcoming + (
                _operands(
                    letter, matrices, additive, starts, row, origin + sign * ahead, ahead < distance, i,
                    time, symbols, D, BLOCK, LANES, ACC, DENSE, ORDERED, ADDITIVE, PITCH, MASKED, PACKED, REVERSED,
                ),
            )  # fmt: skip
    for ahead in tl.static_range(DEPTH):
        later = AHEAD + ahead
        letters = letters + (
            _letter(tokens, mask, row, origin + sign * later, later < distance, time, DENSE, MASKED),
        )  # fmt: skip
    for step in range(0, tl.max(distance), DEPTH):
        current = upcoming
        upcoming = ()
        for ahead in tl.static_range(DEPTH):
            later = step + AHEAD + ahead
            upcoming = upcoming + (
                _operands(
                    letters[ahead], matrices, additive, starts, row, origin + sign * later, later < distance, i,
                    time, symbols, D, BLOCK, LANES, ACC, DENSE, ORDERED, ADDITIVE, PITCH, MASKED, PACKED, REVERSED,
                ),
            )  # fmt: skip
        letters = ()
        for ahead in tl.static_range(DEPTH):
            later = step + AHEAD + DEPTH + ahead
            letters = letters + (
                _letter(tokens, mask, row, origin + sign * later, later < distance, time, DENSE, MASKED),
            )  # fmt: skip
        if AHEAD == 0:
            current = upcoming
            upcoming = ()
        for ahead in tl.static_range(DEPTH):
            inside = step + ahead < distance
            target = out + (row * time + origin + sign * (step + ahead) - shift) * OUT_PITCH + i
            if WRITE == "before":
                tl.store(target, state, mask=inside & (i < D))
            state, written = _stepped(
                state, current[ahead], initial, to_initial, inside, i,
                D, BLOCK, LANES, PACKED, REVERSED, REVERSED and not ORDERED, ADD_FIRST, WRITE == "after", ACC,
            )  # fmt: skip
            if WRITE == "after":
                tl.store(target, written, mask=inside & (i < D))
    return state


@triton.jit(do_not_specialize=["first_lane", "lanes", "chunks", "time", "length", "symbols", "shift"])
def sweep(
    matrices, tokens, additive, mask, starts, initial, entering, groups, group_responses, out, to_initial,
    first_lane, lanes, chunks, time, length, symbols, shift,
    D: tl.constexpr, BLOCK: tl.constexpr, LANES: tl.constexpr, AHEAD: tl.constexpr, ACC: tl.constexpr,
    DENSE: tl.constexpr, ORDERED: tl.constexpr, ADDITIVE: tl.constexpr, PITCH: tl.constexpr, MASKED: tl.constexpr,
    PACKED: tl.constexpr, REVERSED: tl.constexpr, ADD_FIRST: tl.constexpr, START: tl.constexpr, WRITE: tl.constexpr,
    OUT_PITCH: tl.constexpr, REPLAYS: tl.constexpr,
):  # fmt: skip
    """Advance every chunk of every row.

    ``START``: "zero", "initial" (one per row), "entering" (one per chunk), or "groups": one per row, carried
    over the products of the chunks before.  ``WRITE``: "before" or "after" every step, or at the "end" of a chunk.
    ``ORDERED`` matrices come from :mod:`transductor.kernels.gpu.products`, already transposed when time is reversed.
    Lanes count (row, chunk) pairs; ``out`` begins ``shift`` positions into the flattened rows.  ``PITCH`` numbers lie
    between one position and the next in ``additive``, ``OUT_PITCH`` in ``out``: more than D in part of something wider.
    """
    r = tl.arange(0, LANES * BLOCK)
    i = r % BLOCK
    lane = first_lane + tl.program_id(0) * LANES + r // BLOCK
    exists = lane < lanes
    row = (lane // chunks).to(tl.int64)
    chunk = lane % chunks
    begin = chunk * length
    steps = tl.where(exists, tl.minimum(length, time - begin), 0)
    first = begin + steps - 1 if REVERSED else begin
    rows = exists & (i < D)

    state = tl.zeros([LANES * BLOCK], ACC)
    if START == "entering":
        state = tl.load(entering + (row * chunks + chunk) * D + i, mask=rows, other=0.0).to(ACC)
    elif START == "initial" or START == "groups":
        if initial is not None and not PACKED and not REVERSED:
            state = tl.load(initial + row * D + i, mask=rows, other=0.0).to(ACC)
    if START == "groups":
        before = tl.where(exists, chunks - 1 - chunk if REVERSED else chunk, 0)
        edge = tl.zeros_like(chunk) + (chunks - 1 if REVERSED else 0)
        state = _walked(
            state, groups, None, group_responses, None, None, None, None, out, row, edge, before, i, chunks, 0, 0, D,
            BLOCK, LANES, AHEAD, ACC, True, True, ADDITIVE, D, False, False, REVERSED, False, "nothing", D,
        )  # fmt: skip
    if REPLAYS:
        # A product overflowed though the states may not: compute the state there one step at a time.
        wrong = tl.reshape((rows & ~(tl.abs(state) < float("inf"))).to(tl.int32), (LANES, BLOCK))
        lost = tl.reshape(tl.broadcast_to(tl.max(wrong, 1, keep_dims=True), (LANES, BLOCK)), (LANES * BLOCK,)) > 0
        there = tl.where(lost, time - begin - steps if REVERSED else begin, 0)
        edge = tl.zeros_like(begin) + (time - 1 if REVERSED else 0)
        fresh = tl.zeros([LANES * BLOCK], ACC)
        if not PACKED and not REVERSED:
            fresh = tl.load(initial + row * D + i, mask=rows, other=0.0).to(ACC)
        state = _walked(
            tl.where(lost, fresh, state), matrices, tokens, additive, mask, starts, initial, to_initial, out,
            row, edge, there, i, time, symbols, 0, D,
            BLOCK, LANES, 1, ACC, DENSE, ORDERED, ADDITIVE, PITCH, MASKED, PACKED, REVERSED, ADD_FIRST, "nothing", D,
        )  # fmt: skip

    state = _walked(
        state, matrices, tokens, additive, mask, starts, initial, to_initial, out, row, first, steps, i,
        time, symbols, shift, D,
        BLOCK, LANES, AHEAD, ACC, DENSE, ORDERED, ADDITIVE, PITCH, MASKED, PACKED, REVERSED, ADD_FIRST,
        WRITE, OUT_PITCH,
    )  # fmt: skip
    if WRITE == "end":
        tl.store(out + (row * chunks + chunk) * D + i, state, mask=rows)
    if WRITE == "after" and REVERSED and not PACKED:
        tl.store(to_initial + row * D + i, state, mask=rows & (chunk == 0))
