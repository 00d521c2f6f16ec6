"""The gradient of the matrices of a GPU scan, per token or per position, from its adjoints."""

from __future__ import annotations

import torch
from torch import Tensor

from transductor.kernels.gpu import cuts
from transductor.kernels.gpu.gradients import outer, picked, summed
from transductor.kernels.gpu.launch import launch
from transductor.kernels.gpu.passes import Passes
from transductor.kernels.gpu.runs import grouped_runs, joined_runs, short_runs, sorting_keys

# From this many numbers on (32 MiB of float32 states) memory counts as much as time: adjoints that were not asked for
# are kept for half of the positions or less at a time, and there are fewer partial sums.
LARGE = 1 << 23


def slabs(passes: Passes, states: Tensor, kept: int) -> int:
    """Return in how many parts the adjoints of a scan are computed, beside ``kept`` bytes of products.

    Together they take less than half of what has to be there anyway: tokens, table, states and the gradients of both.
    """
    if states.numel() < LARGE:
        return 1
    least = 8 * passes.batch * passes.time + 2 * passes.matrices.nbytes + 2 * states.nbytes
    room = 9 * least // 20 - kept - states.nbytes // 8
    return min(8, cuts.ceiling(states.nbytes, room)) if room > 0 else 8


def by_token(passes: Passes, states: Tensor, adjoints: Tensor, begin: int) -> Tensor:
    """Sum ``δ_t h_{t-1}ᵀ`` per token over the positions of ``adjoints (N, D)``, which begin at ``begin``."""
    assert passes.tokens is not None
    count = adjoints.shape[0]
    packed = passes.starts is not None
    flat = passes.tokens.view(-1)
    spans = cuts.picking_spans(count, passes.symbols, room_for_sums(states) // (passes.symbols * passes.dim**2))
    if spans:
        partial = passes.empty(spans, passes.symbols, passes.dim, passes.dim)
        chosen = torch.empty(count, dtype=torch.int32, device=passes.initial.device)
        launch(
            picked, (passes.symbols, spans),
            adjoints, states, passes.initial, flat, passes.mask, passes.starts, chosen, partial, begin, count,
            cuts.ceiling(count, spans), passes.time, passes.symbols,
            D=passes.dim, BLOCK=max(16, passes.block), TILE=32, PITCH=states.stride(-2),
            MASKED=passes.mask is not None, PACKED=packed, PRECISION=passes.precision, ACC=passes.acc,
            warps=1 if passes.block <= 32 else 4,
        )  # fmt: skip
        return over_parts(passes, partial)
    return _sorted(passes, states, adjoints, begin)


def _sorted(passes: Passes, states: Tensor, adjoints: Tensor, begin: int) -> Tensor:
    """Sum per token over positions sorted by token."""
    assert passes.tokens is not None
    count, symbols, device = len(adjoints), passes.symbols, adjoints.device
    # Narrow keys sort faster; but Triton 3.6 cannot mix them with a float64 product.
    narrow = symbols < (1 << 16) - 1 and passes.work == torch.float32
    lowest = -(1 << 15) if narrow else 0
    keys = torch.empty(count, dtype=torch.int16 if narrow else torch.int32, device=device)
    masked, packed, pitch = passes.mask is not None, passes.starts is not None, states.stride(-2)
    launch(
        sorting_keys, (cuts.ceiling(count, 1024),), passes.tokens, passes.mask, keys, begin, count, symbols, lowest,
        TILE=1024, MASKED=masked, warps=4,
    )  # fmt: skip
    keys, order = torch.sort(keys, stable=True)
    block = max(16, passes.block)
    short = cuts.short_runs(count, symbols, passes.dim)
    tile = 128 if short else 64
    tiles = cuts.ceiling(count, tile)
    edges = passes.empty(tiles, 2, passes.dim, passes.dim)
    total = torch.zeros(passes.matrices.shape, dtype=passes.work, device=device)
    args = adjoints, states, passes.initial, passes.starts, order, keys, total, edges, begin, count, passes.time
    if short:
        launch(
            short_runs, (tiles,), *args, symbols, lowest,
            D=passes.dim, BLOCK=block, TILE=tile, AHEAD=4, PITCH=pitch, PACKED=packed, ACC=passes.acc,
            warps=block**2 // 256,
        )  # fmt: skip
    else:
        launch(
            grouped_runs, (tiles,), *args, symbols, lowest,
            D=passes.dim, BLOCK=block, TILE=tile, PITCH=pitch, PACKED=packed, PRECISION=passes.precision,
            ACC=passes.acc, warps=4,
        )  # fmt: skip
    launch(
        joined_runs, (tiles,), keys, edges, total, count, symbols, lowest,
        D=passes.dim, BLOCK=block, TILE=tile, LANES=max(2, (1 << 14) // block**2), ACC=passes.acc, warps=8,
    )  # fmt: skip
    return total


def over_parts(passes: Passes, partial: Tensor) -> Tensor:
    """Sum ``(P, V, D, D)`` over P."""
    total = passes.empty(*partial.shape[1:])
    size = total.numel()
    lanes = 64 if len(partial) > 16 else 16
    tile = 1024 // lanes
    launch(
        summed, (cuts.ceiling(size, tile),), partial, total, len(partial), size,
        LANES=lanes, TILE=tile, ACC=passes.acc, warps=4,
    )  # fmt: skip
    return total


def room_for_sums(states: Tensor) -> int:
    """Return how many numbers partial sums may hold together: an eighth of the states where these are large."""
    return 1 << 22 if states.numel() < LARGE else states.numel() // 8


def by_position(passes: Passes, states: Tensor, adjoints: Tensor, begin: int, out: Tensor) -> None:
    """Write ``δ_t h_{t-1}ᵀ`` of the positions of ``adjoints (N, D)``, which begin at ``begin``, to ``out``."""
    count = adjoints.shape[0]
    tile = max(1, 1024 // passes.block**2)
    launch(
        outer, (cuts.ceiling(count, tile),),
        adjoints, states, passes.initial, passes.starts, out, begin, count, passes.time,
        D=passes.dim, BLOCK=passes.block, TILE=tile, PACKED=passes.starts is not None, warps=4,
    )  # fmt: skip
