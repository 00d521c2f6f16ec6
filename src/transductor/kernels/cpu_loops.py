"""The compiled loops of the CPU scan.  Importing this file imports numba.

Two products carry everything: ``apply`` is M x by rows of M, ``combine`` is Mᵀ x (or M x when the table has been
transposed) as a sum of rows.  Up to ``WIDEST`` numbers a row lives in registers (`Lanes`), with D known at compile
time through the length of the tuple ``width``; above that plain loops vectorise by themselves and ``width`` is
``()``.  Arrays are flat: row p of an array (N, D) begins at ``p * dim``.

The order of every sum is written out, so a result depends neither on the number of threads nor on how rows are
grouped, and infinities and NaN take their course.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core.cgutils import get_or_insert_function
from numba.extending import intrinsic, models, overload, register_model

__all__ = [
    "BLOCK",
    "GROUP",
    "WIDEST",
    "add_spilled",
    "advance_by_columns",
    "advance_by_rows",
    "chunk_product",
    "first_outers",
    "mark_slots",
    "outers",
    "outers_by_token",
    "rank_positions",
    "retreat",
    "start_ranks",
    "tally",
]

WIDEST = 64
GROUP = 4  # rows advanced together: each waits for its own last step, so their latencies overlap
BLOCK = 4096  # positions summed before a partial gradient is closed; fixed, so that threads cannot change the order

Array = Any  # a flat numpy array; inside the loops numba decides
Compiled = TypeVar("Compiled", bound=Callable[..., Any])

_CONTRACT = ("contract",)  # a multiplication and an addition may fuse; nothing else moves
_REASSOCIATE = {"reassoc", "contract", "nsz"}  # for plain sums above WIDEST; NaN and infinities stay


def _kernel(function: Compiled) -> Compiled:
    """Compile without the GIL, and keep the machine code on disk where a directory can be written."""
    try:
        return cast(Compiled, njit(nogil=True, cache=True)(function))
    except RuntimeError:  # no writable place for the cache
        return cast(Compiled, njit(nogil=True)(function))


def _plain(function: Compiled) -> Compiled:
    return cast(Compiled, njit(nogil=True, fastmath=_REASSOCIATE)(function))


def _emitted(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose body is written as LLVM instructions."""
    return cast(Callable[..., Any], intrinsic(function))


def _meaning_of(name: Callable[..., None]) -> Callable[[Compiled], Compiled]:
    """Decorate what picks, by the types of the arguments, the body that is compiled in place of ``name``."""
    return cast(Callable[[Compiled], Compiled], overload(name, jit_options={"forceinline": True}))


class Lanes(types.Type):  # type: ignore[misc]
    """``count`` numbers side by side, held as one LLVM vector; the compiler splits it into registers."""

    def __init__(self, number: Any, count: int) -> None:
        self.number, self.count = number, count
        super().__init__(name=f"Lanes({number}, {count})")


class _LanesModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, lanes: Lanes) -> None:
        number = manager.lookup(lanes.number).get_value_type()
        super().__init__(manager, lanes, ir.VectorType(number, lanes.count))


register_model(Lanes)(_LanesModel)


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, offset: Any) -> Any:
    return builder.gep(context.make_array(array_type)(context, builder, array).data, [offset])


def _load(builder: Any, pointer: Any, number: Any, count: int) -> Any:
    vector = ir.VectorType(number, count)
    return builder.load(builder.bitcast(pointer, vector.as_pointer()), align=4)


def _shuffled(builder: Any, first: Any, second: Any, picks: list[int]) -> Any:
    return builder.shuffle_vector(first, second, ir.Constant(ir.VectorType(ir.IntType(32), len(picks)), picks))


@_emitted
def take(_: Any, array: Any, offset: Any, width: Any) -> Any:
    """The ``len(width)`` numbers of an array that begin at ``offset``."""
    lanes = Lanes(array.dtype, len(width))

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, array, args[0], args[1])
        return _load(builder, pointer, context.get_value_type(array.dtype), lanes.count)

    return lanes(array, offset, width), emit


@_emitted
def put(_: Any, array: Any, offset: Any, lanes: Any) -> Any:
    """Write lanes to an array from ``offset`` on."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, array, args[0], args[1])
        builder.store(args[2], builder.bitcast(pointer, args[2].type.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(array, offset, lanes), emit


@_emitted
def plus(_: Any, first: Any, second: Any) -> Any:
    """The sum of two lanes."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fadd(args[0], args[1])

    return first(first, second), emit


