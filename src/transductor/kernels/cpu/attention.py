"""Attention by torch, except for short sequences with narrow heads that are trained on a CPU.

Libraries are slow at products with a narrow result, ``(T, T) @ (T, E)`` with E of 8 or so, and quick at the same
product transposed.  In this form, forward and backward take half to two thirds of the time of torch's attention.
"""

from __future__ import annotations

import math
from typing import Any, Final

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from transductor.checks import transformed

# Measured beside torch's attention: beyond these sizes it is as fast.
_WIDEST_HEAD: Final = 8
_LONGEST: Final = 256


def attention(queries: Tensor, keys: Tensor, values: Tensor, added: Tensor | None = None) -> Tensor:
    """Compute ``softmax(q kᵀ / √E + added) v``: ``(B, H, T, E)`` and twice ``(B, H, K, E)`` to ``(B, H, T, E)``.

    Args:
        added: Finite numbers, broadcast to ``(B, H, T, K)``; None hides later keys, for as many keys as queries.
    """
    learned = added is not None and added.requires_grad  # torch's fast attention gives it no gradient
    if _narrow(queries, keys, _WIDEST_HEAD if not learned else queries.shape[-1]):
        if added is None:
            added = queries.new_full((queries.shape[2], keys.shape[2]), torch.finfo(queries.dtype).min / 2).triu(1)
        mixed: Tensor = _NarrowAttention.apply(queries, keys, values, added)  # type: ignore[no-untyped-call]
        return mixed
    return F.scaled_dot_product_attention(queries, keys, values, attn_mask=added, is_causal=added is None)


def _narrow(queries: Tensor, keys: Tensor, widest: int) -> bool:
    return (
        not torch.compiler.is_compiling()  # first: a graph that saw a length compared would hold for such lengths only
        and queries.device.type == "cpu"
        and torch.is_grad_enabled()
        and queries.requires_grad
        and queries.dtype in (torch.float32, torch.float64)
        and queries.dtype == keys.dtype
        and queries.shape[-1] <= widest
        and keys.shape[-2] <= _LONGEST
        and queries.numel() > 0
        and not transformed(queries, keys)
    )


class _NarrowAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, values: Tensor, added: Tensor) -> Tensor:
        # One row of matrices (B·H, T, E) in memory order: anything else is multiplied one by one.
        scaled = _flat(queries * (1 / math.sqrt(queries.shape[-1])))
        keys, values = _flat(keys), _flat(values)
        scores = torch.bmm(scaled, keys.mT).view(*queries.shape[:3], -1)
        scores += added
        weights = scores.softmax(-1)
        ctx.save_for_backward(scaled, keys, values, weights)
        ctx.shape = added.shape
        return torch.bmm(values.mT, weights.flatten(0, 1).mT).mT.view(queries.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        scaled, keys, values, weights = ctx.saved_tensors
        batch, narrow = grad.shape[:2], _flat(grad)
        to_values = torch.bmm(narrow.mT, weights.flatten(0, 1)).mT
        to_weights = torch.bmm(narrow, values.mT).view_as(weights)
        to_scores = torch.ops.aten._softmax_backward_data(to_weights, weights, -1, weights.dtype)
        flat = to_scores.flatten(0, 1)
        to_scaled = torch.bmm(keys.mT, flat.mT).mT
        to_keys = torch.bmm(scaled.mT, flat).mT
        to_added = to_scores.sum_to_size(ctx.shape) if ctx.needs_input_grad[3] else None
        to_queries = to_scaled * (1 / math.sqrt(scaled.shape[-1]))
        return *(part.unflatten(0, batch) for part in (to_queries, to_keys, to_values)), to_added


def _flat(values: Tensor) -> Tensor:
    """Flatten ``(B, H, T, E)`` to contiguous ``(B·H, T, E)``."""
    return values.reshape(-1, *values.shape[2:]).contiguous()
