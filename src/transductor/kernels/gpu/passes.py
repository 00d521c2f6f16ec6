"""The launches of one scan on a GPU: products of chunks, the states that enter them, all states, all adjoints."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton.language as tl
from torch import Tensor

from transductor.kernels.gpu import cuts
from transductor.kernels.gpu.launch import launch
from transductor.kernels.gpu.products import prepared, products
from transductor.kernels.gpu.sweep import sweep
from transductor.kernels.gpu.word_tables import TORCH_DTYPE, Order, product_dtype, word_table


class ChunkProducts(NamedTuple):
    """The products of chunks, laid out by rows for the forward sweep and by columns for the reversed one."""

    rows: Tensor
    columns: Tensor


class Passes:
    """The operands of one scan, and the launches over them."""

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
        self.letters_of_walk = cuts.walk_letters(
            self.batch, self.time, self.dim, self.symbols,
            masked=mask is not None, packed=starts is not None, double=initial.dtype == torch.float64,
        )  # fmt: skip
        self.work = initial.dtype
        self.acc = tl.float64 if self.work == torch.float64 else tl.float32
        self.precision = "ieee" if self.work == torch.float64 else "tf32x3"
        self.words, self.rows, self.letters, self.ordered = self.matrices, self.matrices, 0, False

    def empty(self, *shape: int) -> Tensor:
        """Allocate numbers of the working dtype."""
        return torch.empty(shape, dtype=self.work, device=self.initial.device)

    def prepare(self, *, reverse: bool) -> None:
        """Lay the table out as the passes read it, where that is worth a launch."""
        if self.tokens is None or not cuts.prepares(self.batch * self.time, self.symbols, reverse=reverse):
            return
        self.ordered = True
        device = self.initial.device
        acc = product_dtype(device, self.work)
        count = 0
        if not reverse:
            self.letters = cuts.word_letters(self.symbols, self.block, self.batch * self.time)
        if self.letters and self.block <= 16:
            count = (self.symbols + 1) ** self.letters
            self.words = torch.empty(count, 16, 16, dtype=TORCH_DTYPE[acc], device=device)
        elif self.letters:
            order: Order = "fragments" if self._product_warps(self.chunks) == 1 else "rows"
            self.words = word_table(
                self.matrices, self.letters, order, identity=True, block=self.block, work=self.work
            )  # fmt: skip
        self.rows = torch.empty(self.symbols, self.block, self.block, dtype=self.matrices.dtype, device=device)
        launch(
            prepared, (count + self.symbols,),
            self.matrices, self.words, self.rows, count, self.symbols,
            D=self.dim, BLOCK=self.block, LETTERS=self.letters if count else 0, ACC=acc, TRANSPOSED=reverse,
            warps=1,
        )  # fmt: skip

    def forget(self) -> None:
        """Let go of the table as it was laid out: the passes that read it are done."""
        self.rows = self.words = self.matrices

    def chunk_products(self) -> ChunkProducts:
        """Multiply the matrices of every chunk: ``(B, K, R, R)``."""
        args = self.chunks, self.time, self.length, self.letters
        return self._products(self.words, self.tokens, self.mask, self.starts, *args, ordered=False)

    def group_products(self, chunk_products: ChunkProducts) -> ChunkProducts:
        """Multiply the products of every group of chunks: ``(B, K', R, R)``; empty when the chunks are few."""
        if not self.groups:
            return self.no_products()
        args = self.groups, self.chunks, self.per_group, 0
        return self._products(chunk_products.rows, None, None, None, *args, ordered=True)

    def no_products(self) -> ChunkProducts:
        """Return empty products, for rows of one chunk or chunks of one group."""
        return ChunkProducts(
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
    ) -> ChunkProducts:
        out = ChunkProducts(*(self.empty(self.batch, chunks, self.block, self.block) for _ in range(2)))
        block = max(16, self.block)
        warps = self._product_warps(chunks)
        launch(
            products, (self.batch * chunks,),
            source, tokens, mask, starts, out.rows, out.columns, chunks, time, length, self.symbols,
            D=self.dim, BLOCK=block, ROWS=self.block, LETTERS=letters, LINE=warps == 1,
            ACC=product_dtype(source.device, self.work), DENSE=tokens is None, ORDERED=ordered,
            MASKED=mask is not None, PACKED=starts is not None, warps=warps, stages=1 if warps == 1 else 2,
        )  # fmt: skip
        return out

    def _product_warps(self, chunks: int) -> int:
        return cuts.product_warps(max(16, self.block), self.batch * chunks)

    def states(self, additive: Tensor | None, entering: Tensor | None, out: Tensor | None = None) -> Tensor:
        """Compute all states ``(B, T, D)`` from those that enter the chunks; without these, from the initial ones.

        ``out`` may be some of the columns of something wider.
        """
        if out is None:
            out = self.empty(self.batch, self.time, self.dim)
        self._positions(additive, entering, out, reverse=False, write="after")
        return out

    def responses(self, additive: Tensor | None, *, reverse: bool) -> Tensor:
        """Compute the state at the end of every chunk that starts from zero: ``(B, K, D)``."""
        out = self.empty(self.batch, self.chunks, self.dim)
        self._positions(additive, None, out, reverse=reverse, write="end")
        return out

    def adjoints(
        self, grad: Tensor, entering: Tensor | None, to_initial: Tensor, out: Tensor, first: int, last: int
    ) -> None:
        """Write ``δ`` of the chunks ``first … last - 1`` of all rows to ``out``, which begins at the first of them."""
        shift = self.position_of(first)
        lanes = (first, last, shift)
        self._positions(grad, entering, out, reverse=True, write="after", to_initial=to_initial, lanes=lanes)

    def position_of(self, lane: int) -> int:
        """Return where chunk number ``lane``, counted over all rows, begins in the flattened rows."""
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
        """Compute the state (reversed: the adjoint) that enters every chunk: ``(B, K, D)``."""
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
        _, tokens, additive, mask, starts, _, _, _, _, out, *_ = args
        *operands, first, last, chunks, time, length, shift = args
        lanes = max(1, 32 // self.block)
        launch(
            sweep, (cuts.ceiling(last - first, lanes),),
            *operands, first, last, chunks, time, length, self.symbols, shift,
            D=self.dim, BLOCK=self.block, LANES=lanes, AHEAD=cuts.read_ahead(ahead, self.block), ACC=self.acc,
            DENSE=tokens is None, ORDERED=ordered, ADDITIVE=additive is not None,
            PITCH=self.dim if additive is None else additive.stride(-2), MASKED=mask is not None,
            PACKED=starts is not None, REVERSED=reverse, ADD_FIRST=add_first, START=start, WRITE=write,
            OUT_PITCH=out.stride(-2), REPLAYS=replays,
            warps=max(1, self.block // 32), registers=64 if ahead == 0 and self.block <= 16 else None,
        )  # fmt: skip
