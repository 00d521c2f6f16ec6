"""The compiled loops of the normalised scan and its adjoint.  Importing this file imports numba.

States are carried up to exact powers of two, which are divided out when a norm leaves a window, a rare branch: no
division stands between one step and the next.  A position is divided by its norm when the step after it has read it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from transductor.kernels.cpu.loops import GROUP, apply, combine
from transductor.kernels.cpu.vectors import Array, kernel, plain

L1, L2, MAX = 1, 2, 3

_LOW, _HIGH = 2.0**-16, 2.0**16


@plain
def _sum_of_sizes(row: Array) -> Any:
    total = row.dtype.type(0)
    for i in range(row.size):
        total += abs(row[i])
    return total


@plain
def _sum_of_squares(row: Array) -> Any:
    total = row.dtype.type(0)
    for i in range(row.size):
        total += row[i] * row[i]
    return total


@plain
def _largest(row: Array) -> Any:
    total = row.dtype.type(0)
    for i in range(row.size):
        total = max(total, abs(row[i]))
    return total


@plain
def _divide(row: Array, factor: float) -> None:
    for i in range(row.size):
        row[i] *= factor


@plain
def _norm(row: Array, kind: int) -> Any:
    if kind == L1:
        return _sum_of_sizes(row)
    return _largest(row)


@kernel
def _rescaled(row: Array, size: Any) -> int:
    """Divide a row whose norm has left the window by a power of two; return the exponent."""
    exponent = max(math.frexp(size)[1], -1000)
    half = exponent // 2  # two factors: one alone may leave the floating-point range
    _divide(row, row.dtype.type(2.0**-half))
    _divide(row, row.dtype.type(2.0 ** -(exponent - half)))
    return exponent


def _advancing(product: Callable[..., None]) -> Callable[..., None]:
    @kernel
    def advance(
        matrices: Array,
        slots: Array,
        tokens: Array,
        entering: Array,
        states: Array,
        norms: Array,
        powers: Array,
        lane: int,
        count: int,
        start: int,
        stride: int,
        steps: int,
        kind: int,
        dim: int,
        width: Any,
    ) -> None:
        """Compute normalised states, the norms of the carried ones, and the powers of two divided out of them."""
        size, slotted, one = dim * dim, slots.size > 0, states.dtype.type(1)
        for group in range(0, count, GROUP):
            last = min(group + GROUP, count)
            for s in range(steps):
                for n in range(group, last):
                    p = start + n * stride + s
                    place = slots[tokens[p]] if slotted else tokens[p]
                    at, to = place * size, p * dim
                    if s == 0:
                        product(matrices, at, entering, (lane + n) * dim, entering, -1, states, to, dim, width)
                        power = 0
                    else:
                        product(matrices, at, states, to - dim, states, -1, states, to, dim, width)
                        power = powers[p - 1]
                        if norms[p - 1] > 0:
                            _divide(states[to - dim : to], one / norms[p - 1])
                    row = states[to : to + dim]
                    norm = _norm(row, kind)
                    if 0 < norm < _LOW or _HIGH < norm < np.inf:
                        power += _rescaled(row, norm)
                        norm = _norm(row, kind)
                    norms[p] = math.sqrt(_sum_of_squares(row)) if kind == L2 else norm
                    powers[p] = power
            for n in range(group, last):
                p = start + n * stride + steps - 1
                if norms[p] > 0:
                    _divide(states[p * dim : (p + 1) * dim], one / norms[p])

    return advance


advance_by_rows = _advancing(apply)
advance_by_columns = _advancing(combine)  # for tables that have been transposed


@plain
def _inner(first: Array, second: Array) -> Any:
    total = first[0] * second[0]
    for i in range(1, first.size):
        total += first[i] * second[i]
    return total


@plain
def _add_slopes(row: Array, states: Array, along: Any, factor: Any, limit: Any) -> None:
    """Add ``along`` times the slope of the l1 norm, multiply by ``factor``, and cut."""
    for i in range(row.size):
        value = (row[i] + (along if states[i] >= 0 else -along)) * factor
        row[i] = min(max(value, -limit), limit)


@kernel
def _add_slope(row: Array, states: Array, along: Any, factor: Any, limit: Any, kind: int) -> None:
    if kind == L1:
        _add_slopes(row, states, along, factor, limit)
        return
    largest, ties = _largest(states), 0
    if kind == MAX:
        for i in range(row.size):
            ties += abs(states[i]) == largest
    for i in range(row.size):
        value = row[i]
        if kind == L2:
            value += along * states[i]
        elif abs(states[i]) == largest and largest > 0:
            value += along / ties if states[i] > 0 else -along / ties
        value *= factor
        row[i] = min(max(value, -limit), limit)


@plain
def _cut(row: Array, limit: Any) -> None:
    for i in range(row.size):
        row[i] = min(max(row[i], -limit), limit)


@kernel
def retreat(
    matrices: Array,
    tokens: Array,
    grad: Array,
    states: Array,
    totals: Array,
    inverse: Array,
    adjoints: Array,
    outgoing: Array,
    lane: int,
    count: int,
    start: int,
    stride: int,
    steps: int,
    kind: int,
    limit: Any,
    dim: int,
    width: Any,
) -> None:
    """Compute ``q_t``, the adjoints of the states before normalisation, and what they add up to at the start."""
    size = dim * dim
    for group in range(0, count, GROUP):
        last = min(group + GROUP, count)
        for n in range(group, last):
            at = (start + n * stride + steps - 1) * dim
            for i in range(dim):
                adjoints[at + i] = grad[at + i]
        for s in range(steps - 1, -1, -1):
            for n in range(group, last):
                p = start + n * stride + s
                at = p * dim
                row, state = adjoints[at : at + dim], states[at : at + dim]
                along = totals[p] - _inner(row, state)
                _add_slope(row, state, along, inverse[p], limit, kind)
                place = tokens[p] * size
                if s > 0:
                    to = at - dim
                    combine(matrices, place, adjoints, at, grad, to, adjoints, to, dim, width)
                    _cut(adjoints[to : to + dim], limit)
                else:
                    to = (lane + n) * dim
                    combine(matrices, place, adjoints, at, grad, -1, outgoing, to, dim, width)
                    _cut(outgoing[to : to + dim], limit)
