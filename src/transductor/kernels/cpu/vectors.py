"""Rows of numbers in registers, for numba: what the compiled loops of the CPU scan are made of.

Up to ``WIDEST`` numbers a row lives in registers (:class:`Lanes`), with D known at compile time through the length of
the tuple ``width``; above that plain loops vectorise by themselves and ``width`` is ``()``.  Importing this imports
numba.

numba keeps compiled kernels on disk and notices only when *their* file changes: after an edit of this one, remove the
``__pycache__`` beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from llvmlite import ir
from numba import njit, types
from numba.core.cgutils import get_or_insert_function
from numba.extending import intrinsic, models, overload, register_model

WIDEST = 128

Array = Any  # a flat numpy array; inside the loops numba decides
Compiled = TypeVar("Compiled", bound=Callable[..., Any])

_CONTRACT = ("contract",)  # a multiplication and an addition may fuse; nothing else moves
_REASSOCIATE = {"reassoc", "contract", "nsz"}  # for plain sums above WIDEST; NaN and infinities stay


def kernel(function: Compiled) -> Compiled:
    """Compile without the GIL, and keep the machine code on disk where a directory can be written."""
    try:
        return cast(Compiled, njit(nogil=True, cache=True)(function))
    except RuntimeError:  # no writable place for the cache
        return cast(Compiled, njit(nogil=True)(function))


def plain(function: Compiled) -> Compiled:
    """Compile a loop over a long row, which may sum in any order."""
    return cast(Compiled, njit(nogil=True, fastmath=_REASSOCIATE)(function))


def emitted(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function whose body is written as LLVM instructions."""
    return cast(Callable[..., Any], intrinsic(function))


def meaning_of(name: Callable[..., None]) -> Callable[[Compiled], Compiled]:
    """Decorate the function that picks, by the types of the arguments, the body compiled in place of ``name``."""
    return cast(Callable[[Compiled], Compiled], overload(name, jit_options={"forceinline": True}))


class Lanes(types.Type):  # type: ignore[misc]
    """``count`` numbers side by side, held in as many registers as that takes.

    They are a struct of vectors of 512 bits and, at the end, of half of it, a quarter and so on: a single vector whose
    length is no power of two is loaded number by number.
    """

    def __init__(self, number: Any, count: int) -> None:
        self.number, self.count = number, count
        super().__init__(name=f"Lanes({number}, {count})")

    @property
    def parts(self) -> list[tuple[int, int]]:
        """Where every vector begins, and its length."""
        parts, begin, length = [], 0, 512 // self.number.bitwidth
        while begin < self.count:
            while length > self.count - begin:
                length //= 2
            parts.append((begin, length))
            begin += length
        return parts


class _LanesModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, lanes: Lanes) -> None:
        number = manager.lookup(lanes.number).get_value_type()
        kind = ir.LiteralStructType([ir.VectorType(number, length) for _, length in lanes.parts])
        super().__init__(manager, lanes, kind)


register_model(Lanes)(_LanesModel)


def _joined(context: Any, builder: Any, lanes: Lanes, vectors: list[Any]) -> Any:
    """Make one value of the vectors of lanes."""
    value = ir.Constant(context.get_value_type(lanes), ir.Undefined)
    for place, vector in enumerate(vectors):
        value = builder.insert_value(value, vector, place)
    return value


def _vectors(builder: Any, lanes: Lanes, value: Any) -> list[Any]:
    return [builder.extract_value(value, place) for place in range(len(lanes.parts))]


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, offset: Any) -> Any:
    return builder.gep(context.make_array(array_type)(context, builder, array).data, [offset])


def _ahead(builder: Any, pointer: Any, offset: int) -> Any:
    return builder.gep(pointer, [ir.IntType(64)(offset)])


def _load(builder: Any, pointer: Any, number: Any, count: int) -> Any:
    vector = ir.VectorType(number, count)
    return builder.load(builder.bitcast(pointer, vector.as_pointer()), align=4)


def _shuffled(builder: Any, first: Any, second: Any, picks: list[int]) -> Any:
    return builder.shuffle_vector(first, second, ir.Constant(ir.VectorType(ir.IntType(32), len(picks)), picks))


@emitted
def take(_: Any, array: Any, offset: Any, width: Any) -> Any:
    """Load the ``len(width)`` numbers of an array that begin at ``offset``."""
    lanes = Lanes(array.dtype, len(width))

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer, number = _pointer(context, builder, array, args[0], args[1]), context.get_value_type(array.dtype)
        vectors = [_load(builder, _ahead(builder, pointer, begin), number, length) for begin, length in lanes.parts]
        return _joined(context, builder, lanes, vectors)

    return lanes(array, offset, width), emit