def _factors(context: Any, builder: Any, array_type: Any, array: Any, offset: Any, count: int) -> Any:
    """One number of an array in all lanes."""
    number = builder.load(_pointer(context, builder, array_type, array, offset))
    blank = ir.Constant(ir.VectorType(number.type, count), ir.Undefined)
    first = builder.insert_element(blank, number, ir.IntType(32)(0))
    return _shuffled(builder, first, first, [0] * count)


@_emitted
def times(_: Any, lanes: Any, array: Any, offset: Any) -> Any:
    """``lanes · array[offset]``."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        factors = _factors(context, builder, array, args[1], args[2], lanes.count)
        return builder.fmul(args[0], factors, flags=_CONTRACT)

    return lanes(lanes, array, offset), emit


@_emitted
def plus_times(_: Any, total: Any, lanes: Any, array: Any, offset: Any) -> Any:
    """``total + lanes · array[offset]``, fused where the machine can."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        factors = _factors(context, builder, array, args[2], args[3], lanes.count)
        return builder.fadd(args[0], builder.fmul(args[1], factors, flags=_CONTRACT), flags=_CONTRACT)

    return total(total, lanes, array, offset), emit


@_emitted
def dots(_: Any, matrices: Any, start: Any, vector: Any, first: Any, rows: Any, width: Any) -> Any:
    """The products of ``len(rows)`` consecutive rows with one vector.

    Every row is multiplied lane by lane; then neighbours are added across pairs of rows, halving the rows until
    one vector holds all sums.
    """
    dim, count = len(width), len(rows)
    lanes = Lanes(matrices.dtype, count)

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        number = context.get_value_type(matrices.dtype)
        matrix = _pointer(context, builder, matrices, args[0], args[1])
        factor = _pointer(context, builder, vector, args[2], args[3])
        padded = 1 << (count - 1).bit_length()
        zero = ir.Constant(ir.VectorType(number, padded), None)

        def piece(pointer: Any, offset: int, length: int) -> Any:
            loaded = _load(builder, builder.gep(pointer, [ir.IntType(64)(offset)]), number, length)
            if length == padded:
                return loaded
            blank = ir.Constant(loaded.type, None)
            return _shuffled(builder, loaded, blank, [min(i, length) for i in range(padded)])

        spans = [(begin, min(padded, dim - begin)) for begin in range(0, dim, padded)]
        factors = [piece(factor, *span) for span in spans]
        sums = []
        for row in range(count):
            total = None
            for (begin, length), part in zip(spans, factors, strict=True):
                term = builder.fmul(piece(matrix, row * dim + begin, length), part, flags=_CONTRACT)
                total = term if total is None else builder.fadd(total, term, flags=_CONTRACT)
            sums.append(total)
        sums += [zero] * (padded - count)
        even = list(range(0, 2 * padded, 2))
        odd = [i + 1 for i in even]
        while len(sums) > 1:
            sums = [
                builder.fadd(_shuffled(builder, a, b, even), _shuffled(builder, a, b, odd))
                for a, b in zip(sums[::2], sums[1::2], strict=True)
            ]
        return sums[0] if padded == count else _shuffled(builder, sums[0], sums[0], list(range(count)))

    return lanes(matrices, start, vector, first, rows, width), emit


@_emitted
def expect(_: Any, array: Any, offset: Any, width: Any) -> Any:
    """Ask the memory for the ``len(width)`` numbers that begin at ``offset``: they are needed soon."""
    whole, integer = len(width) * array.dtype.bitwidth // 8, ir.IntType(32)

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer(), integer, integer, integer])
        prefetch = get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        pointer = builder.bitcast(_pointer(context, builder, array, args[0], args[1]), kind.args[0])
        for line in range(0, whole, 64):
            reading, near, data = integer(0), integer(3), integer(1)
            builder.call(prefetch, [builder.gep(pointer, [integer(line)]), reading, near, data])
        return context.get_dummy_value()

    return types.void(array, offset, width), emit


@_emitted
def nothing(_: Any, array: Any, width: Any) -> Any:
    """Lanes of zeros."""
    lanes = Lanes(array.dtype, len(width))

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return ir.Constant(ir.VectorType(context.get_value_type(array.dtype), lanes.count), None)

    return lanes(array, width), emit


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
    """``out[to:] = extra[at:] + Σ_j weights, first + j · rows[start + j·dim:]``; nothing is added when ``at < 0``."""


