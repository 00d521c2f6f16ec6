"""The normalised scan and its adjoint on a GPU: chunks from guessed starts, which are then shown to be right.

A belief forgets where it began.  So every chunk begins where the last steps of the one before end from anywhere, all
chunks are computed side by side, and then the end of each is compared with the start of the next: where they are equal
to a few roundings, entry by entry, all chunks together are the recurrence itself.  Else the ends are the next starts.
Rows that do not agree after a few rounds, because their matrices forget nothing, are computed in order, as one chunk.
No product of matrices is formed, which would take D times as much work.  Adjoints forget as well, back in time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import torch
import triton.language as tl
from torch import Tensor

from transductor.kernels.gpu import matrix_gradients
from transductor.kernels.gpu.cuts import LARGEST_STATE, ceiling, row_block
from transductor.kernels.gpu.launch import launch
from transductor.kernels.gpu.normalised_sweep import advance, retreat
from transductor.kernels.gpu.passes import Passes

ROUNDS: Final = 6  # of chunks side by side, before a row is computed in order
WARM: Final = 64  # steps before a chunk that its first start is guessed from
_LANES: Final = 2048
_ROOM: Final = 1 << 26  # numbers that may be written to sum gradients by token
_LN2: Final = math.log(2.0)
_ROUNDINGS: Final = 32.0


def cut_into(batch: int, time: int) -> tuple[int, int]:
    """Return how many chunks a row has, and their length: enough for all multiprocessors, but not short ones."""
    length = max(2 * WARM, ceiling(batch * time, _LANES))
    chunks = ceiling(time, length) if time > 2 * length else 1
    return (chunks, length) if chunks > 1 else (1, max(time, 1))


class _Sweeps:
    """The operands that both directions share."""

    def __init__(self, matrices: Tensor, tokens: Tensor | None, batch: int, time: int, work: torch.dtype) -> None:
        self.matrices, self.tokens = matrices.contiguous(), None if tokens is None else tokens.contiguous()
        self.batch, self.time, self.dim, self.work = batch, time, matrices.shape[-1], work
        self.rows = torch.arange(batch, device=matrices.device)

    def run(
        self,
        kernel: Any,
        rows: Tensor,
        arrays: tuple[Tensor, ...],
        cut: tuple[int, int],
        kind: int,
        *,
        writes: bool,
        limit: float = 0.0,
    ) -> None:
        """Launch a sweep over the chunks of some rows."""
        chunks, length = cut
        block = row_block(self.dim)
        size = block * block * self.work.itemsize
        symbols = 0 if self.tokens is None else self.matrices.shape[0]
        launch(
            kernel, (len(rows) * chunks,),
            self.matrices, self.tokens, rows, *arrays, chunks, self.time, length, WARM, symbols,
            D=self.dim, BLOCK=block, KIND=kind, ACC=tl.float64 if self.work == torch.float64 else tl.float32,
            DENSE=self.tokens is None, WRITES=writes, LIMIT=limit, warps=max(1, min(8, size // 16384)),
        )  # fmt: skip

    def settle(
        self,
        first: Tensor,
        cut: tuple[int, int],
        sweep: Callable[[Tensor, Tensor, Tensor, tuple[int, int], bool], None],
        next_starts: Callable[[Tensor], Tensor],
        agree: Callable[[Tensor, Tensor], Tensor],
    ) -> Tensor:
        """Sweep until every row agrees with itself; return the starts ``(B, K, D)`` that were used.

        ``first`` has the true start of a chunk where it is known, ``sweep`` writes results and ends of some rows, and
        ``next_starts`` turns ends into the starts of the neighbours, keeping the known ones.
        """
        starts, rows = first, self.rows
        if cut[0] == 1:
            sweep(rows, starts, torch.empty_like(starts), cut, True)
            return starts
        ends = torch.empty_like(starts)
        sweep(rows, starts, ends, cut, False)
        starts = next_starts(ends)
        for _ in range(ROUNDS):
            sweep(rows, starts, ends, cut, True)
            wanted = next_starts(ends)
            apart = ~agree(starts[rows], wanted[rows])
            if not bool(apart.any()):
                return starts
            rows = rows[apart]
            starts = starts.index_copy(0, rows, wanted[rows])
        starts[rows] = math.nan  # these rows have one chunk
        return starts


def forward(matrices: Tensor, tokens: Tensor | None, initial: Tensor, kind: int) -> tuple[Tensor, Tensor]:
    """Compute normalised states ``(B, T, D)`` and the logs of their norms ``(B, T)`` in float64.

    Args:
        matrices: A table ``(V, D, D)`` read through ``tokens (B, T)``, or ``(B, T, D, D)`` without tokens.
        tokens: Integers; one outside ``[0, V)`` turns every later state of its row into NaN.
        initial: ``(B, D)``, scaled to moderate size, in float32 or float64: the dtype of the states.
        kind: Which norm: 1 for l1, 2 for l2, 3 for the largest.
    """
    batch, time = (matrices if tokens is None else tokens).shape[:2]
    sweeps = _Sweeps(matrices, tokens, batch, time, initial.dtype)
    states = initial.new_empty(batch, time, sweeps.dim)
    norms, powers = initial.new_empty(batch, time), initial.new_empty(batch, time, dtype=torch.int32)

    def sweep(rows: Tensor, starts: Tensor, ends: Tensor, cut: tuple[int, int], writes: bool) -> None:
        sweeps.run(advance, rows, (starts, states, norms, powers, ends), cut, kind, writes=writes)

    def next_starts(ends: Tensor) -> Tensor:
        sizes = _norms(ends[:, :-1], kind)
        scaled = ends[:, :-1] / sizes.where(sizes != 0, 1.0).unsqueeze(-1)
        return torch.cat((initial.unsqueeze(1), scaled), 1)

    def agree(used: Tensor, wanted: Tensor) -> Tensor:
        most = _ROUNDINGS * torch.finfo(used.dtype).eps
        return ((used - wanted).abs() <= most * wanted.abs()).flatten(1).all(1)

    cut = chunks, length = cut_into(batch, time)
    guess = torch.ones_like(initial).unsqueeze(1).expand(-1, chunks - 1, -1)
    starts = sweeps.settle(torch.cat((initial.unsqueeze(1), guess), 1), cut, sweep, next_starts, agree)
    local = norms.double().log() + powers.double() * _LN2
    if chunks == 1:
        return states, local
    # A chunk's logs begin at that of its start; what the chunk before ends with is added.
    sizes = _norms(starts[:, 1:].double(), kind)
    gained = local[:, length - 1 :: length][:, : chunks - 1] - sizes.log().where(sizes != 0, 0.0)
    before = torch.nn.functional.pad(gained.cumsum(1), (1, 0))
    logs = local + before.repeat_interleave(length, 1)[:, :time]
    lost = starts[:, -1, 0].isnan()
    if bool(lost.any()):
        rows = sweeps.rows[lost]
        begun = torch.empty_like(initial)
        sweep(rows, initial.contiguous(), begun, (1, time), True)
        logs[lost] = norms[lost].double().log() + powers[lost].double() * _LN2
    return states, logs


def backward(
    matrices: Tensor,
    tokens: Tensor | None,
    states: Tensor,
    sides: tuple[Tensor, Tensor, Tensor],
    kind: int,
    limit: float,
) -> tuple[Tensor, Tensor]:
    """Compute the adjoints ``q_t (B, T, D)``, and ``M_1ᵀ q_1 (B, D)``.

    Args:
        matrices: As for :func:`forward`.
        tokens: As for :func:`forward`.
        states: Normalised states ``(B, T, D)``.
        sides: Gradients of the states ``(B, T, D)``, sums of the later gradients of the logs, and ``1 / c_t (B, T)``.
        kind: Which norm.
        limit: Where adjoints are cut.
    """
    batch, time, _ = states.shape
    sweeps = _Sweeps(matrices, tokens, batch, time, states.dtype)
    grad, totals, inverse = (side.contiguous() for side in sides)
    states, adjoints = states.contiguous(), torch.empty_like(states, memory_format=torch.contiguous_format)
    leaving = states.new_empty(batch, sweeps.dim)

    def sweep(rows: Tensor, starts: Tensor, ends: Tensor, cut: tuple[int, int], writes: bool) -> None:
        arrays = starts, grad, states, totals, inverse, adjoints, ends
        sweeps.run(retreat, rows, arrays, cut, kind, writes=writes, limit=limit)
        if writes:
            leaving[rows] = ends[rows, 0]

    def next_starts(ends: Tensor) -> Tensor:
        return torch.cat((ends[:, 1:], torch.zeros_like(ends[:, :1])), 1)

    def agree(used: Tensor, wanted: Tensor) -> Tensor:
        most = _ROUNDINGS * torch.finfo(used.dtype).eps * wanted.abs().amax(-1, keepdim=True)
        return ((used - wanted).abs() <= most).flatten(1).all(1)

    cut = cut_into(batch, time)
    nothing = states.new_zeros(batch, cut[0], sweeps.dim)
    starts = sweeps.settle(nothing, cut, sweep, next_starts, agree)
    lost = starts[:, 0, 0].isnan()
    if cut[0] > 1 and bool(lost.any()):
        nothing = nothing[:, :1].contiguous()
        sweep(sweeps.rows[lost], nothing, torch.empty_like(nothing), (1, time), True)
    return adjoints, leaving


def matrix_gradient(
    matrices: Tensor, tokens: Tensor | None, begun: Tensor, states: Tensor, adjoints: Tensor
) -> Tensor | None:
    """Compute ``Σ q_t h_{t−1}ᵀ`` per token or per position without waiting for the device; None where it is too large.

    Args:
        matrices: As for :func:`forward`.
        tokens: As for :func:`forward`.
        begun: Normalised initial states ``(B, D)``.
        states: Normalised states ``(B, T, D)``.
        adjoints: ``q_t (B, T, D)``.
    """
    dim = begun.shape[-1]
    if dim <= LARGEST_STATE:
        passes = Passes(matrices, tokens, begun, None, None)
        flat = adjoints.reshape(-1, dim)
        if tokens is not None:
            return matrix_gradients.by_token(passes, states.contiguous(), flat, 0)
        out = torch.empty_like(passes.matrices)
        matrix_gradients.by_position(passes, states.contiguous(), flat, 0, out)
        return out
    if tokens is None or adjoints.numel() * matrices.shape[0] > _ROOM:
        return None
    before = torch.cat((begun.unsqueeze(1), states[:, :-1]), 1).flatten(0, 1)
    symbols = torch.arange(matrices.shape[0], device=matrices.device)
    chosen = (tokens.flatten() == symbols[:, None]).unsqueeze(-1)  # (V, B·T, 1)
    return (adjoints.flatten(0, 1) * chosen).mT @ before


def _norms(states: Tensor, kind: int) -> Tensor:
    sizes: Tensor = torch.linalg.vector_norm(states, {1: 1, 2: 2, 3: math.inf}[kind], dim=-1)
    return sizes
