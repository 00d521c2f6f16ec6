"""Sums over positions that share a token, without one d×d matrix per position."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from transductor.checks import transformed
from transductor.recurrence.semirings import Semiring

# Rows handled at a time: the working set is this many d-vectors, whatever the length of the input.
_BLOCK = 1 << 14


def outer_by_token(left: Tensor, right_at: Callable[[Tensor], Tensor], tokens: Tensor, vocab_size: int) -> Tensor:
    """Sum ``out[v] = Σ_{i: tokens[i] = v} left[i] ⊗ right[i]``, shape ``(V, D, D)``.

    ``right_at`` maps row numbers ``(...)`` to ``(..., D)``, so that the caller need not write a shifted copy.
    Positions are sorted by token and cut into tiles of one token each; a tile is one small matrix product, so
    memory is that of the result plus a fixed block, and the order of summation is fixed.
    """
    out = left.new_zeros(vocab_size, left.shape[-1], left.shape[-1])
    if tokens.numel() == 0:
        return out
    counts = torch.bincount(tokens, minlength=vocab_size)
    order = torch.argsort(tokens.to(_narrow(vocab_size)), stable=True)
    mean_count = tokens.numel() // max(1, int(torch.count_nonzero(counts)))
    tile = 1 << max(3, min(8, mean_count.bit_length()))
    tiles_per_token = (counts + tile - 1) // tile
    tile_token = torch.repeat_interleave(torch.arange(vocab_size, device=tokens.device), tiles_per_token)
    stops = counts.cumsum(0)
    first_tile = tiles_per_token.cumsum(0) - tiles_per_token
    rank = torch.arange(tile_token.numel(), device=tokens.device) - first_tile[tile_token]
    tile_start = (stops - counts)[tile_token] + rank * tile
    within = torch.arange(tile, device=tokens.device)
    step = max(1, _BLOCK // tile)
    for begin in range(0, tile_token.numel(), step):
        block = slice(begin, begin + step)
        slots = tile_start[block, None] + within
        valid = (slots < stops[tile_token[block], None]).unsqueeze(-1)
        rows = order[slots.clamp_max(tokens.numel() - 1)]
        # Both sides, not one: an infinite number of another token times 0 would be NaN.
        lefts, rights = left[rows].where(valid, 0.0), right_at(rows).where(valid, 0.0)
        out.index_add_(0, tile_token[block], lefts.mT @ rights)
    return out


def _narrow(vocab_size: int) -> torch.dtype:
    """Return the smallest integer type that holds every token: sorting bytes is four times faster."""
    if vocab_size <= 1 << 8:
        return torch.uint8
    return torch.int16 if vocab_size <= 1 << 15 else torch.int32


def matvec_by_token(table: Tensor, tokens: Tensor, states: Tensor, semiring: Semiring) -> Tensor:
    """Compute ``table[tokens[i]] · states[i]`` for every row i: ``(N, D)``, differentiable, in bounded memory."""
    if semiring.name == "real" and not (torch.compiler.is_compiling() or transformed(table, states)):
        return cast(Tensor, _MatvecByToken.apply(table, tokens, states))  # type: ignore[no-untyped-call]
    return semiring.matvec(table[tokens], states)


class _MatvecByToken(torch.autograd.Function):
    @staticmethod
    def forward(table: Tensor, tokens: Tensor, states: Tensor) -> Tensor:
        out = torch.empty_like(states)
        for begin in range(0, tokens.numel(), _BLOCK):
            block = slice(begin, begin + _BLOCK)
            out[block] = (table[tokens[block]] @ states[block].unsqueeze(-1)).squeeze(-1)
        return out

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, Tensor | None]:
        table, tokens, states = ctx.saved_tensors
        if torch.is_grad_enabled():  # second derivatives: fall back on what autograd can see through
            gathered = table[tokens]
            to_table = torch.zeros_like(table).index_add(0, tokens, grad.unsqueeze(-1) * states.unsqueeze(-2))
            return to_table, None, (gathered.mT @ grad.unsqueeze(-1)).squeeze(-1)
        to_table = outer_by_token(grad, lambda rows: states[rows], tokens, table.shape[0])
        to_states = _MatvecByToken.forward(table.mT, tokens, grad)
        return to_table, None, to_states