@_meaning_of(combine)
def _combine(
    rows: Any, start: Any, weights: Any, first: Any, extra: Any, at: Any, out: Any, to: Any, dim: Any, width: Any
) -> Any:
    if not len(width):
        return _combine_long
    size = len(width)
    whole = size - size % 4

    def in_registers(
        rows: Any, start: Any, weights: Any, first: Any, extra: Any, at: Any, out: Any, to: Any, dim: Any, width: Any
    ) -> None:
        # Four sums side by side: a fused multiply-add takes four cycles, and one may start every cycle.
        a = take(extra, at, width) if at >= 0 else nothing(rows, width)
        b = nothing(rows, width)
        c = nothing(rows, width)
        d = nothing(rows, width)
        for j in range(0, whole, 4):
            row = start + j * size
            a = plus_times(a, take(rows, row, width), weights, first + j)
            b = plus_times(b, take(rows, row + size, width), weights, first + j + 1)
            c = plus_times(c, take(rows, row + 2 * size, width), weights, first + j + 2)
            d = plus_times(d, take(rows, row + 3 * size, width), weights, first + j + 3)
        for j in range(whole, size):
            a = plus_times(a, take(rows, start + j * size, width), weights, first + j)
        put(out, to, plus(plus(a, b), plus(c, d)))

    return in_registers


@_plain
def _add_rows(total: Array, rows: Array, a: float, b: float, c: float, d: float) -> None:
    for i in range(total.size):
        total[i] += (rows[0, i] * a + rows[1, i] * b) + (rows[2, i] * c + rows[3, i] * d)


@_plain
def _add_row(total: Array, row: Array, factor: float) -> None:
    for i in range(total.size):
        total[i] += row[i] * factor


@_plain
def _set_row(out: Array, row: Array, factor: float) -> None:
    for i in range(out.size):
        out[i] = row[i] * factor


@_plain
def _dot(row: Array, x: Array) -> Any:
    total = row[0] * x[0]
    for i in range(1, row.size):
        total += row[i] * x[i]
    return total


def _combine_long(
    rows: Any, start: Any, weights: Any, first: Any, extra: Any, at: Any, out: Any, to: Any, dim: Any, width: Any
) -> None:
    total = out[to : to + dim]
    matrix = rows[start : start + dim * dim].reshape(dim, dim)
    w = weights[first : first + dim]
    for i in range(dim):
        total[i] = extra[at + i] if at >= 0 else 0
    for j in range(0, dim - dim % 4, 4):
        _add_rows(total, matrix[j : j + 4], w[j], w[j + 1], w[j + 2], w[j + 3])
    for j in range(dim - dim % 4, dim):
        _add_row(total, matrix[j], w[j])


def apply(
    matrices: Array, start: int, x: Array, first: int, extra: Array, at: int, out: Array, to: int, dim: int, width: Any
) -> None:
    """``out[to:] = extra[at:] + M x``, M the matrix at ``start``; nothing is added when ``at < 0``."""


