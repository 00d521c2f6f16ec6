"""The normalised scan and its adjoint on the CPU, in compiled loops; rows are shared among threads.

Every row is the recurrence itself, one small matrix–vector product a step, so that it is the least arithmetic there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Final

import numpy as np
import torch
from torch import Tensor

from transductor.kernels.cpu.scan import Lanes, flat, outers, outers_by_token, read_by_columns, run

KINDS: Final = {"l1": 1, "l2": 2, "max": 3}


def forward(matrices: Tensor, tokens: Tensor | None, initial: Tensor, kind: int) -> tuple[Tensor, Tensor, Tensor]:
    """Compute normalised states ``(B, T, D)``, and norms and exponents ``(B, T)`` of the states that were carried.

    Args:
        matrices: A table ``(V, D, D)`` read through ``tokens (B, T)``, or ``(B, T, D, D)`` without tokens.
        tokens: Integers in ``[0, V)``, not checked.
        initial: ``(B, D)``, of moderate size.
        kind: Which norm, one of ``KINDS``.
    """
    batch, time = (matrices if tokens is None else tokens).shape[:2]
    lanes = Lanes(batch, time, matrices.shape[-1])
    states, norms = initial.new_empty(batch, time, lanes.dim), initial.new_empty(batch, time)
    powers = torch.empty(batch, time, dtype=torch.int64)
    ids = lanes.ids(tokens)
    by_columns = None if tokens is None else read_by_columns(matrices, ids)
    slots, table = by_columns or (ids[:0], matrices)
    advance = _loops().advance_by_columns if by_columns else _loops().advance_by_rows
    arrays = flat(table, slots, ids, initial, states, norms, powers)
    run([partial(advance, *arrays, *span, kind, *lanes.size) for span in lanes.rows()], lanes.nanoseconds)
    return states, norms, powers


def backward(
    matrices: Tensor,
    tokens: Tensor | None,
    begun: Tensor,
    states: Tensor,
    sides: Sequence[Tensor],
    kind: int,
    limit: float,
    *,
    wants_matrices: bool,
) -> tuple[Tensor | None, Tensor]:
    """Compute gradients of matrices, and ``M_1ᵀ q_1 (B, D)``.

    Args:
        matrices: As for :func:`forward`.
        tokens: As for :func:`forward`.
        begun: Normalised initial states ``(B, D)``.
        states: Normalised states ``(B, T, D)``.
        sides: Gradients of the states ``(B, T, D)``, sums of the later gradients of the logs, and ``1 / c_t (B, T)``.
        kind: Which norm.
        limit: Where adjoints are cut.
        wants_matrices: Whether the first result is needed.
    """
    lanes = Lanes(*states.shape)
    grad, totals, inverse = sides
    adjoints, outgoing = torch.empty_like(states), torch.empty_like(begun, memory_format=torch.contiguous_format)
    ids = lanes.ids(tokens)
    arrays = flat(matrices, ids, grad.contiguous(), states, totals, inverse, adjoints, outgoing)
    most = np.float64(limit) if states.dtype == torch.float64 else np.float32(limit)
    jobs = [partial(_loops().retreat, *arrays, *span, kind, most, *lanes.size) for span in lanes.rows()]
    run(jobs, 2 * lanes.nanoseconds)
    if not wants_matrices:
        return None, outgoing
    if tokens is None:
        return outers(matrices, begun, states, adjoints, lanes), outgoing
    return outers_by_token(matrices, ids, begun, states, adjoints, lanes), outgoing


# Importing numba takes half a second, so its loops wait for their first use.
def _loops() -> ModuleType:
    return import_module("transductor.kernels.cpu.normalised_loops")
