"""The compiled sums ``Σ δ_t h_{t-1}ᵀ`` of the CPU scan, per token or per position.  Importing this imports numba."""

from __future__ import annotations

from typing import Any

from transductor.kernels.cpu.vectors import (
    Array,
    add_row,
    expect,
    kernel,
    meaning_of,
    plus,
    plus_times,
    put,
    set_row,
    take,
    times,
)

BLOCK = 4096  # positions summed before a partial gradient is closed; fixed, so that threads cannot change the order


@kernel
def tally(tokens: Array, time: int, first: int, last: int, counts: Array) -> None:
    """Count how often each token occurs in the positions ``[first, last)``, without the first of every row."""
    for p in range(first, last):
        counts[tokens[p]] += 1
    for p in range((first + time - 1) // time * time, last, time):
        counts[tokens[p]] -= 1


@kernel
def start_ranks(counts: Array, stops: Array) -> None:
    """Turn counts ``(parts, V)`` into first ranks, token by token, then part by part; and the end of each token."""
    rank = 0
    parts, symbols = counts.shape
    for token in range(symbols):
        for part in range(parts):
            here = counts[part, token]
            counts[part, token] = rank
            rank += here
        stops[token] = rank


@kernel
def rank_positions(tokens: Array, time: int, first: int, last: int, ranks: Array, order: Array) -> None:
    """Sort the positions ``[first, last)`` by token, without the first of every row."""
    row_end = first // time * time
    for p in range(first, last):
        if p == row_end:
            row_end += time
            continue
        token = tokens[p]
        order[ranks[token]] = p
        ranks[token] += 1


def add_outers(
    order: Array, first: int, last: int, adjoints: Array, states: Array, out: Array, at: int, dim: int, width: Any
) -> None:
    """Add ``δ_p h_{p-1}ᵀ`` to the matrix at ``out[at:]``, for the positions ``order[first:last]``."""


@meaning_of(add_outers)
def _add_outers(
    order: Any, first: Any, last: Any, adjoints: Any, states: Any, out: Any, at: Any, dim: Any, width: Any
) -> Any:
    if not len(width):
        return _add_outers_long
    size = len(width)

    def in_registers(
        order: Any, first: Any, last: Any, adjoints: Any, states: Any, out: Any, at: Any, dim: Any, width: Any
    ) -> None:
        by_four = first + (last - first) // 4 * 4
        # Four positions share one reading and writing of the sum.
        for k in range(first, by_four, 4):
            a, b, c, d = order[k] * size, order[k + 1] * size, order[k + 2] * size, order[k + 3] * size
            before_a, before_b = take(states, a - size, width), take(states, b - size, width)
            before_c, before_d = take(states, c - size, width), take(states, d - size, width)
            for ahead in range(k + 4, min(k + 8, last)):
                expect(states, (order[ahead] - 1) * size, width)
                expect(adjoints, order[ahead] * size, width)
            for i in range(size):
                new = plus_times(times(before_a, adjoints, a + i), before_b, adjoints, b + i)
                new = plus_times(plus_times(new, before_c, adjoints, c + i), before_d, adjoints, d + i)
                put(out, at + i * size, plus(take(out, at + i * size, width), new))
        for k in range(by_four, last):
            a = order[k] * size
            before = take(states, a - size, width)
            for i in range(size):
                put(out, at + i * size, plus_times(take(out, at + i * size, width), before, adjoints, a + i))

    return in_registers


def _add_outers_long(
    order: Any, first: Any, last: Any, adjoints: Any, states: Any, out: Any, at: Any, dim: Any, width: Any
) -> None:
    for k in range(first, last):
        p = order[k] * dim
        for i in range(dim):
            add_row(out[at + i * dim : at + (i + 1) * dim], states[p - dim : p], adjoints[p + i])


@kernel
def outers_by_token(
    tokens: Array,
    order: Array,
    stops: Array,
    adjoints: Array,
    states: Array,
    grad: Array,
    spilled: Array,
    first: int,
    last: int,
    dim: int,
    width: Any,
) -> None:
    """Sum ``δ_p h_{p-1}ᵀ`` of every token, over the blocks ``[first, last)`` of the order.

    A token that began in an earlier block may belong to another thread: its part is spilled, and added later.
    """
    for block in range(first, last):
        k = block * BLOCK
        end = min(k + BLOCK, order.size)
        while k < end:
            token = tokens[order[k]]
            stop = min(stops[token], end)
            begun_before = k == block * BLOCK and k > 0 and tokens[order[k - 1]] == token
            if begun_before:
                add_outers(order, k, stop, adjoints, states, spilled, block * dim * dim, dim, width)
            else:
                add_outers(order, k, stop, adjoints, states, grad, token * dim * dim, dim, width)
            k = stop


@kernel
def add_spilled(tokens: Array, order: Array, spilled: Array, grad: Array, dim: int) -> None:
    """Add what the blocks spilled, in their order."""
    size = dim * dim
    for k in range(BLOCK, order.size, BLOCK):
        token = tokens[order[k]]
        if tokens[order[k - 1]] == token:
            at, to = k // BLOCK * size, token * size
            for i in range(size):
                grad[to + i] += spilled[at + i]


@kernel
def first_outers(tokens: Array, time: int, adjoints: Array, initial: Array, grad: Array, dim: int) -> None:
    """Add ``δ_1 h_0ᵀ`` of every row to the gradient of its first token."""
    for row in range(tokens.size // time):
        to, at = tokens[row * time] * dim * dim, row * time * dim
        for i in range(dim):
            for j in range(dim):
                grad[to + i * dim + j] += adjoints[at + i] * initial[row * dim + j]


def add_outer(adjoints: Array, at: int, before: Array, first: int, out: Array, to: int, dim: int, width: Any) -> None:
    """Add the matrix ``δ hᵀ`` to the one at ``out[to:]``."""


@meaning_of(add_outer)
def _add_outer(adjoints: Any, at: Any, before: Any, first: Any, out: Any, to: Any, dim: Any, width: Any) -> Any:
    if not len(width):
        return _add_outer_long
    size = len(width)

    def in_registers(adjoints: Any, at: Any, before: Any, first: Any, out: Any, to: Any, dim: Any, width: Any) -> None:
        row = take(before, first, width)
        for i in range(size):
            put(out, to + i * size, plus_times(take(out, to + i * size, width), row, adjoints, at + i))

    return in_registers


def _add_outer_long(adjoints: Any, at: Any, before: Any, first: Any, out: Any, to: Any, dim: Any, width: Any) -> None:
    for i in range(dim):
        add_row(out[to + i * dim : to + (i + 1) * dim], before[first : first + dim], adjoints[at + i])


@kernel
def outers_in_time(
    tokens: Array, time: int, adjoints: Array, states: Array, initial: Array, grad: Array, dim: int, width: Any
) -> None:
    """Sum ``δ_p h_{p-1}ᵀ`` of every token, position by position."""
    for p in range(tokens.size):
        at, to = p * dim, tokens[p] * dim * dim
        if p % time:
            add_outer(adjoints, at, states, at - dim, grad, to, dim, width)
        else:
            add_outer(adjoints, at, initial, p // time * dim, grad, to, dim, width)


def put_outer(adjoints: Array, at: int, before: Array, first: int, out: Array, to: int, dim: int, width: Any) -> None:
    """Write the matrix ``δ hᵀ`` to ``out[to:]``."""


@meaning_of(put_outer)
def _put_outer(adjoints: Any, at: Any, before: Any, first: Any, out: Any, to: Any, dim: Any, width: Any) -> Any:
    if not len(width):
        return _put_outer_long
    size = len(width)

    def in_registers(adjoints: Any, at: Any, before: Any, first: Any, out: Any, to: Any, dim: Any, width: Any) -> None:
        row = take(before, first, width)
        for i in range(size):
            put(out, to + i * size, times(row, adjoints, at + i))

    return in_registers


def _put_outer_long(adjoints: Any, at: Any, before: Any, first: Any, out: Any, to: Any, dim: Any, width: Any) -> None:
    for i in range(dim):
        set_row(out[to + i * dim : to + (i + 1) * dim], before[first : first + dim], adjoints[at + i])


@kernel
def outers(
    time: int, adjoints: Array, states: Array, initial: Array, first: int, last: int, grad: Array, dim: int, width: Any
) -> None:
    """Write ``δ_p h_{p-1}ᵀ`` of every position of ``[first, last)``."""
    for p in range(first, last):
        at = p * dim
        if p % time:
            put_outer(adjoints, at, states, at - dim, grad, at * dim, dim, width)
        else:
            put_outer(adjoints, at, initial, p // time * dim, grad, at * dim, dim, width)
