"""The real scan and its adjoint on the CPU, in compiled loops.

Every row of the batch is the plain recurrence, one small matrix–vector product per step: the least arithmetic
there is.  Rows are shared among threads.  Where threads outnumber rows by far, a row is also cut in time: the
products of its chunks side by side, a short scan over them, then the states (about D times the arithmetic).
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

Job = Callable[[], object]
Span = tuple[int, int, int, int, int]

_WORTH_A_THREAD = 200_000  # nanoseconds of work below which a second thread costs more than it brings
_WORTH_A_JOB = 2_000_000  # nanoseconds: short jobs would spend their time handing the interpreter's lock around
_REPEATS = 4  # a table whose tokens occur this often on average is transposed first: columns are quicker than rows
_WORTH_TRANSPOSING = 4096  # positions; below, reading the table by rows costs less than transposing it
_WORTH_ORDERING = 1 << 19  # products of numbers; below, the gradient of a table is summed in the order of time
_FOUND = find_spec("numba") is not None


def available() -> bool:
    """Tell whether numba is installed; it is imported when first needed."""
    return _FOUND


def forward(
    matrices: Tensor, tokens: Tensor | None, bias: Tensor | None, initial: Tensor, *, _chunks: int | None = None
) -> Tensor:
    """Compute all states ``(B, T, D)`` of ``h_t = M_t h_{t-1} + b_t``.

    Args:
        matrices: A table ``(V, D, D)`` read through ``tokens (B, T)``, or ``(B, T, D, D)`` without tokens.
        tokens: Integers in ``[0, V)``, not checked.
        bias: ``(B, T, D)`` or ``None``.
        initial: ``(B, D)``.
    """
    batch, time = (matrices if tokens is None else tokens).shape[:2]
    lanes = Lanes(batch, time, matrices.shape[-1])
    states = initial.new_empty(batch, time, lanes.dim)
    if states.numel() == 0:
        return states
    chunks = lanes.chunks(_chunks)
    ids = lanes.ids(tokens)
    by_columns = None if tokens is None else read_by_columns(matrices, ids)
    slots, table = by_columns or (ids[:0], matrices)
    advance = _loops().advance_by_columns if by_columns else _loops().advance_by_rows
    operands = flat(table, slots, ids, initial.new_empty(0) if bias is None else bias)

    def advanced(spans: Sequence[Span], entering: Tensor) -> None:
        arrays = *operands, *flat(entering, states)
        run([partial(advance, *arrays, *span, *lanes.size) for span in spans], lanes.nanoseconds)

    if chunks == 1:
        advanced(lanes.rows(), initial)
        return states
    spans = lanes.pieces(chunks)
    products = _products(matrices, ids, lanes, chunks)
    responses = None
    if bias is not None:
        advanced(spans, initial.new_zeros(batch * chunks, lanes.dim))
        responses = states[:, lanes.length(chunks) - 1 :: lanes.length(chunks)][:, : chunks - 1]
    entering = torch.cat((initial.unsqueeze(1), forward(products, None, responses, initial, _chunks=1)), 1)
    advanced(spans, entering)
    advanced(lanes.single_rows(_not_finite(products, entering)), initial)
    return states


def backward(
    matrices: Tensor,
    tokens: Tensor | None,
    initial: Tensor,
    states: Tensor,
    grad: Tensor,
    *,
    wants_matrices: bool,
    _chunks: int | None = None,
) -> tuple[Tensor | None, Tensor, Tensor]:
    """Compute gradients ``(to_matrices, adjoints, to_initial)`` from that of the states, ``grad (B, T, D)``.

    The adjoints ``δ_{t-1} = M_tᵀ δ_t + g_{t-1}`` are the gradient of the bias; ``to_matrices`` is ``Σ δ_t h_{t-1}ᵀ``
    per token or per position, summed in an order that does not depend on the number of threads.
    """
    lanes = Lanes(*states.shape)
    adjoints, nothing = torch.empty_like(states), states.new_zeros(lanes.batch, lanes.dim)
    if states.numel() == 0:
        return torch.zeros_like(matrices) if wants_matrices else None, adjoints, nothing
    chunks = lanes.chunks(_chunks)
    ids = lanes.ids(tokens)
    if not grad.is_contiguous():
        # In place where the gradient is read once: an expanded one then needs no memory of its own.
        grad = adjoints.copy_(grad) if chunks == 1 else grad.contiguous()
    operands = flat(matrices, ids, grad)

    def retreated(spans: Sequence[Span], incoming: Tensor, outgoing: Tensor) -> None:
        arrays = *operands, *flat(incoming, adjoints, outgoing)
        run([partial(_loops().retreat, *arrays, *span, *lanes.size) for span in spans], lanes.nanoseconds)

    to_initial = torch.empty_like(nothing)
    if chunks == 1:
        retreated(lanes.rows(), nothing, to_initial)
    else:
        spans = lanes.pieces(chunks)
        products = _products(matrices, ids, lanes, chunks)
        incoming = states.new_zeros(lanes.batch, chunks, lanes.dim)
        sent = torch.empty_like(incoming)
        retreated(spans, incoming, sent)
        later = sent[:, 1:].contiguous()
        incoming[:, :-1] = backward(products, None, initial, later, later, wants_matrices=False, _chunks=1)[1]
        retreated(spans, incoming, sent)
        to_initial.copy_(sent[:, 0])
        retreated(lanes.single_rows(_not_finite(products, incoming)), nothing, to_initial)
    if not wants_matrices:
        return None, adjoints, to_initial
    if tokens is None:
        return outers(matrices, initial, states, adjoints, lanes), adjoints, to_initial
    return outers_by_token(matrices, ids, initial, states, adjoints, lanes), adjoints, to_initial


@dataclass(frozen=True)
class Lanes:
    """How the batch is cut: a span ``(lane, count, start, stride, steps)`` is the work of one call.

    Position p of the flat arrays is step ``p % time`` of row ``p // time``.
    """

    batch: int
    time: int
    dim: int

    @property
    def size(self) -> tuple[int, tuple[int, ...]]:
        """D as a number, and as the length of a tuple, which the compiler knows (empty when D is large)."""
        return self.dim, (0,) * self.dim if self.dim <= _vectors().WIDEST else ()

    @property
    def nanoseconds(self) -> float:
        """A rough estimate of the time of all steps on one thread."""
        return self.batch * self.time * (8 + self.dim**2 / 30)

    def ids(self, tokens: Tensor | None) -> Tensor:
        """Return which matrix acts at every position."""
        return torch.arange(self.batch * self.time) if tokens is None else tokens.reshape(-1).long()

    def rows(self) -> list[Span]:
        """Return complete rows, shared among the jobs."""
        cuts = _cuts(self.batch, self.nanoseconds)
        return [(row, last - row, row * self.time, self.time, self.time) for row, last in cuts]

    def single_rows(self, rows: Sequence[int]) -> list[Span]:
        """Return one span for each of these rows."""
        return [(row, 1, row * self.time, self.time, self.time) for row in rows]

    def length(self, chunks: int) -> int:
        """Return the steps per chunk; the last one may be shorter."""
        return -(-self.time // chunks)

    def pieces(self, chunks: int) -> list[Span]:
        """Return one span for every chunk of every row."""
        length = self.length(chunks)
        return [
            (row * chunks + chunk, 1, row * self.time + chunk * length, 0, min(length, self.time - chunk * length))
            for row in range(self.batch)
            for chunk in range(chunks)
        ]

    def chunks(self, asked: int | None) -> int:
        """Return the chunks per row: one, unless threads outnumber rows so far that products of chunks save time.

        A step of a product costs about 0.7·D steps of a state (measured for D from 16 to 64).
        """
        chunks = asked or torch.get_num_threads() // self.batch
        if asked is None and (chunks < 3 + 0.7 * self.dim or self.nanoseconds < 20 * self.batch * _WORTH_A_THREAD):
            return 1
        return -(-self.time // self.length(min(chunks, self.time)))  # none of them empty


def _products(matrices: Tensor, ids: Tensor, lanes: Lanes, chunks: int) -> Tensor:
    """Multiply the matrices of every chunk but the last of each row: ``(B, K - 1, D, D)``."""
    products = matrices.new_empty(lanes.batch, chunks - 1, lanes.dim, lanes.dim)
    arrays, out = flat(matrices, ids), flat(products)
    spans = [(start, steps) for lane, _, start, _, steps in lanes.pieces(chunks) if (lane + 1) % chunks]
    ends = range(0, products.numel(), lanes.dim**2)
    jobs: list[Job] = [
        partial(_loops().chunk_product, *arrays, *span, *out, end, *lanes.size)
        for span, end in zip(spans, ends, strict=True)
    ]
    run(jobs, lanes.dim * lanes.nanoseconds)
    return products


def _not_finite(*parts: Tensor) -> list[int]:
    """Return the rows whose products or carried vectors overflowed: they are computed again, step by step."""
    finite = torch.stack([part.isfinite().flatten(1).all(1) for part in parts]).all(0)
    return [int(row) for row in torch.nonzero(~finite)]


def read_by_columns(table: Tensor, ids: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return the index of each token's matrix, and the matrices that occur, transposed; None where it costs more."""
    if ids.numel() < max(_REPEATS * table.shape[0], _WORTH_TRANSPOSING):
        return None
    slots, occurring = ids.new_full((2, table.shape[0]), -1)
    count = _loops().mark_slots(*flat(ids, slots, occurring))
    return slots, table.detach()[occurring[:count]].mT.contiguous()