@emitted
def put(_: Any, array: Any, offset: Any, lanes: Any) -> Any:
    """Write lanes to an array from ``offset`` on."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, array, args[0], args[1])
        for (begin, _), vector in zip(lanes.parts, _vectors(builder, lanes, args[2]), strict=True):
            place = builder.bitcast(_ahead(builder, pointer, begin), vector.type.as_pointer())
            builder.store(vector, place, align=4)
        return context.get_dummy_value()

    return types.void(array, offset, lanes), emit


@emitted
def plus(_: Any, first: Any, second: Any) -> Any:
    """Add two lanes."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pairs = zip(*(_vectors(builder, first, value) for value in args), strict=True)
        return _joined(context, builder, first, [builder.fadd(*pair) for pair in pairs])

    return first(first, second), emit


def _factors(context: Any, builder: Any, array_type: Any, array: Any, offset: Any, lanes: Lanes) -> list[Any]:
    """Load one number of an array into all lanes."""
    number = builder.load(_pointer(context, builder, array_type, array, offset))
    factors = []
    for _, length in lanes.parts:
        blank = ir.Constant(ir.VectorType(number.type, length), ir.Undefined)
        first = builder.insert_element(blank, number, ir.IntType(32)(0))
        factors.append(_shuffled(builder, first, first, [0] * length))
    return factors


@emitted
def times(_: Any, lanes: Any, array: Any, offset: Any) -> Any:
    """Multiply lanes by ``array[offset]``."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        factors = _factors(context, builder, array, args[1], args[2], lanes)
        pairs = zip(_vectors(builder, lanes, args[0]), factors, strict=True)
        return _joined(context, builder, lanes, [builder.fmul(*pair, flags=_CONTRACT) for pair in pairs])

    return lanes(lanes, array, offset), emit


@emitted
def plus_times(_: Any, total: Any, lanes: Any, array: Any, offset: Any) -> Any:
    """Compute ``total + lanes · array[offset]``, fused where the processor can."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        factors = _factors(context, builder, array, args[2], args[3], lanes)
        sums = []
        for so_far, vector, factor in zip(
            _vectors(builder, lanes, args[0]), _vectors(builder, lanes, args[1]), factors, strict=True
        ):
            sums.append(builder.fadd(so_far, builder.fmul(vector, factor, flags=_CONTRACT), flags=_CONTRACT))
        return _joined(context, builder, lanes, sums)

    return total(total, lanes, array, offset), emit


@emitted
def dots(_: Any, matrices: Any, start: Any, vector: Any, first: Any, rows: Any, width: Any) -> Any:
    """Multiply ``len(rows)`` consecutive rows with one vector.

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
            if length == padded:
                return _load(builder, _ahead(builder, pointer, offset), number, length)
            value = zero
            for begin, size in Lanes(matrices.dtype, length).parts:
                loaded = _load(builder, _ahead(builder, pointer, offset + begin), number, size)
                wide = _shuffled(builder, loaded, loaded, [min(i, size - 1) for i in range(padded)])
                ours = [i - begin + padded if begin <= i < begin + size else i for i in range(padded)]
                value = _shuffled(builder, value, wide, ours)
            return value

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
        total = sums[0]
        vectors = [
            _shuffled(builder, total, total, list(range(begin, begin + length))) for begin, length in lanes.parts
        ]
        return _joined(context, builder, lanes, vectors)

    return lanes(matrices, start, vector, first, rows, width), emit


@emitted
def expect(_: Any, array: Any, offset: Any, width: Any) -> Any:
    """Prefetch the ``len(width)`` numbers that begin at ``offset``, which are needed soon."""
    size, integer = len(width) * array.dtype.bitwidth // 8, ir.IntType(32)

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer(), integer, integer, integer])
        prefetch = get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        pointer = builder.bitcast(_pointer(context, builder, array, args[0], args[1]), kind.args[0])
        for line in range(0, size, 64):
            reading, near, data = integer(0), integer(3), integer(1)
            builder.call(prefetch, [builder.gep(pointer, [integer(line)]), reading, near, data])
        return context.get_dummy_value()

    return types.void(array, offset, width), emit


@emitted
def nothing(_: Any, array: Any, width: Any) -> Any:
    """Return lanes of zeros."""
    lanes = Lanes(array.dtype, len(width))

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return ir.Constant(context.get_value_type(lanes), None)

    return lanes(array, width), emit


@plain
def add_rows(total: Array, rows: Array, a: float, b: float, c: float, d: float) -> None:
    """Add four rows times their factors."""
    for i in range(total.size):
        total[i] += (rows[0, i] * a + rows[1, i] * b) + (rows[2, i] * c + rows[3, i] * d)


@plain
def add_row(total: Array, row: Array, factor: float) -> None:
    """Add one row times its factor."""
    for i in range(total.size):
        total[i] += row[i] * factor


@plain
def set_row(out: Array, row: Array, factor: float) -> None:
    """Write one row times its factor."""
    for i in range(out.size):
        out[i] = row[i] * factor


@plain
def dot(row: Array, x: Array) -> Any:
    """Compute the inner product."""
    total = row[0] * x[0]
    for i in range(1, row.size):
        total += row[i] * x[i]
    return total
