"""A walk over the words of a row: every program carries the state of one row from word to word (Triton).

A step is one product of a matrix with a vector, and has to wait for the one before.  Its matrix does not: the words are
known, so matrices are read several steps ahead, each into the registers of one that was just used.
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
    table, responses, word, step, last, D: tl.constexpr, BLOCK: tl.constexpr, SIGN: tl.constexpr,
    ADDITIVE: tl.constexpr,
):  # fmt: skip
    """Load what a step computes with: its matrix, and its additive term where there is one."""
    i = tl.arange(0, BLOCK)
    matrix = tl.load(table + word.to(tl.int64) * (BLOCK * BLOCK) + i[:, None] * BLOCK + i[None, :])
    term = tl.zeros([BLOCK], matrix.dtype)
    if ADDITIVE:
        term = tl.load(responses + SIGN * tl.minimum(step, last) * D + i, mask=i < D, other=0.0)
    return matrix, term


_STORE_FLOAT = "{.reg .pred p; setp.ne.s32 p, $3, 0; @p st.global.f32 [$1], $2; mov.u32 $0, 0;}"
_STORE_DOUBLE = "{.reg .pred p; setp.ne.s32 p, $3, 0; @p st.global.f64 [$1], $2; mov.u32 $0, 0;}"
_FLOAT: tl.constexpr = tl.constexpr(_STORE_FLOAT)
_DOUBLE: tl.constexpr = tl.constexpr(_STORE_DOUBLE)


@triton.jit
def _put(target, state, D: tl.constexpr, BLOCK: tl.constexpr, ACC: tl.constexpr, DIRECT: tl.constexpr):
    """Store a state.  ``DIRECT``: every thread what it holds; Triton would first move it, and all warps wait twice."""
    i = tl.arange(0, BLOCK)
    if DIRECT:
        places = (target + i).to(tl.int64, bitcast=True)
        keep = (i < D).to(tl.int32)
        if state.dtype == tl.float64:
            tl.inline_asm_elementwise(_DOUBLE, "=r,l,d,r", [places, state, keep], dtype=tl.int32, is_pure=False, pack=1)
        else:
            tl.inline_asm_elementwise(_FLOAT, "=r,l,f,r", [places, state, keep], dtype=tl.int32, is_pure=False, pack=1)
    else:
        tl.store(target + i, state, mask=i < D)


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
    where = j * D + i if REVERSED else i * D + j
    matrix = tl.load(begin + where, mask=(i < width) & (j < width), other=0.0)
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
    D: tl.constexpr, BLOCK: tl.constexpr, AHEAD: tl.constexpr, LETTERS: tl.constexpr, ADDITIVE: tl.constexpr,
    MASKED: tl.constexpr, REVERSED: tl.constexpr, DIRECT: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Carry the state of a row over its words, and store it after each.

    Forward: from ``initial``, stored at the last position of every word in ``out (B, T, D)``.  ``REVERSED``: the
    adjoints at the first position of every word, from the response of the last one; ``responses`` and ``out`` are
    ``(B, words, D)``, and ``to_initial`` receives what is left at the beginning.

    A product of a word may overflow where states do not.  A row that ends in something that is not finite is walked
    again, one position at a time.
    """
    row = tl.program_id(0).to(tl.int64)
    SIGN: tl.constexpr = -1 if REVERSED else 1
    STRIDE: tl.constexpr = 1 if REVERSED else LETTERS
    i = tl.arange(0, BLOCK)
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
    state = tl.load(begun + i, mask=i < D, other=0.0).to(ACC)
    if REVERSED:
        tl.store(out + (row * words + words - 1) * D + i, state, mask=i < D)
    main = steps // AHEAD * AHEAD
    upcoming = ()
    letters = ()
    for ahead in tl.static_range(AHEAD):
        word = _word_at(spelled, ahead, last, SIGN)
        upcoming = upcoming + (_read_ahead(table, responses_here, word, ahead, last, D, BLOCK, SIGN, ADDITIVE),)
    for ahead in tl.static_range(AHEAD):
        letters = letters + (_word_at(spelled, AHEAD + ahead, last, SIGN),)
    for step in range(0, main, AHEAD):
        following = ()
        later = ()
        for ahead in tl.static_range(AHEAD):
            matrix, term = upcoming[ahead]
            state = tl.sum(matrix.to(ACC) * state[None, :], 1)
            if ADDITIVE:
                state += term.to(ACC)
            # Read into the registers of the matrix just used: the loop copies nothing, and waits for nothing.
            following = following + (
                _read_ahead(
                    table, responses_here, letters[ahead], step + AHEAD + ahead, last, D, BLOCK, SIGN, ADDITIVE
                ),
            )  # fmt: skip
            later = later + (_word_at(spelled, step + 2 * AHEAD + ahead, last, SIGN),)
            _put(target + SIGN * (step + ahead) * (STRIDE * D), state, D, BLOCK, ACC, DIRECT)
        upcoming = following
        letters = later
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