def outers(matrices: Tensor, initial: Tensor, states: Tensor, adjoints: Tensor, lanes: Lanes) -> Tensor:
    """Compute ``δ_t h_{t-1}ᵀ`` of every position."""
    out = torch.empty_like(matrices, memory_format=torch.contiguous_format)
    arrays, last = flat(adjoints, states, initial), flat(out)
    cuts = _cuts(lanes.batch * lanes.time, lanes.nanoseconds)
    run(
        [partial(_gradients().outers, lanes.time, *arrays, *cut, *last, *lanes.size) for cut in cuts], lanes.nanoseconds
    )
    return out


def outers_by_token(
    table: Tensor, ids: Tensor, initial: Tensor, states: Tensor, adjoints: Tensor, lanes: Lanes
) -> Tensor:
    """Sum ``δ_t h_{t-1}ᵀ`` for every token.

    Positions are ordered by token, stably, so that each sum is taken in registers and in the order of time; blocks
    of that order are shared among threads.  The first position of every row, which begins at ``initial``, comes last.
    Few positions are summed as they come, which takes less time than ordering them.
    """
    loops, (tokens,) = _gradients(), flat(ids)
    out = table.new_zeros(table.shape)
    if ids.numel() * lanes.dim**2 <= _WORTH_ORDERING:
        loops.outers_in_time(tokens, lanes.time, *flat(adjoints, states, initial, out), *lanes.size)
        return out
    order = torch.empty(ids.numel() - lanes.batch, dtype=torch.int32 if ids.numel() < 2**31 else torch.int64)
    sorting = 2.0 * ids.numel()  # nanoseconds
    cuts = _cuts(ids.numel(), sorting)
    counts, stops = ids.new_zeros(len(cuts), table.shape[0]), ids.new_empty(table.shape[0])
    parts = [(tokens, lanes.time, *cut, *flat(part)) for cut, part in zip(cuts, counts, strict=True)]
    run([partial(loops.tally, *part) for part in parts], sorting)
    loops.start_ranks(counts.numpy(), stops.numpy())
    run([partial(loops.rank_positions, *part, *flat(order)) for part in parts], sorting)
    spilled = table.new_zeros(-(-order.numel() // loops.BLOCK), lanes.dim, lanes.dim)
    arrays = tokens, *flat(order, stops, adjoints, states, out, spilled)
    blocks = _cuts(spilled.shape[0], lanes.nanoseconds / 2)
    run([partial(loops.outers_by_token, *arrays, *cut, *lanes.size) for cut in blocks], lanes.nanoseconds / 2)
    loops.add_spilled(tokens, *flat(order, spilled, out), lanes.dim)
    loops.first_outers(tokens, lanes.time, *flat(adjoints, initial, out), lanes.dim)
    return out


def flat(*tensors: Tensor) -> tuple[Any, ...]:
    """Return each tensor as a flat numpy array, which shares its memory when it is contiguous."""
    if dist.is_available() and dist.is_initialized():
        return tuple(np.asarray(_Lent(tensor)) for tensor in tensors)
    return tuple([(tensor.detach() if tensor.requires_grad else tensor).numpy().ravel() for tensor in tensors])


class _Lent:
    """Memory that numpy may use for a while.

    After ``Tensor.numpy`` the storage can never be resized, and FSDP frees parameters by resizing it.
    """

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor.detach().contiguous()  # kept while the array lives
        kind = "f" if tensor.is_floating_point() else "i"
        self.__array_interface__ = {
            "version": 3,
            "shape": (tensor.numel(),),
            "typestr": np.dtype(f"{kind}{tensor.element_size()}").str,
            "data": (self._tensor.data_ptr(), False),
        }


def _threads(nanoseconds: float) -> int:
    return torch.get_num_threads() if nanoseconds >= _WORTH_A_THREAD else 1


def _cuts(total: int, nanoseconds: float) -> list[tuple[int, int]]:
    """Cut ``range(total)`` into even pieces: one per thread, and more when each is still worth a job."""
    threads = _threads(nanoseconds)
    jobs = threads * max(1, min(8, int(nanoseconds / threads / _WORTH_A_JOB)))
    length = max(1, -(-total // jobs))
    return [(first, min(first + length, total)) for first in range(0, total, length)]


def run(jobs: Sequence[Job], nanoseconds: float) -> None:
    """Do all jobs, on other threads too when there is enough work."""
    if len(jobs) == 1:
        jobs[0]()
        return
    queue = deque(jobs)
    other_threads = min(_threads(nanoseconds), len(queue)) - 1
    futures = [_pool(torch.get_num_threads()).submit(_drain, queue) for _ in range(other_threads)]
    _drain(queue)
    for future in futures:
        future.result()


def _drain(queue: deque[Job]) -> None:
    while True:
        try:
            job = queue.popleft()
        except IndexError:
            return
        job()


@lru_cache(1)
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="transductor-scan")


os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not survive a fork


# Importing numba takes half a second, so its loops wait for their first use.


def _vectors() -> ModuleType:
    return import_module("transductor.kernels.cpu.vectors")


def _loops() -> ModuleType:
    return import_module("transductor.kernels.cpu.loops")


def _gradients() -> ModuleType:
    return import_module("transductor.kernels.cpu.gradients")
