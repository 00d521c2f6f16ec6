"""Kernels that multiply the matrices of every chunk, on the matrix units (Triton).

What is kept is the transpose ``Q = (M_t … M_1)ᵀ``, so that a step is ``Q ← Q M_tᵀ`` and the result of one matrix
instruction is the left operand of the next.  The hardware holds a result and an operand in different orders:
thread q has columns ``8b + 2q + r`` of the result, and as an operand columns ``8b + 4r + q``.  Reading the second as
a *name* for the first costs nothing, if the rows of the other operand are renamed alike: then no number moves
between threads, and the chain of a chunk never leaves the registers.

Products are formed in ``ACC``: float64 where the matrix units have it, which is as fast there as float32 and leaves the
rounding of a chunk to its last step.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _column_named(k):
    """Return the column of a result that operand position ``k`` names: ``8b + 4r + q`` → ``8b + 2q + r``."""
    return (k // 8) * 8 + (k % 4) * 2 + (k // 4) % 2


@triton.jit
def _as_operand(result, BLOCK: tl.constexpr):
    """Name the same registers as the left operand of the next step."""
    parts = tl.reshape(result, (BLOCK, BLOCK // 8, 4, 2))
    return tl.reshape(tl.permute(parts, (0, 1, 3, 2)), (BLOCK, BLOCK))


@triton.jit
def _fragment_place(e, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    """Return the operand position ``(k, n)`` of element ``e`` of a square matrix read as one line of numbers.

    A warp that reads the line (``WIDE``: two numbers per thread at a time; else one) then holds the operand as the
    matrix unit wants it: thread bits are ``k`` 0–1 and ``n`` 0–2, register bits the rest.
    """
    if WIDE:
        k = (e // 2) % 4 + 4 * (e % 2) + 8 * ((e // 64) % (BLOCK // 8))
    else:
        k = e % 4 + 4 * ((e // 32) % (BLOCK // 4))
    n = (e // (8 if WIDE else 4)) % 8 + 8 * (e // (8 * BLOCK))
    return k, n


@triton.jit
def _fragment(line, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    """Rename a line of numbers as ``(BLOCK, BLOCK)``, of which a thread reads ``WIDE`` at a time; nothing is moved."""
    if WIDE == 4:
        parts = tl.permute(tl.reshape(line, (BLOCK // 8, BLOCK // 16, 8, 4, 2, 2)), (1, 4, 5, 3, 0, 2))
    elif WIDE == 2:
        parts = tl.permute(tl.reshape(line, (BLOCK // 8, BLOCK // 8, 8, 4, 2)), (1, 4, 3, 0, 2))
    else:
        parts = tl.permute(tl.reshape(line, (BLOCK // 8, BLOCK // 4, 8, 4)), (1, 3, 0, 2))
    return tl.reshape(parts, (BLOCK, BLOCK))


@triton.jit
def _letter(tokens, mask, place, inside, symbols, MASKED: tl.constexpr):
    """Load the token at a place; ``symbols``, which stands for the identity, where the step is not real."""
    real = inside
    if MASKED:
        real = inside & (tl.load(mask + place, mask=inside, other=0) != 0)
    token = tl.load(tokens + place, mask=real, other=symbols)
    return tl.where((token >= 0) & (token < symbols), token, symbols).to(tl.int32)


@triton.jit
def _in_order(i, j, ROWS: tl.constexpr):
    """Return where element ``(i, j)`` lies in a matrix whose rows are side by side, four columns at a time."""
    return (j // 4) * (4 * ROWS) + i * 4 + j % 4


@triton.jit
def _word_operand(
    table, tokens, mask, row, position, stop, time, symbols,
    BLOCK: tl.constexpr, LETTERS: tl.constexpr, LINE: tl.constexpr, ACC: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Load the word that begins at ``position`` from the table of all words."""
    word = tl.zeros([], tl.int32)
    scale = 1
    for letter in tl.static_range(LETTERS):
        inside = position + letter < stop
        word += scale * _letter(tokens, mask, row * time + position + letter, inside, symbols, MASKED)
        scale *= symbols + 1
    begin = table + word.to(tl.int64) * (BLOCK * BLOCK)
    if LINE:
        wide: tl.constexpr = 4 if BLOCK > 16 and table.dtype.element_ty == tl.float32 else 2
        operand = _fragment(tl.load(begin + tl.arange(0, BLOCK * BLOCK)), BLOCK, wide)
    else:
        k = _column_named(tl.arange(0, BLOCK))[:, None]
        operand = tl.load(begin + tl.arange(0, BLOCK)[None, :] * BLOCK + k)
    return operand.to(ACC)


