"""The compiled loops over states and adjoints of the CPU scan.  Importing this file imports numba.

Two products carry everything: ``apply`` is M x by rows of M, ``combine`` is Mᵀ x (or M x when the table has been
transposed) as a sum of rows.  Arrays are flat: row p of an array (N, D) begins at ``p * dim``.

The order of every sum is fixed, so a result depends neither on the number of threads nor on how rows are grouped, and
infinities and NaN spread as in any sum.

numba requires that a stub (``combine``), the function that picks its body (``_combine``) and the bodies repeat one
signature.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from transductor.kernels.cpu.vectors import (
    Array,
    add_row,
    add_rows,
    dot,
    dots,
    kernel,
    meaning_of,
    nothing,
    plus,
    plus_times,
    put,
    take,
)

GROUP = 4  # rows advanced together, so that the latencies of their steps overlap


def combine(
    rows: Array,
    start: int,
    weights: Array,
    first: int,
    extra: Array,
    at: int,
    out: Array,
    to: int,
    dim: int,
    width: Any,
) -> None:
    """Compute ``out[to:] = extra[at:] + Σ_j weights[first + j] · rows[start + j·dim:]``; no ``extra`` if ``at < 0``."""


@meaning_of(combine)
def _combine(
    rows: Any, start: Any, weights: Any, first: Any, extra: Any, at: Any, out: Any, to: Any, dim: Any, width: Any
) -> Any:
    if not len(width):
        return _combine_long
    size = len(width)
    by_four = size - size % 4

    def in_registers(
        rows: Any, start: Any, weights: Any, first: Any, extra: Any, at: Any, out: Any, to: Any, dim: Any, width: Any
    ) -> None:
        # Four sums side by side: a fused multiply-add takes four cycles, and one may start every cycle.
        a = take(extra, at, width) if at >= 0 else nothing(rows, width)
        b = nothing(rows, width)
        c = nothing(rows, width)
        d = nothing(rows, width)
        for j in range(0, by_four, 4):
            row = start + j * size
            a = plus_times(a, take(rows, row, width), weights, first + j)
            b = plus_times(b, take(rows, row + size, width), weights, first + j + 1)
            c = plus_times(c, take(rows, row + 2 * size, width), weights, first + j + 2)
            d = plus_times(d, take(rows, row + 3 * size, width), weights, first + j + 3)
        for j in range(by_four, size):
            a = plus_times(a, take(rows, start + j * size, width), weights, first + j)
        put(out, to, plus(plus(a, b), plus(c, d)))

    return in_registers


def _combine_long(
    rows: Any, start: Any, weights: Any, first: Any, extra: Any, at: Any, out: Any, to: Any, dim: Any, width: Any
) -> None:
    total = out[to : to + dim]
    matrix = rows[start : start + dim * dim].reshape(dim, dim)
    w = weights[first : first + dim]
    for i in range(dim):
        total[i] = extra[at + i] if at >= 0 else 0
    for j in range(0, dim - dim % 4, 4):
        add_rows(total, matrix[j : j + 4], w[j], w[j + 1], w[j + 2], w[j + 3])
    for j in range(dim - dim % 4, dim):
        add_row(total, matrix[j], w[j])


def apply(
    matrices: Array, start: int, x: Array, first: int, extra: Array, at: int, out: Array, to: int, dim: int, width: Any
) -> None:
    """Compute ``out[to:] = extra[at:] + M x``, M the matrix at ``start``; no ``extra`` if ``at < 0``."""


@meaning_of(apply)
def _apply(
    matrices: Any, start: Any, x: Any, first: Any, extra: Any, at: Any, out: Any, to: Any, dim: Any, width: Any
) -> Any:
    size = len(width)
    if size == 0:
        return _apply_long
    rows = (0,) * min(size, 512 // matrices.dtype.bitwidth)
    count = len(rows)

    def by_blocks_of_rows(
        matrices: Any, start: Any, x: Any, first: Any, extra: Any, at: Any, out: Any, to: Any, dim: Any, width: Any
    ) -> None:
        for block in range(0, size, count):
            row = min(block, size - count)  # the last block may begin earlier and repeat a few rows
            product = dots(matrices, start + row * size, x, first, rows, width)
            if at >= 0:
                product = plus(product, take(extra, at + row, rows))
            put(out, to + row, product)

    return by_blocks_of_rows


def _apply_long(
    matrices: Any, start: Any, x: Any, first: Any, extra: Any, at: Any, out: Any, to: Any, dim: Any, width: Any
) -> None:
    for i in range(dim):
        out[to + i] = dot(matrices[start + i * dim : start + (i + 1) * dim], x[first : first + dim])
        if at >= 0:
            out[to + i] += extra[at + i]


def _advancing(product: Callable[..., None]) -> Callable[..., None]:
    @kernel
    def advance(
        matrices: Array,
        slots: Array,
        tokens: Array,
        bias: Array,
        entering: Array,
        states: Array,
        lane: int,
        count: int,
        start: int,
        stride: int,
        steps: int,
        dim: int,
        width: Any,
    ) -> None:
        """Compute states of ``count`` lanes of ``steps`` positions each, from their entering states.

        Lane n covers the positions from ``start + n·stride`` on and is entered by row ``lane + n`` of ``entering``.
        """
        size, slotted, biased = dim * dim, slots.size > 0, bias.size > 0
        for group in range(0, count, GROUP):
            for n in range(group, min(group + GROUP, count)):
                p = start + n * stride
                place = slots[tokens[p]] if slotted else tokens[p]
                at = p * dim if biased else -1
                product(matrices, place * size, entering, (lane + n) * dim, bias, at, states, p * dim, dim, width)
            for s in range(1, steps):
                for n in range(group, min(group + GROUP, count)):
                    p = start + n * stride + s
                    place = slots[tokens[p]] if slotted else tokens[p]
                    at = p * dim if biased else -1
                    product(matrices, place * size, states, (p - 1) * dim, bias, at, states, p * dim, dim, width)

    return advance


advance_by_rows = _advancing(apply)
advance_by_columns = _advancing(combine)  # for tables that have been transposed


@kernel
def retreat(
    matrices: Array,
    tokens: Array,
    grad: Array,
    incoming: Array,
    adjoints: Array,
    outgoing: Array,
    lane: int,
    count: int,
    start: int,
    stride: int,
    steps: int,
    dim: int,
    width: Any,
) -> None:
    """Compute adjoints of the same lanes, from those of later lanes (``incoming``); write those they send back."""
    for group in range(0, count, GROUP):
        for n in range(group, min(group + GROUP, count)):
            last = (start + n * stride + steps - 1) * dim
            for i in range(dim):
                adjoints[last + i] = grad[last + i] + incoming[(lane + n) * dim + i]
        for s in range(steps - 1, 0, -1):
            for n in range(group, min(group + GROUP, count)):
                p = start + n * stride + s
                place = tokens[p] * dim * dim
                to = (p - 1) * dim
                combine(matrices, place, adjoints, p * dim, grad, to, adjoints, to, dim, width)
        for n in range(group, min(group + GROUP, count)):
            p = start + n * stride
            place = tokens[p] * dim * dim
            combine(matrices, place, adjoints, p * dim, grad, -1, outgoing, (lane + n) * dim, dim, width)


@kernel
def chunk_product(
    matrices: Array, tokens: Array, start: int, steps: int, products: Array, at: int, dim: int, width: Any
) -> None:
    """Write the product of the ``steps`` matrices from ``start`` on, the latest on the left, to ``products[at:]``."""
    size = dim * dim
    begun = np.empty(2 * size, matrices.dtype)  # two halves, read and written in turn
    place = tokens[start] * size
    begun[:size] = matrices[place : place + size]
    read, write = 0, size
    for p in range(start + 1, start + steps):
        place = tokens[p] * size
        for i in range(0, size, dim):
            combine(begun, read, matrices, place + i, begun, -1, begun, write + i, dim, width)
        read, write = write, read
    products[at : at + size] = begun[read : read + size]


@kernel
def mark_slots(tokens: Array, slots: Array, occurring: Array) -> int:
    """Number the tokens that occur, in order of appearance; return how many there are."""
    count = 0
    for token in tokens:
        if slots[token] < 0:
            slots[token] = count
            occurring[count] = token
            count += 1
            if count == slots.size:
                break
    return count