@_meaning_of(apply)
def _apply(
    matrices: Any, start: Any, x: Any, first: Any, extra: Any, at: Any, out: Any, to: Any, dim: Any, width: Any
) -> Any:
    if not len(width):
        return _apply_long
    size = len(width)
    rows = (0,) * min(size, 512 // matrices.dtype.bitwidth)
    count = len(rows)

    def by_blocks_of_rows(
        matrices: Any, start: Any, x: Any, first: Any, extra: Any, at: Any, out: Any, to: Any, dim: Any, width: Any
    ) -> None:
        for block in range(0, size, count):
            row = min(block, size - count)  # the last block may begin earlier and repeat a few rows
            found = dots(matrices, start + row * size, x, first, rows, width)
            if at >= 0:
                found = plus(found, take(extra, at + row, rows))
            put(out, to + row, found)

    return by_blocks_of_rows


def _apply_long(
    matrices: Any, start: Any, x: Any, first: Any, extra: Any, at: Any, out: Any, to: Any, dim: Any, width: Any
) -> None:
    for i in range(dim):
        out[to + i] = _dot(matrices[start + i * dim : start + (i + 1) * dim], x[first : first + dim])
        if at >= 0:
            out[to + i] += extra[at + i]


def _advancing(product: Callable[..., None]) -> Callable[..., None]:
    @_kernel
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
        """States of ``count`` lanes of ``steps`` positions each, from their entering states.

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
advance_by_columns = _advancing(combine)  # of tables that have been transposed


@_kernel
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
    """Adjoints of the same lanes, from what later lanes send (``incoming``) to what they send on (``outgoing``)."""
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


@_kernel
def chunk_product(
    matrices: Array, tokens: Array, start: int, steps: int, products: Array, at: int, dim: int, width: Any
) -> None:
    """The product of the ``steps`` matrices from ``start`` on, the latest on the left, at ``products[at:]``."""
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


@_kernel
def mark_slots(tokens: Array, slots: Array, occurring: Array) -> int:
    """Number the tokens that occur, in order of appearance; returns how many there are."""
    count = 0
    for token in tokens:
        if slots[token] < 0:
            slots[token] = count
            occurring[count] = token
            count += 1
            if count == slots.size:
                break
    return count


@_kernel
def tally(tokens: Array, time: int, first: int, last: int, counts: Array) -> None:
    """How often each token occurs in the positions ``[first, last)``, the first of every row left out."""
    for p in range(first, last):
        counts[tokens[p]] += 1
    for p in range((first + time - 1) // time * time, last, time):
        counts[tokens[p]] -= 1


@_kernel
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


@_kernel
def rank_positions(tokens: Array, time: int, first: int, last: int, ranks: Array, order: Array) -> None:
    """The positions ``[first, last)`` in the order of their tokens, the first of every row left out."""
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


@_meaning_of(add_outers)
def _add_outers(
    order: Any, first: Any, last: Any, adjoints: Any, states: Any, out: Any, at: Any, dim: Any, width: Any
) -> Any:
    if not len(width):
        return _add_outers_long
    size = len(width)

    def in_registers(
        order: Any, first: Any, last: Any, adjoints: Any, states: Any, out: Any, at: Any, dim: Any, width: Any
    ) -> None:
        whole = first + (last - first) // 4 * 4
        # Four positions share one reading and writing of the sum.
        for k in range(first, whole, 4):
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
        for k in range(whole, last):
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
            _add_row(out[at + i * dim : at + (i + 1) * dim], states[p - dim : p], adjoints[p + i])


@_kernel
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
    """``Σ δ_p h_{p-1}ᵀ`` of every token, over the blocks ``[first, last)`` of the order.

    A token that began in an earlier block may belong to another thread: its share is spilled, and added later.
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


@_kernel
def add_spilled(tokens: Array, order: Array, spilled: Array, grad: Array, dim: int) -> None:
    """Add what the blocks spilled, in their order."""
    size = dim * dim
    for k in range(BLOCK, order.size, BLOCK):
        token = tokens[order[k]]
        if tokens[order[k - 1]] == token:
            at, to = k // BLOCK * size, token * size
            for i in range(size):
                grad[to + i] += spilled[at + i]


@_kernel
def first_outers(tokens: Array, time: int, adjoints: Array, initial: Array, grad: Array, dim: int) -> None:
    """Add ``δ_1 h_0ᵀ`` of every row to the gradient of its first token."""
    for row in range(tokens.size // time):
        to, at = tokens[row * time] * dim * dim, row * time * dim
        for i in range(dim):
            for j in range(dim):
                grad[to + i * dim + j] += adjoints[at + i] * initial[row * dim + j]


def put_outer(adjoints: Array, at: int, before: Array, first: int, out: Array, to: int, dim: int, width: Any) -> None:
    """The matrix ``δ hᵀ`` at ``out[to:]``."""


@_meaning_of(put_outer)
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
        _set_row(out[to + i * dim : to + (i + 1) * dim], before[first : first + dim], adjoints[at + i])


@_kernel
def outers(
    time: int, adjoints: Array, states: Array, initial: Array, first: int, last: int, grad: Array, dim: int, width: Any
) -> None:
    """``δ_p h_{p-1}ᵀ`` at every position of ``[first, last)``."""
    for p in range(first, last):
        at = p * dim
        if p % time:
            put_outer(adjoints, at, states, at - dim, grad, at * dim, dim, width)
        else:
            put_outer(adjoints, at, initial, p // time * dim, grad, at * dim, dim, width)