@triton.jit
def _step_operand(
    matrices, tokens, mask, row, position, stop, time, symbols,
    D: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, LINE: tl.constexpr, ACC: tl.constexpr,
    DENSE: tl.constexpr, ORDERED: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Load the matrix at ``position`` from the original table; the identity where the step is not real."""
    place = row * time + position
    if LINE:
        k, n = _fragment_place(tl.arange(0, BLOCK * BLOCK), BLOCK, False)
    else:
        k = tl.arange(0, BLOCK)[:, None]
        n = tl.arange(0, BLOCK)[None, :]
    k = _column_named(k)
    inside = position < stop
    if DENSE:
        real = inside
        if MASKED:
            real = inside & (tl.load(mask + place, mask=inside, other=0) != 0)
        begin = matrices + place * (ROWS * ROWS if ORDERED else D * D)
    else:
        token = _letter(tokens, mask, place, inside, symbols, MASKED)
        real = token < symbols
        begin = matrices + token * (D * D)
    width = tl.where(real, D, 0)  # a scalar `and` a tensor is no mask in Triton's interpreter
    keep = (k < width) & (n < width)
    where = _in_order(n, k, ROWS) if ORDERED else n * D + k
    matrix = tl.load(begin + where, mask=keep, other=0.0).to(ACC)
    operand = tl.where(real, matrix, (k == n).to(ACC))
    if LINE:
        operand = _fragment(operand, BLOCK, 1)
    return operand


@triton.jit
def _right_operand(
    matrices, tokens, mask, row, position, stop, time, symbols,
    D: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, LETTERS: tl.constexpr, LINE: tl.constexpr,
    ACC: tl.constexpr, DENSE: tl.constexpr, ORDERED: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Load ``Mᵀ`` of the step (or word) at ``position``, with rows named like those of operands."""
    if LETTERS > 0:
        operand = _word_operand(
            matrices, tokens, mask, row, position, stop, time, symbols, BLOCK, LETTERS, LINE, ACC, MASKED
        )  # fmt: skip
    else:
        operand = _step_operand(
            matrices, tokens, mask, row, position, stop, time, symbols,
            D, BLOCK, ROWS, LINE, ACC, DENSE, ORDERED, MASKED,
        )  # fmt: skip
    return operand


@triton.jit
def _scale(
    tokens, mask, starts, row, begin, stop, time, symbols,
    DENSE: tl.constexpr, MASKED: tl.constexpr, PACKED: tl.constexpr,
):  # fmt: skip
    """Return the factor of the chunk's product: 1, or 0 if a document begins inside, or NaN at an unknown token."""
    scale = tl.full([], 1.0, tl.float32)
    if PACKED or not DENSE:
        for position in range(begin, stop, 64):
            here = position + tl.arange(0, 64)
            inside = here < stop
            if PACKED:
                scale = tl.where(tl.max(tl.load(starts + here, mask=inside, other=-1)) >= 0, 0.0, scale)
            if not DENSE:
                if MASKED:
                    inside = inside & (tl.load(mask + row * time + here, mask=inside, other=0) != 0)
                token = tl.load(tokens + row * time + here, mask=inside, other=0)
                unknown = (token < 0) | (token >= symbols)
                scale = tl.where(tl.max(unknown.to(tl.int32)) > 0, float("nan"), scale)
    return scale


@triton.jit(do_not_specialize=["chunks", "time", "length", "symbols"])
def products(
    matrices, tokens, mask, starts, out, transposed, chunks, time, length, symbols,
    D: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, LETTERS: tl.constexpr, LINE: tl.constexpr,
    ACC: tl.constexpr, DENSE: tl.constexpr, ORDERED: tl.constexpr, MASKED: tl.constexpr, PACKED: tl.constexpr,
):  # fmt: skip
    """Compute ``out[row, chunk] = M_last … M_first`` and its transpose, in the order a sweep of ``ROWS`` rows reads.

    Zero where a document begins inside the chunk, NaN where a token is unknown.

    ``LETTERS``: 0 reads ``matrices`` where they lie; else they are the words of that many letters, up to d = 16 of
    :func:`prepared`, beyond of :mod:`transductor.kernels.gpu.words`.
    ``LINE``: one warp has the chunk to itself and reads matrices straight into its operands.
    """
    pid = tl.program_id(0)
    row = (pid // chunks).to(tl.int64)
    begin = (pid % chunks) * length
    stop = tl.minimum(begin + length, time)
    i = tl.arange(0, BLOCK)[:, None]
    j = tl.arange(0, BLOCK)[None, :]
    stride: tl.constexpr = LETTERS if LETTERS > 0 else 1
    kept = (i == j).to(ACC)
    scale = _scale(tokens, mask, starts, row, begin, stop, time, symbols, DENSE, MASKED, PACKED)
    if LINE:
        upcoming = _right_operand(
            matrices, tokens, mask, row, begin, stop, time, symbols,
            D, BLOCK, ROWS, LETTERS, LINE, ACC, DENSE, ORDERED, MASKED,
        )  # fmt: skip
        for position in range(begin, stop, stride):
            operand = upcoming
            upcoming = _right_operand(
                matrices, tokens, mask, row, position + stride, stop, time, symbols,
                D, BLOCK, ROWS, LETTERS, LINE, ACC, DENSE, ORDERED, MASKED,
            )  # fmt: skip
            kept = tl.dot(_as_operand(kept, BLOCK), operand, input_precision="ieee", out_dtype=ACC)
    else:
        for position in range(begin, stop, stride):
            operand = _right_operand(
                matrices, tokens, mask, row, position, stop, time, symbols,
                D, BLOCK, ROWS, LETTERS, LINE, ACC, DENSE, ORDERED, MASKED,
            )  # fmt: skip
            kept = tl.dot(_as_operand(kept, BLOCK), operand, input_precision="ieee", out_dtype=ACC)
    kept = tl.where(scale == 1.0, kept, scale)
    # `kept` is the transpose.  Beyond D it holds the identity, which states that are zero there never see.
    begin_out = pid.to(tl.int64) * (ROWS * ROWS)
    tl.store(out + begin_out + _in_order(j, i, ROWS), kept, mask=(i < ROWS) & (j < ROWS))
    tl.store(transposed + begin_out + _in_order(i, j, ROWS), kept, mask=(i < ROWS) & (j < ROWS))


@triton.jit
def _word(table, out, word, symbols, D: tl.constexpr, LETTERS: tl.constexpr, ACC: tl.constexpr):
    """Store the product of one word's letters as :func:`products` reads it."""
    i = tl.arange(0, 16)[:, None]
    j = tl.arange(0, 16)[None, :]
    product = (i == j).to(ACC)
    rest = word
    for letter in tl.static_range(LETTERS):
        token = rest % (symbols + 1)
        rest = rest // (symbols + 1)
        real = token < symbols
        width = tl.where(real, D, 0)
        keep = (i < width) & (j < width)
        matrix = tl.load(table + token * (D * D) + i * D + j, mask=keep, other=0.0).to(ACC)
        matrix = tl.where(real, matrix, (i == j).to(ACC))
        if letter == 0:
            product = matrix
        else:
            product = tl.dot(matrix, product, input_precision="ieee", out_dtype=ACC)
    # Element (n, named k) of the product lies at the place where a thread looks for operand (k, n).
    k = (j // 8) * 8 + 4 * (j % 2) + (j % 8) // 2
    place = (k // 4) % 2 + 2 * (k % 4) + 8 * (i % 8) + 64 * (k // 8) + 128 * (i // 8)
    tl.store(out + word.to(tl.int64) * 256 + place, product)


@triton.jit
def _rows(table, out, token, D: tl.constexpr, BLOCK: tl.constexpr, TRANSPOSED: tl.constexpr):
    """Store one matrix with four columns of every row side by side."""
    i = tl.arange(0, BLOCK)[:, None]
    j = tl.arange(0, BLOCK)[None, :]
    inner = (i < D) & (j < D)
    if TRANSPOSED:
        matrix = tl.load(table + token * (D * D) + j * D + i, mask=inner, other=0.0)
    else:
        matrix = tl.load(table + token * (D * D) + i * D + j, mask=inner, other=0.0)
    tl.store(out + token * (BLOCK * BLOCK) + _in_order(i, j, BLOCK), matrix)


@triton.jit(do_not_specialize=["word_count", "symbols"])
def prepared(
    table, words, rows, word_count, symbols,
    D: tl.constexpr, BLOCK: tl.constexpr, LETTERS: tl.constexpr, ACC: tl.constexpr, TRANSPOSED: tl.constexpr,
):  # fmt: skip
    """Store the table in the orders in which the passes read it.

    ``words``: products of all words of ``LETTERS`` letters, as :func:`products` reads them (16×16 only).  Word
    ``Σ x_l (V + 1)^l`` has letter ``x_0`` first; letter V is the identity, for steps that are not real.
    ``rows (V, BLOCK / 4, BLOCK, 4)``: four columns of every row side by side, as a sweep reads them.
    """
    pid = tl.program_id(0)
    if pid < word_count:
        _word(table, words, pid, symbols, D, LETTERS, ACC)
    else:
        _rows(table, rows, (pid - word_count).to(tl.int64), D, BLOCK, TRANSPOSED)
