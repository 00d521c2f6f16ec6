"""Kernels that build the tables of all words of k tokens, and write a row of tokens as words (Triton).

Word ``Σ x_l base^l`` has token ``x_0`` first; ``base`` is V, or V + 1 where steps may be masked: letter V is the
identity.  The word after the last stands for unknown tokens and is NaN.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _matrix_part(source, which, i, j, symbols, D: tl.constexpr, BLOCK: tl.constexpr, ROUGH: tl.constexpr):
    """Load part of a matrix: ``ROUGH`` from the table (V, D, D), V being the identity; else from shorter words."""
    if ROUGH:
        real = which < symbols
        width = tl.where(real, D, 0)
        keep = (i < width) & (j < width)
        matrix = tl.load(source + which * (D * D) + i * D + j, mask=keep, other=0.0)
        matrix = tl.where(real, matrix, (i == j).to(matrix.dtype))
    else:
        matrix = tl.load(source + which * (BLOCK * BLOCK) + i * BLOCK + j)
    return matrix


@triton.jit(do_not_specialize=["later_count", "earlier_count", "symbols"])
def joined_words(
    later, earlier, out, later_count, earlier_count, symbols,
    D: tl.constexpr, BLOCK: tl.constexpr, SLAB: tl.constexpr, COLUMNS: tl.constexpr, ROUGH_LATER: tl.constexpr,
    ROUGH_EARLIER: tl.constexpr, ORDER: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Multiply every later word with every earlier one; ``later_count`` is 0 where there is only one of both.

    ``out (words + 1, BLOCK, BLOCK)`` has "rows", "columns" or "fragments" one after another: the last are what
    :mod:`transductor.kernels.gpu.products` reads as operands.
    """
    word = tl.program_id(0)
    first = tl.program_id(1) * COLUMNS
    i = tl.arange(0, BLOCK)[:, None]
    j = first + tl.arange(0, COLUMNS)[None, :]
    known = word < earlier_count * tl.maximum(later_count, 1)
    earlier_word = tl.where(known, word % earlier_count, 0).to(tl.int64)
    if later_count == 0:
        product = _matrix_part(earlier, earlier_word, i, j, symbols, D, BLOCK, ROUGH_EARLIER).to(ACC)
    else:
        later_word = tl.where(known, word // earlier_count, 0).to(tl.int64)
        product = tl.zeros([BLOCK, COLUMNS], ACC)
        for slab in range(0, BLOCK, SLAB):
            across = slab + tl.arange(0, SLAB)[None, :]
            down = slab + tl.arange(0, SLAB)[:, None]
            left = _matrix_part(later, later_word, i, across, symbols, D, BLOCK, ROUGH_LATER).to(ACC)
            right = _matrix_part(earlier, earlier_word, down, j, symbols, D, BLOCK, ROUGH_EARLIER).to(ACC)
            product += tl.dot(left, right, input_precision="ieee", out_dtype=ACC)
    product = tl.where(known, product, float("nan"))
    if ORDER == "rows":
        place = i * BLOCK + j
    elif ORDER == "columns":
        place = j * BLOCK + i
    else:  # element (n, named k) lies where a thread looks for operand (k, n)
        k = (j // 8) * 8 + 4 * (j % 2) + (j % 8) // 2
        if out.dtype.element_ty == tl.float32:  # a thread reads four numbers at a time
            place = (k // 4) % 2 + 2 * ((k // 8) % 2) + 4 * (k % 4) + 16 * (i % 8) + 128 * (k // 16)
        else:
            place = (k // 4) % 2 + 2 * (k % 4) + 8 * (i % 8) + 64 * (k // 8)
        place += 8 * BLOCK * (i // 8)
    tl.store(out + word.to(tl.int64) * (BLOCK * BLOCK) + place, product)


@triton.jit(do_not_specialize=["words", "items", "time", "shift", "symbols", "base", "count"])
def spelled(
    tokens, mask, out, words, items, time, shift, symbols, base, count,
    LETTERS: tl.constexpr, TILE: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Write the word that begins at ``w · LETTERS + shift`` of every row, ``(B, words)``; ``count`` where unknown."""
    item = tl.program_id(0) * TILE + tl.arange(0, TILE)
    exists = item < items
    row = (item // words).to(tl.int64)
    begin = (item % words) * LETTERS + shift
    word = tl.zeros([TILE], tl.int32)
    unknown = tl.zeros([TILE], tl.int32)
    scale = 1
    for letter in tl.static_range(LETTERS):
        inside = exists & (begin + letter < time)
        place = row * time + begin + letter
        if MASKED:
            real = inside & (tl.load(mask + place, mask=inside, other=0) != 0)
        else:
            real = inside
        token = tl.load(tokens + place, mask=real, other=0)
        unknown = unknown | ((token < 0) | (token >= symbols)).to(tl.int32)
        letter_here = token.to(tl.int32)
        if MASKED:
            letter_here = tl.where(real, letter_here, symbols)
        word += scale * letter_here
        scale *= base
    tl.store(out + item, tl.where(unknown > 0, count, word), mask=exists)
