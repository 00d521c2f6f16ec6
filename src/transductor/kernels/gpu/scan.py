"""The scan and its adjoint on a GPU: which passes run, over what, in which order.

Forward: products of chunks; above them products of groups of chunks when there are many; the state that enters
every chunk; all states.  Backward is the same over the adjoints, with the products already known.
"""

from __future__ import annotations

from operator import sub

import torch
from torch import Tensor

from transductor.kernels.gpu import matrix_gradients
from transductor.kernels.gpu.passes import Passes
from transductor.kernels.gpu.walking import Walk


def forward(
    matrices: Tensor,
    tokens: Tensor | None,
    bias: Tensor | None,
    initial: Tensor,
    mask: Tensor | None,
    starts: Tensor | None,
    out: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute states ``(B, T, D)``, and the products of chunks and of groups that the backward pass uses again.

    Args:
        matrices: A table ``(V, D, D)`` with ``tokens (B, T)``, else ``(B, T, D, D)``; any floating dtype.
        tokens: int32 or int64; one outside ``[0, V)`` turns every later state of its row into NaN.
        bias: ``(B, T, D)``.
        initial: ``(B, D)``, or ``(N, D)`` per document; its dtype, float32 or float64, is that of the states.
        mask: ``(B, T)`` bool.
        starts: ``(T)`` int32 for a packed row: the document that begins at this position, else -1.
        out: Where states are written; it may be some of the columns of something wider.
    """
    passes = Passes(matrices, tokens, initial, mask, starts)
    additive = None if bias is None else bias.contiguous()
    if passes.letters_of_walk:
        states = Walk(passes, passes.letters_of_walk).forward(additive)
        return states if out is None else out.copy_(states), *passes.no_products()
    if passes.chunks == 1:
        nothing = passes.no_products()
        return passes.states(additive, None, out), *nothing
    passes.prepare(reverse=False)
    chunk_products = passes.chunk_products()
    group_products = passes.group_products(chunk_products)
    affine = bias is not None or starts is not None
    responses = passes.responses(additive, reverse=False) if affine else None
    entering = passes.entering(chunk_products.rows, group_products.rows, responses, reverse=False)
    return passes.states(additive, entering, out), chunk_products.columns, group_products.columns


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
    """Compute gradients of ``matrices``, ``bias`` and ``initial`` from that of the states, ``grad (B, T, D)``.

    States and their gradient may be some of the columns of something wider.
    """
    passes = Passes(matrices, tokens, initial, mask, starts)
    columns = grad.stride(2) == 1 and grad.stride(0) == passes.time * grad.stride(1)
    if passes.letters_of_walk or tokens is None or not columns:
        states, grad = states.contiguous(), grad.contiguous()
    to_initial = torch.zeros_like(passes.initial) if starts is not None else torch.empty_like(passes.initial)
    if passes.letters_of_walk:
        to_matrices, to_bias = Walk(passes, passes.letters_of_walk).backward(
            states, grad, to_initial, wants_matrices=wants_matrices, wants_bias=wants_bias
        )
        return None if to_matrices is None else to_matrices.to(matrices.dtype), to_bias, to_initial
    entering = None
    if passes.chunks > 1:
        passes.prepare(reverse=True)
        responses = passes.responses(grad, reverse=True)
        entering = passes.entering(chunk_products, group_products, responses, reverse=True)
    to_matrices = None
    if wants_matrices and tokens is None:
        to_matrices = torch.empty_like(passes.matrices)
    lanes = passes.batch * passes.chunks
    kept = chunk_products.nbytes + group_products.nbytes
    slabs = 1 if wants_bias else min(lanes, matrix_gradients.slabs(passes, states, kept))
    bounds = [lanes * slab // slabs for slab in range(slabs + 1)]
    positions = [passes.position_of(bound) for bound in bounds]
    # The adjoints of one slab; the next one uses the same memory.
    room = passes.empty(max(map(sub, positions[1:], positions)), passes.dim)
    for first, last, begin, end in zip(bounds, bounds[1:], positions, positions[1:], strict=False):
        adjoints = room[: end - begin]
        passes.adjoints(grad, entering, to_initial, adjoints, first, last)
        if last == lanes:
            passes.forget()
        if tokens is None and to_matrices is not None:
            matrix_gradients.by_position(passes, states, adjoints, begin, to_matrices)
        elif wants_matrices:
            part = matrix_gradients.by_token(passes, states, adjoints, begin)
            to_matrices = part if to_matrices is None else to_matrices.add_(part)
    if to_matrices is not None:
        to_matrices = to_matrices.to(matrices.dtype)
    to_bias = room.view_as(grad) if wants_bias else None
    return to_matrices, to_bias, to_initial
