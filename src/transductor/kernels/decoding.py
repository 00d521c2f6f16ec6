"""A decoded token of a head and what its state adds to a model, by one launch: eager decoding waits for launches."""

from __future__ import annotations

import torch
from torch import Tensor

from transductor.kernels.plan import LARGEST_STATE, TRITON_FOUND

__all__ = ["decoded_token", "decodes_at_once", "runs_on"]

_OUTPUTS = 128  # of a program


def decodes_at_once(table: Tensor, classes: Tensor | None, tokens: Tensor, state: Tensor, weight: Tensor) -> bool:
    """Whether :func:`decoded_token` can read them: plain tensors on one GPU, of shapes that belong together."""
    dim = table.shape[-1]
    if not runs_on(table.device) or dim > LARGEST_STATE or state.shape != (tokens.shape[0], dim):
        return False
    others = (tokens, state, weight) if classes is None else (tokens, state, weight, classes)
    return (
        weight.shape[1] == dim
        and weight.is_contiguous()
        and all(type(each) in (Tensor, torch.nn.Parameter) and each.device == table.device for each in others)
    )


def runs_on(device: torch.device) -> bool:
    """Whether Triton's kernels run there."""
    return TRITON_FOUND and device.type == "cuda"


def decoded_token(
    table: Tensor, classes: Tensor | None, tokens: Tensor, state: Tensor, weight: Tensor, width: int
) -> tuple[Tensor, Tensor]:
    """The next state ``(B, D)``, and its projections ``(L, B, 1, width)`` in the precision of ``weight``.

    A token without a letter of the table makes both NaN.

    Args:
        table: ``M[v, to, from]``, ``(V, D, D)``, contiguous.
        classes: Letters of the table by token; None where tokens are letters.
        tokens: ``(B, 1)``.
        state: ``(B, D)``.
        weight: ``(L · width, D)``, contiguous.
        width: Of one projection.
    """
    from transductor.kernels.decode_step import decode_step
    from transductor.kernels.launch import launch

    rows, dim = state.shape
    outputs = weight.shape[0]
    after = state.new_empty(rows, dim)
    terms = weight.new_empty(outputs // width, rows, 1, width)
    launch(
        decode_step,
        (-(-outputs // _OUTPUTS), rows),
        table,
        classes,
        tokens.contiguous(),
        state.contiguous(),
        weight.detach(),
        after,
        terms,
        table.shape[0],
        0 if classes is None else classes.shape[0],
        D=dim,
        OUTPUTS=outputs,
        WIDTH=width,
        BLOCK_D=1 << (dim - 1).bit_length(),
        BLOCK=_OUTPUTS,
        warps=4,
    )
    return after, terms
