"""The scan of matrices with at most one entry in a column on the CPU: D products a step, in compiled loops."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from types import ModuleType

import torch
from torch import Tensor

from transductor.kernels.cpu.scan import Lanes, flat, outers, outers_by_token, run


def forward(images: Tensor, gains: Tensor, tokens: Tensor | None, bias: Tensor | None, initial: Tensor) -> Tensor:
    """Compute all states ``(B, T, D)``.

    Args:
        images: Where each column's entry stands, ``(V, D)`` read through ``tokens (B, T)``, or ``(B, T, D)``.
        gains: The entries, in the same shape.
        tokens: Integers in ``[0, V)``, not checked.
        bias: ``(B, T, D)`` or ``None``.
        initial: ``(B, D)``.
    """
    batch, time = (gains if tokens is None else tokens).shape[:2]
    lanes = Lanes(batch, time, gains.shape[-1])
    states = initial.new_empty(lanes.batch, lanes.time, lanes.dim)
    added = initial.new_empty(0) if bias is None else bias
    arrays = flat(images, gains, lanes.ids(tokens), added, initial, states)
    run([partial(_loops().advance, *arrays, *span, lanes.dim) for span in lanes.rows()], lanes.nanoseconds)
    return states


def backward(
    images: Tensor,
    gains: Tensor,
    matrices: Tensor,
    tokens: Tensor | None,
    initial: Tensor,
    states: Tensor,
    grad: Tensor,
    *,
    wants_matrices: bool,
) -> tuple[Tensor | None, Tensor, Tensor]:
    """Compute gradients of all entries of ``matrices``, of the bias and of the initial states."""
    lanes = Lanes(*states.shape)
    adjoints, to_initial = torch.empty_like(states), torch.empty_like(initial, memory_format=torch.contiguous_format)
    ids = lanes.ids(tokens)
    arrays = flat(images, gains, ids, grad.contiguous(), adjoints, to_initial)
    run([partial(_loops().retreat, *arrays, *span, lanes.dim) for span in lanes.rows()], lanes.nanoseconds)
    if not wants_matrices:
        return None, adjoints, to_initial
    if tokens is None:
        return outers(matrices, initial, states, adjoints, lanes), adjoints, to_initial
    return outers_by_token(matrices, ids, initial, states, adjoints, lanes), adjoints, to_initial


# Importing numba takes half a second, so its loops wait for their first use.
def _loops() -> ModuleType:
    return import_module("transductor.kernels.cpu.columns_loops")
