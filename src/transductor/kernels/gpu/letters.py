"""One step of many states at once, gathered by token: a matrix is read once for all states that it moves (Triton).

An item is a word of a row, and the kernel takes the same letter of all words.  Every program picks, out of one span of
items, those whose letter is its token, and multiplies its matrix with their states on the matrix units.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _code(
    tokens, mask, item, exists, words, time, symbols, letter, LETTERS: tl.constexpr, MASKED: tl.constexpr
):  # fmt: skip
    """Return the token of items; ``symbols`` where it is unknown or the step is not real."""
    row = (item // words).to(tl.int64)
    position = (item % words) * LETTERS + letter
    real = exists & (position < time)
    if MASKED:
        real = real & (tl.load(mask + row * time + position, mask=real, other=0) != 0)
    token = tl.load(tokens + row * time + position, mask=real, other=symbols)
    return tl.where((token >= 0) & (token < symbols), token, symbols).to(tl.int32)


@triton.jit
def _source(
    source, initial, row, word, held, i, rows, stride, offset, D: tl.constexpr, FROM_INITIAL: tl.constexpr
):  # fmt: skip
    """Load the states ``(BLOCK, TILE)`` that items begin with; zero beyond the row, or the initial state before it."""
    place = word * stride + offset
    inside = held & (place >= 0) & (place < rows)
    keep = (i < D)[:, None] & inside[None, :]
    value = tl.load(source + ((row * rows + place) * D)[None, :] + i[:, None], mask=keep, other=0.0)
    if FROM_INITIAL:
        first = held & (place < 0)
        value += tl.load(initial + (row * D)[None, :] + i[:, None], mask=(i < D)[:, None] & first[None, :], other=0.0)
    return value


@triton.jit
def _finished(
    value, additive, mask, out, every, row, word, held, i, time, letter, rows, stride, offset,
    D: tl.constexpr, LETTERS: tl.constexpr, SHIFT: tl.constexpr, ADDITIVE: tl.constexpr, MASKED: tl.constexpr,
    EVERY: tl.constexpr,
):  # fmt: skip
    """Add the term of the position ``SHIFT`` away from the letter, and store."""
    position = word * LETTERS + letter + SHIFT
    there = held & (position >= 0) & (position < time)
    inner = (i < D)[:, None]
    at_position = ((row * time + position) * D)[None, :] + i[:, None]
    if ADDITIVE:
        value += tl.load(additive + at_position, mask=inner & there[None, :], other=0.0).to(value.dtype)
    place = word * stride + offset
    inside = held & (place >= 0) & (place < rows)
    tl.store(out + ((row * rows + place) * D)[None, :] + i[:, None], value, mask=inner & inside[None, :])
    if EVERY:
        if MASKED:
            real = tl.load(mask + row * time + position, mask=there, other=0) != 0
            value = tl.where(real[None, :], value, 0.0)
        tl.store(every + at_position, value, mask=inner & there[None, :])


@triton.jit
def _exact_where_infinite(matrix, value, after, TILE: tl.constexpr):
    """Multiply states once more where the result is not finite: an infinite number, split for TF32, becomes NaN."""
    wrong = tl.max((~(tl.abs(after) < float("inf"))).to(tl.int32), 0)
    if tl.max(wrong) > 0:
        column = tl.arange(0, TILE)
        for one in range(0, TILE):
            chosen = (column == one)[None, :]
            vector = tl.sum(tl.where(chosen, value, 0.0), 1)
            exact = tl.sum(matrix * vector[None, :], 1)
            after = tl.where(chosen & (wrong > 0)[None, :], exact[:, None], after)
    return after


@triton.jit(
    do_not_specialize=[
        "items", "span", "words", "time", "symbols", "letter", "source_rows", "source_stride", "source_offset",
        "out_rows", "out_stride", "out_offset",
    ]
)  # fmt: skip
def letter_steps(
    matrices, tokens, mask, source, initial, additive, out, every, states, sums, chosen,
    items, span, words, time, symbols, letter, source_rows, source_stride, source_offset,
    out_rows, out_stride, out_offset,
    D: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr, LETTERS: tl.constexpr, SHIFT: tl.constexpr,
    FROM_INITIAL: tl.constexpr, ADDITIVE: tl.constexpr, MASKED: tl.constexpr, REVERSED: tl.constexpr,
    STEPS: tl.constexpr, EVERY: tl.constexpr, SUMS: tl.constexpr, PRECISION: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Multiply the states of all items with the matrices of their letters, and store them.

    Item ``row · words + word`` reads its letter at position ``word · LETTERS + letter``, its state at
    ``word · stride + offset`` of the row of ``source``, and goes to the place said likewise of ``out``; beyond the row
    the matrix is zero.  ``additive`` is that of the position ``SHIFT`` away.  ``EVERY``: store it there, too, in
    ``every (B, T, D)``.

    ``SUMS``: the source is the adjoint at the letter's position; "new" or "more" sums of ``δ_t h_{t-1}ᵀ`` go to
    ``sums (spans, V, D, D)``.  The program of token V takes items without a matrix.
    """
    symbol = tl.program_id(0)
    part = tl.program_id(1)
    first = part * span
    stop = tl.minimum(first + span, items)
    smaller = tl.zeros([], tl.int32)
    for slot in range(first, stop, 512):
        item = slot + tl.arange(0, 512)
        code = _code(tokens, mask, item, item < stop, words, time, symbols, letter, LETTERS, MASKED)
        smaller += tl.sum((code < symbol).to(tl.int32))
    place = chosen + first + smaller
    picked = tl.zeros([], tl.int32)
    for slot in range(first, stop, 512):
        item = slot + tl.arange(0, 512)
        code = _code(tokens, mask, item, item < stop, words, time, symbols, letter, LETTERS, MASKED)
        mine = ((code == symbol) & (item < stop)).to(tl.int32)
        tl.store(place + picked + tl.cumsum(mine, 0) - 1, item, mask=mine > 0)
        picked += tl.sum(mine)
    tl.debug_barrier()  # what one thread has stored another reads
    i = tl.arange(0, BLOCK)
    if symbol == symbols:
        for slot in range(0, picked, TILE):
            t = slot + tl.arange(0, TILE)
            held = t < picked
            item = tl.load(place + t, mask=held, other=0)
            row = (item // words).to(tl.int64)
            word = item % words
            value = _source(
                source, initial, row, word, held, i, source_rows, source_stride, source_offset, D, FROM_INITIAL
            ).to(ACC)  # fmt: skip
            position = word * LETTERS + letter
            inside = held & (position < time)
            real = inside
            if MASKED:
                real = inside & (tl.load(mask + row * time + position, mask=inside, other=0) != 0)
            value = tl.where(inside[None, :], value, 0.0)
            value = tl.where(real[None, :], float("nan"), value)
            if STEPS:
                _finished(
                    value, additive, mask, out, every, row, word, held, i, time, letter,
                    out_rows, out_stride, out_offset, D, LETTERS, SHIFT, ADDITIVE, MASKED, EVERY,
                )  # fmt: skip
    else:
        down = i[:, None]
        across = i[None, :]
        inner = (down < D) & (across < D)
        if REVERSED:
            matrix = tl.load(matrices + symbol * (D * D) + across * D + down, mask=inner, other=0.0).to(ACC)
        else:
            matrix = tl.load(matrices + symbol * (D * D) + down * D + across, mask=inner, other=0.0).to(ACC)
        total = tl.zeros([BLOCK, BLOCK], ACC)
        for slot in range(0, picked, TILE):
            t = slot + tl.arange(0, TILE)
            held = t < picked
            item = tl.load(place + t, mask=held, other=0)
            row = (item // words).to(tl.int64)
            word = item % words
            value = _source(
                source, initial, row, word, held, i, source_rows, source_stride, source_offset, D, FROM_INITIAL
            ).to(ACC)  # fmt: skip
            if SUMS != "":
                before = _source(states, initial, row, word, held, i, time, LETTERS, letter - 1, D, True).to(ACC)
                total += tl.dot(value, tl.trans(before), input_precision=PRECISION, out_dtype=ACC)
            if STEPS:
                after = tl.dot(matrix, value, input_precision=PRECISION, out_dtype=ACC)
                if PRECISION != "ieee":
                    after = _exact_where_infinite(matrix, value, after, TILE)
                _finished(
                    after, additive, mask, out, every, row, word, held, i, time, letter,
                    out_rows, out_stride, out_offset, D, LETTERS, SHIFT, ADDITIVE, MASKED, EVERY,
                )  # fmt: skip
        if SUMS != "":
            target = sums + (part.to(tl.int64) * symbols + symbol) * (D * D) + down * D + across
            if SUMS == "more":
                total += tl.load(target, mask=inner, other=0.0)
            tl.store(target, total, mask=inner)
