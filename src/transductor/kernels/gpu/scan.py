"""The scan and its adjoint on a GPU: which kernels run, over what, in which order.

Forward: products of chunks; above them products of groups of chunks when there are many; the state that enters
every chunk; all states.  Backward is the same over the adjoints, with the products already known.
"""

from __future__ import annotations

from functools import lru_cache
from operator import sub
from typing import Any, NamedTuple

import torch
import triton.language as tl
from torch import Tensor

from transductor.kernels.gpu import cuts
from transductor.kernels.gpu.gradients import grouped_runs, joined_runs, outer, picked, summed, switched
from transductor.kernels.gpu.launch import launch
from transductor.kernels.gpu.products import prepared, products
from transductor.kernels.gpu.sweep import sweep

# Up to this many tokens, one sum per token in registers costs less than sorting the positions (or picking them).
_SWITCHED = 16
# From this many numbers on (32 MiB of float32 states) room counts as much as time: adjoints that nobody asked for are
# kept for half of the positions or less at a time, and partial sums are fewer.
_THRIFTY = 1 << 23


def _ceiling(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)


class _Products(NamedTuple):
    """Products of chunks, laid out by rows for the forward sweep and by columns for the reversed one."""

    rows: Tensor
    columns: Tensor


class _Scan:
    """One scan: its operands, and the launches over them."""

    def __init__(
        self,
        matrices: Tensor,
        tokens: Tensor | None,
        initial: Tensor,
        mask: Tensor | None,
        starts: Tensor | None,
    ) -> None:
        if matrices.dtype.itemsize == 2 and (tokens is not None or matrices.shape[-1] > 16):
            # Triton 3.6 cannot feed half precision, widened, to a float64 product of tiles.
            matrices = matrices.to(initial.dtype)
        self.matrices = matrices.contiguous()
        self.tokens = None if tokens is None else tokens.contiguous()
        self.initial = initial.contiguous()
        self.mask = None if mask is None else mask.contiguous().view(torch.uint8)
        self.starts = starts
        self.batch, self.time = (matrices if tokens is None else tokens).shape[:2]
        self.dim = matrices.shape[-1]
        self.symbols = 0 if tokens is None else matrices.shape[0]
        self.length = cuts.chunk_length(self.batch, self.time, self.dim)
        self.chunks = cuts.chunk_count(self.batch, self.time, self.dim)
        self.per_group = cuts.chunks_per_group(self.chunks, self.dim)
        self.groups = cuts.group_count(self.chunks, self.dim)
        self.block = cuts.row_block(self.dim)
        self.work = initial.dtype
        self.acc = tl.float64 if self.work == torch.float64 else tl.float32
        self.precision = "ieee" if self.work == torch.float64 else "tf32x3"
        self.words, self.rows, self.letters, self.ordered = self.matrices, self.matrices, 0, False

    def empty(self, *shape: int) -> Tensor:
        """Uninitialised numbers of the working dtype."""
        return torch.empty(shape, dtype=self.work, device=self.initial.device)

    def prepare(self, *, reverse: bool) -> None:
        """Lay the table out as the passes read it, where that is worth a launch."""
        if self.tokens is None or not cuts.prepares(self.batch * self.time, self.symbols):
            return
        self.ordered = True
        device = self.initial.device
        acc = _product_dtype(device, self.work)
        count = 0
        if self.dim <= 16 and not reverse:
            self.letters = cuts.word_letters(self.symbols)
            count = (self.symbols + 1) ** self.letters
            self.words = torch.empty(count, 16, 16, dtype=_TORCH[acc], device=device)
        self.rows = torch.empty(self.symbols, self.block, self.block, dtype=self.matrices.dtype, device=device)
        launch(
            prepared, (count + self.symbols,),
            self.matrices, self.words, self.rows, count, self.symbols,
            D=self.dim, BLOCK=self.block, LETTERS=self.letters, ACC=acc, TRANSPOSED=reverse,
            warps=1,
        )  # fmt: skip

    def chunk_products(self) -> _Products:
        """``(B, K, R, R)``."""
        args = self.chunks, self.time, self.length, self.letters
        return self._products(self.words, self.tokens, self.mask, self.starts, *args, ordered=False)

    def group_products(self, chunk_products: _Products) -> _Products:
        """``(B, K', R, R)``; empty when the chunks are few."""
        if not self.groups:
            return self.no_products()
        args = self.groups, self.chunks, self.per_group, 0
        return self._products(chunk_products.rows, None, None, None, *args, ordered=True)

    def no_products(self) -> _Products:
        """For rows of one chunk, or chunks of one group."""
        return _Products(
            self.empty(self.batch, 0, self.block, self.block), self.empty(self.batch, 0, self.block, self.block)
        )

    def _products(
        self,
        source: Tensor,
        tokens: Tensor | None,
        mask: Tensor | None,
        starts: Tensor | None,
        chunks: int,
        time: int,
        length: int,
        letters: int,
        *,
        ordered: bool,
    ) -> _Products:
        out = _Products(*(self.empty(self.batch, chunks, self.block, self.block) for _ in range(2)))
        block = max(16, self.block)
        warps = cuts.product_warps(block, self.batch * chunks)
        launch(
            products, (self.batch * chunks,),
            source, tokens, mask, starts, out.rows, out.columns, chunks, time, length, self.symbols,
            D=self.dim, BLOCK=block, ROWS=self.block, LETTERS=letters, LINE=warps == 1,
            ACC=_product_dtype(source.device, self.work), DENSE=tokens is None, ORDERED=ordered,
            MASKED=mask is not None, PACKED=starts is not None, warps=warps, stages=1 if warps == 1 else 2,
        )  # fmt: skip
        return out

    def states(self, additive: Tensor | None, entering: Tensor | None) -> Tensor:
        """``(B, T, D)`` from the states that enter the chunks; without those, from the initial ones."""
        out = self.empty(self.batch, self.time, self.dim)
        self._positions(additive, entering, out, reverse=False, write="after")
        return out

    def responses(self, additive: Tensor | None, *, reverse: bool) -> Tensor:
        """What every chunk makes of its additive terms alone: ``(B, K, D)``."""
        out = self.empty(self.batch, self.chunks, self.dim)
        self._positions(additive, None, out, reverse=reverse, write="end")
        return out

    def adjoints(
        self, grad: Tensor, entering: Tensor | None, to_initial: Tensor, out: Tensor, first: int, last: int
    ) -> None:
        """``δ`` of the chunks ``first … last - 1`` of all rows into ``out``, which begins at the first of them."""
        shift = self.position_of(first)
        lanes = (first, last, shift)
        self._positions(grad, entering, out, reverse=True, write="after", to_initial=to_initial, lanes=lanes)

    def position_of(self, lane: int) -> int:
        """Where chunk number ``lane``, counted over all rows, begins in the flattened rows."""
        row, chunk = divmod(lane, self.chunks)
        return row * self.time + chunk * self.length

    def _positions(
        self,
        additive: Tensor | None,
        entering: Tensor | None,
        out: Tensor,
        *,
        reverse: bool,
        write: str,
        to_initial: Tensor | None = None,
        lanes: tuple[int, int, int] | None = None,
    ) -> None:
        start = "entering" if entering is not None else "zero" if write == "end" or reverse else "initial"
        first, last, shift = lanes or (0, self.batch * self.chunks, 0)
        self._sweep(
            self.rows, self.tokens, additive, self.mask, self.starts, self.initial, entering, None, None, out,
            to_initial, first, last, self.chunks, self.time, self.length if self.chunks > 1 else self.time, shift,
            ordered=self.ordered, reverse=reverse, add_first=reverse, start=start, write=write,
            replays=entering is not None, ahead=0,
        )  # fmt: skip

    def entering(
        self, chunk_products: Tensor, group_products: Tensor, responses: Tensor | None, *, reverse: bool
    ) -> Tensor:
        """The state (reversed: the adjoint) that enters every chunk: ``(B, K, D)``."""
        out = self.empty(self.batch, self.chunks, self.dim)
        initial = None if reverse or self.starts is not None else self.initial

        def over_chunks(out: Tensor, groups: int, length: int, start: str, write: str, above: Tensor | None) -> None:
            self._sweep(
                chunk_products, None, responses, None, None, initial, None, group_products, above, out, None,
                0, self.batch * groups, groups, self.chunks, length, 0,
                ordered=True, reverse=reverse, add_first=False, start=start, write=write, replays=False, ahead=4,
            )  # fmt: skip

        if not self.groups:
            over_chunks(out, 1, self.chunks, "initial", "before", None)
            return out
        above = None
        if responses is not None:
            above = self.empty(self.batch, self.groups, self.dim)
            over_chunks(above, self.groups, self.per_group, "zero", "end", None)
        over_chunks(out, self.groups, self.per_group, "groups", "before", above)
        return out

    def _sweep(
        self,
        *args: Any,
        ordered: bool,
        reverse: bool,
        add_first: bool,
        start: str,
        write: str,
        replays: bool,
        ahead: int,
    ) -> None:
        _, tokens, additive, mask, starts, *_ = args
        *operands, first, last, chunks, time, length, shift = args
        lanes = max(1, 32 // self.block)
        launch(
            sweep, (_ceiling(last - first, lanes),),
            *operands, first, last, chunks, time, length, self.symbols, shift,
            D=self.dim, BLOCK=self.block, LANES=lanes, AHEAD=cuts.read_ahead(ahead, self.block), ACC=self.acc,
            DENSE=tokens is None, ORDERED=ordered, ADDITIVE=additive is not None, MASKED=mask is not None,
            PACKED=starts is not None, REVERSED=reverse, ADD_FIRST=add_first, START=start, WRITE=write, REPLAYS=replays,
            warps=max(1, self.block // 32), registers=64 if ahead == 0 and self.block <= 16 else None,
        )  # fmt: skip

    def matrix_gradient(self, states: Tensor, adjoints: Tensor, begin: int) -> Tensor:
        """``Σ δ_t h_{t-1}ᵀ`` per token over the positions of ``adjoints (N, D)``, which begin at ``begin``."""
        assert self.tokens is not None
        count = adjoints.shape[0]
        packed = self.starts is not None
        flat = self.tokens.view(-1)
        if self.symbols <= _SWITCHED and self.dim <= 32:
            block = max(16, self.block)
            first_row, last_row = begin // self.time, _ceiling(begin + count, self.time)
            rows = last_row - first_row
            sums = min(1024, max(32, self.room_for_sums(states) // (self.symbols * self.dim**2)))
            spans = min(_ceiling(self.time, 64), max(1, sums // rows))
            span = _ceiling(self.time, spans)
            parts = rows * spans
            partial = self.empty(parts, self.symbols, self.dim, self.dim)
            launch(
                switched, (parts,),
                adjoints, states, self.initial, flat, self.mask, self.starts, partial, first_row, spans, span, begin,
                begin + count, self.time,
                D=self.dim, BLOCK=block, SYMBOLS=self.symbols, AHEAD=4, MASKED=self.mask is not None, PACKED=packed,
                ACC=self.acc, warps=block**2 // 256,
            )  # fmt: skip
            return self._summed(partial)
        spans = cuts.picking_spans(count, self.symbols, self.room_for_sums(states) // (self.symbols * self.dim**2))
        if spans:
            partial = self.empty(spans, self.symbols, self.dim, self.dim)
            chosen = torch.empty(count, dtype=torch.int32, device=self.initial.device)
            launch(
                picked, (self.symbols, spans),
                adjoints, states, self.initial, flat, self.mask, self.starts, chosen, partial, begin, count,
                _ceiling(count, spans), self.time, self.symbols,
                D=self.dim, BLOCK=max(16, self.block), TILE=32, MASKED=self.mask is not None, PACKED=packed,
                PRECISION=self.precision, ACC=self.acc, warps=1 if self.block <= 32 else 4,
            )  # fmt: skip
            return self._summed(partial)
        here = flat[begin : begin + count]
        if self.mask is not None:  # sorted last, and left out
            here = here.where(self.mask.view(-1)[begin : begin + count].bool(), self.symbols)
        # Narrow keys sort faster; but Triton 3.6 cannot mix them with a float64 product.
        narrow = torch.int16 if self.symbols < 1 << 15 and self.work == torch.float32 else torch.int32
        sorted_tokens, order = torch.sort(here.clamp(-1, self.symbols).to(narrow), stable=True)
        tile, block = 64, max(16, self.block)
        tiles = _ceiling(count, tile)
        edges = self.empty(tiles, 2, self.dim, self.dim)
        total = torch.zeros(self.matrices.shape, dtype=self.work, device=self.initial.device)
        launch(
            grouped_runs, (tiles,),
            adjoints, states, self.initial, self.starts, order, sorted_tokens, total, edges, begin, count,
            self.time, self.symbols,
            D=self.dim, BLOCK=block, TILE=tile, PACKED=packed,
            PRECISION=self.precision, ACC=self.acc, warps=4,
        )  # fmt: skip
        launch(
            joined_runs, (tiles,), sorted_tokens, edges, total, count, tiles, self.symbols,
            D=self.dim, BLOCK=block, TILE=tile, ACC=self.acc, warps=1,
        )  # fmt: skip
        return total

    def _summed(self, partial: Tensor) -> Tensor:
        """``(P, V, D, D)`` over P."""
        total = self.empty(*partial.shape[1:])
        size = total.numel()
        lanes = 64 if len(partial) > 16 else 16
        tile = 1024 // lanes
        launch(
            summed, (_ceiling(size, tile),), partial, total, len(partial), size,
            LANES=lanes, TILE=tile, ACC=self.acc, warps=4,
        )  # fmt: skip
        return total

    def room_for_sums(self, states: Tensor) -> int:
        """Numbers that partial sums may hold together: where room counts, an eighth of the states."""
        return 1 << 22 if states.numel() < _THRIFTY else states.numel() // 8

    def position_gradients(self, states: Tensor, adjoints: Tensor, begin: int, out: Tensor) -> None:
        """``δ_t h_{t-1}ᵀ`` of the positions of ``adjoints (N, D)``, which begin at ``begin``, into ``out``."""
        count = adjoints.shape[0]
        tile = max(1, 1024 // self.block**2)
        launch(
            outer, (_ceiling(count, tile),),
            adjoints, states, self.initial, self.starts, out, begin, count, self.time,
            D=self.dim, BLOCK=self.block, TILE=tile, PACKED=self.starts is not None, warps=4,
        )  # fmt: skip


_TORCH = {tl.float32: torch.float32, tl.float64: torch.float64}


@lru_cache(maxsize=64)
def _product_dtype(device: torch.device, work: torch.dtype) -> Any:
    """float64 where the matrix units compute it at the rate of float32 (A100, H100, H200), else the working dtype."""
    if work == torch.float64 or device.type != "cuda":
        return tl.float64
    return tl.float64 if torch.cuda.get_device_capability(device) in ((8, 0), (9, 0)) else tl.float32


def forward(
    matrices: Tensor,
    tokens: Tensor | None,
    bias: Tensor | None,
    initial: Tensor,
    mask: Tensor | None,
    starts: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """States ``(B, T, D)``, and the products of chunks and of groups that the backward pass uses again.

    Args:
        matrices: A table ``(V, D, D)`` with ``tokens (B, T)``, else ``(B, T, D, D)``; any floating dtype.
        tokens: int32 or int64; one outside ``[0, V)`` turns every later state of its row into NaN.
        bias: ``(B, T, D)``.
        initial: ``(B, D)``, or ``(N, D)`` per document; its dtype, float32 or float64, is that of the states.
        mask: ``(B, T)`` bool.
        starts: ``(T)`` int32 for a packed row: the document that begins at this position, else -1.
    """
    scan = _Scan(matrices, tokens, initial, mask, starts)
    additive = None if bias is None else bias.contiguous()
    if scan.chunks == 1:
        nothing = scan.no_products()
        return scan.states(additive, None), *nothing
    scan.prepare(reverse=False)
    chunk_products = scan.chunk_products()
    group_products = scan.group_products(chunk_products)
    affine = bias is not None or starts is not None
    responses = scan.responses(additive, reverse=False) if affine else None
    entering = scan.entering(chunk_products.rows, group_products.rows, responses, reverse=False)
    return scan.states(additive, entering), chunk_products.columns, group_products.columns


def backward(
    matrices: Tensor,
    tokens: Tensor | None,
    initial: Tensor,
    mask: Tensor | None,
    starts: Tensor | None,
    states: Tensor,
    chunk_products: Tensor,
    group_products: Tensor,
    grad: Tensor,
    *,
    wants_matrices: bool,
    wants_bias: bool,
) -> tuple[Tensor | None, Tensor | None, Tensor]:
    """Gradients of ``matrices``, of ``bias`` and of ``initial``, from that of the states ``grad (B, T, D)``."""
    scan = _Scan(matrices, tokens, initial, mask, starts)
    grad = grad.contiguous()
    to_initial = torch.zeros_like(scan.initial) if starts is not None else torch.empty_like(scan.initial)
    entering = None
    if scan.chunks > 1:
        scan.prepare(reverse=True)
        responses = scan.responses(grad, reverse=True)
        entering = scan.entering(chunk_products, group_products, responses, reverse=True)
    to_matrices = None
    if wants_matrices and tokens is None:
        to_matrices = torch.empty_like(scan.matrices)
    lanes = scan.batch * scan.chunks
    share = 2 if scan.length >= 4 * scan.dim else 4  # shorter chunks leave larger products
    slabs = 1 if wants_bias else max(1, min(8, lanes, share * (grad.numel() // _THRIFTY)))
    bounds = [lanes * slab // slabs for slab in range(slabs + 1)]
    places = [scan.position_of(bound) for bound in bounds]
    room = scan.empty(max(map(sub, places[1:], places)), scan.dim)  # one slab's adjoints, used again for the next
    for first, last, begin, end in zip(bounds, bounds[1:], places, places[1:], strict=False):
        adjoints = room[: end - begin]
        scan.adjoints(grad, entering, to_initial, adjoints, first, last)
        if tokens is None and to_matrices is not None:
            scan.position_gradients(states, adjoints, begin, to_matrices)
        elif wants_matrices:
            part = scan.matrix_gradient(states, adjoints, begin)
            to_matrices = part if to_matrices is None else to_matrices.add_(part)
    if to_matrices is not None:
        to_matrices = to_matrices.to(matrices.dtype)
    to_bias = room.view_as(grad) if wants_bias else None
    return to_matrices, to_bias, to_initial
