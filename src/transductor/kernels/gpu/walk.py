"""A walk over the words of a row: every program carries the state of one row from word to word (Triton).

Threads form a grid A×B, and each holds a tile of a matrix.  An even step has the rows of its matrix named ``(a, x)`` and the
columns ``(y, b)``, an odd one the other way round: the state that one step sums up lies where the next one reads it, and
never moves.  Matrices are read ahead, because the words are known.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _word_at(words, step, last, SIGN: tl.constexpr):
    """Load the word of a step; beyond the last step any will do."""
    return tl.load(words + SIGN * tl.minimum(step, last))


@triton.jit
def _read_ahead(
    table, responses, words, step, last, index, D: tl.constexpr, BLOCK: tl.constexpr, SIGN: tl.constexpr,
    TURNED: tl.constexpr, ADDITIVE: tl.constexpr,
):  # fmt: skip
    """Load what a step computes with: its matrix as one line, and its additive term where there is one."""
    line = tl.load(
        table + words.to(tl.int64) * (2 * BLOCK * BLOCK) + TURNED * BLOCK * BLOCK + tl.arange(0, BLOCK * BLOCK)
    )
    term = tl.zeros_like(index).to(line.dtype)
    if ADDITIVE:
        term = tl.load(responses + SIGN * tl.minimum(step, last) * D + index, mask=index < D, other=0.0)
    return line, term


@triton.jit
def _letter_step(
    state, matrices, tokens, mask, place, inside, symbols,
    D: tl.constexpr, BLOCK: tl.constexpr, MASKED: tl.constexpr, REVERSED: tl.constexpr,
):  # fmt: skip
    """Multiply with the matrix of one position; zero where there is none, NaN where the token is unknown."""
    real = inside
    if MASKED:
        real = inside & (tl.load(mask + place, mask=inside, other=0) != 0)
    token = tl.load(tokens + place, mask=real, other=0)
    known = (token >= 0) & (token < symbols)
    i = tl.arange(0, BLOCK)[:, None]
    j = tl.arange(0, BLOCK)[None, :]
    width = tl.where(real & known, D, 0)
    begin = matrices + tl.where(known, token, 0).to(tl.int64) * (D * D)
    if REVERSED:
        matrix = tl.load(begin + j * D + i, mask=(i < width) & (j < width), other=0.0)
    else:
        matrix = tl.load(begin + i * D + j, mask=(i < width) & (j < width), other=0.0)
    after = tl.sum(matrix.to(state.dtype) * state[None, :], 1)
    after = tl.where(tl.arange(0, BLOCK) < D, after, 0.0)
    after = tl.where(known, after, float("nan"))
    return tl.where(real, after, tl.where(inside, state, 0.0))


@triton.jit
def _letters(
    state, matrices, tokens, mask, terms, out, row, origin, distance, time, symbols, words,
    D: tl.constexpr, BLOCK: tl.constexpr, LETTERS: tl.constexpr, ADDITIVE: tl.constexpr, MASKED: tl.constexpr,
    REVERSED: tl.constexpr,
):  # fmt: skip
    """Take ``distance`` steps one position at a time from ``origin``, and store the states between words."""
    i = tl.arange(0, BLOCK)
    for step in range(0, distance):
        position = origin - step if REVERSED else origin + step
        used = position + 1 if REVERSED else position
        state = _letter_step(
            state, matrices, tokens, mask, row * time + used, used < time, symbols, D, BLOCK, MASKED, REVERSED
        )  # fmt: skip
        if ADDITIVE:
            state += tl.load(terms + (row * time + position) * D + i, mask=i < D, other=0.0).to(state.dtype)
        if REVERSED:
            between = position % LETTERS == 0
            target = row * words + position // LETTERS
        else:
            between = position % LETTERS == LETTERS - 1
            target = row * time + position
        tl.store(out + target * D + i, state, mask=i < tl.where(between, D, 0))
    return state


@triton.jit(do_not_specialize=["steps", "words", "time", "symbols"])
def walk(
    table, spelled, matrices, tokens, mask, initial, responses, terms, out, to_initial, steps, words, time, symbols,
    D: tl.constexpr, BLOCK: tl.constexpr, A: tl.constexpr, B: tl.constexpr, AHEAD: tl.constexpr,
    LETTERS: tl.constexpr, ADDITIVE: tl.constexpr, MASKED: tl.constexpr, REVERSED: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Carry the state of a row over its words, and store it after each.

    Forward: from ``initial``, stored at the last position of every word in ``out (B, T, D)``.  ``REVERSED``: the adjoints at
    the first position of every word, from the response of the last one; ``responses`` and ``out`` are ``(B, words, D)``, and
    ``to_initial`` receives what is left at the beginning.

    A product of a word may overflow where states do not.  A row that ends in something that is not finite is walked again,
    one position at a time.
    """
    row = tl.program_id(0).to(tl.int64)
    X: tl.constexpr = BLOCK // A
    Y: tl.constexpr = BLOCK // B
    SIGN: tl.constexpr = -1 if REVERSED else 1
    STRIDE: tl.constexpr = 1 if REVERSED else LETTERS
    i = tl.arange(0, BLOCK)
    even = tl.arange(0, A)[:, None] * X + tl.arange(0, X)[None, :]
    odd = tl.arange(0, Y)[:, None] * B + tl.arange(0, B)[None, :]
    last = tl.maximum(steps - 1, 0)
    edge = last if REVERSED else 0
    spelled = spelled + row * steps + edge
    responses_here = responses
    if ADDITIVE:
        responses_here = responses + (row * words + edge) * D
    if REVERSED:
        target = out + (row * words + edge) * D
        begun = responses + (row * words + words - 1) * D
    else:
        target = out + (row * time + LETTERS - 1) * D
        begun = initial + row * D
    h = tl.load(begun + odd, mask=odd < D, other=0.0).to(ACC)
    if REVERSED:
        tl.store(out + (row * words + words - 1) * D + odd, h, mask=odd < D)
    main = steps // AHEAD * AHEAD
    upcoming = ()
    letters = ()
    for ahead in tl.static_range(AHEAD):
        letters = letters + (_word_at(spelled, ahead, last, SIGN),)
    for ahead in tl.static_range(AHEAD):
        upcoming = upcoming + (
            _read_ahead(
                table, responses_here, letters[ahead], ahead, last, even if ahead % 2 == 0 else odd, D, BLOCK, SIGN,
                ahead % 2 != REVERSED, ADDITIVE,
            ),
        )  # fmt: skip
    letters = ()
    for ahead in tl.static_range(AHEAD):
        letters = letters + (_word_at(spelled, AHEAD + ahead, last, SIGN),)
    for step in range(0, main, AHEAD):
        following = ()
        later = ()
        for pair in tl.static_range(AHEAD // 2):
            # Each matrix is read into the registers of the one just used: the loop copies nothing, and waits for nothing.
            line, term = upcoming[2 * pair]
            products = tl.reshape(line, (Y, A, B, X)).to(ACC) * tl.expand_dims(tl.expand_dims(h, 1), 3)
            g = tl.sum(tl.sum(products, 0), 1)
            if ADDITIVE:
                g += term.to(ACC)
            following = following + (
                _read_ahead(
                    table, responses_here, letters[2 * pair], step + AHEAD + 2 * pair, last, even, D, BLOCK, SIGN,
                    REVERSED, ADDITIVE,
                ),
            )  # fmt: skip
            later = later + (_word_at(spelled, step + 2 * AHEAD + 2 * pair, last, SIGN),)
            tl.store(target + SIGN * (step + 2 * pair) * (STRIDE * D) + even, g, mask=even < D)
            line, term = upcoming[2 * pair + 1]
            products = tl.reshape(line, (Y, A, B, X)).to(ACC) * tl.expand_dims(tl.expand_dims(g, 1), 0)
            h = tl.sum(tl.sum(products, 3), 1)
            if ADDITIVE:
                h += term.to(ACC)
            following = following + (
                _read_ahead(
                    table, responses_here, letters[2 * pair + 1], step + AHEAD + 2 * pair + 1, last, odd, D, BLOCK, SIGN,
                    not REVERSED, ADDITIVE,
                ),
            )  # fmt: skip
            later = later + (_word_at(spelled, step + 2 * AHEAD + 2 * pair + 1, last, SIGN),)
            tl.store(target + SIGN * (step + 2 * pair + 1) * (STRIDE * D) + odd, h, mask=odd < D)
        upcoming = following
        letters = later
    state = tl.reshape(h, (BLOCK,))
    lost = tl.max(((i < D) & ~(tl.abs(state) < float("inf"))).to(tl.int32)) > 0
    if REVERSED:
        origin = tl.where(lost, time, (words - 1 - main) * LETTERS) - 1
        distance = origin + 1
        state = tl.where(lost, 0.0, state)
    else:
        origin = tl.where(lost, 0, main * LETTERS)
        distance = steps * LETTERS - origin
        fresh = tl.load(initial + row * D + i, mask=i < D, other=0.0).to(ACC)
        state = tl.where(lost, fresh, state)
    state = _letters(
        state, matrices, tokens, mask, terms, out, row, origin, distance, time, symbols, words,
        D, BLOCK, LETTERS, ADDITIVE, MASKED, REVERSED,
    )  # fmt: skip
    if REVERSED:
        state = _letter_step(
            state, matrices, tokens, mask, row * time, words > 0, symbols, D, BLOCK, MASKED, REVERSED
        )  # fmt: skip
        tl.store(to_initial + row * D + i, state, mask=i < D)
