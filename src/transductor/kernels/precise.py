"""A product and a norm of matrices whose gradients keep their precision.

Inside ``torch.autocast(enabled=False)`` a product is computed as it is written; its gradient is, too, as long as the
backward pass runs eagerly.  But ``torch.compile`` traces the backward pass under the autocast of the *complete* forward
pass, and the gradients of a rotation then come from bfloat16 products, wrong in the third digit.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import torch
from torch import Tensor

from transductor.checks import differentiated, unseen


def full_precision(device: torch.device) -> AbstractContextManager[Any]:
    """Switch autocast off where it is on: a rotation in bfloat16 is off by a hundredth."""
    kind = device.type
    if torch.compiler.is_compiling() or torch.is_autocast_enabled(kind):
        return torch.autocast(kind, enabled=False)
    return nullcontext()  # which takes no time


def precise_product(left: Tensor, right: Tensor) -> Tensor:
    """Multiply ``(..., N, K)`` and ``(..., K, M)``; product and gradients have the precision of the operands.

    With a single matrix ``(K, M)`` on the right, ``left`` may have any leading dimensions, or none.
    """
    if right.ndim == 2 and left.ndim != 2:
        rows = precise_product(left.reshape(-1, left.shape[-1]), right)
        return rows.reshape(*left.shape[:-1], right.shape[-1])
    if differentiated(left, right):
        with full_precision(left.device):
            return left @ right
    if not unseen(left, right):
        return cast(Tensor, torch.ops.transductor.product(left, right))
    if torch.is_grad_enabled() and (left.requires_grad or right.requires_grad):
        return cast(Tensor, _DirectProduct.apply(left, right))  # type: ignore[no-untyped-call]
    return _multiplied(left, right)


# An operation of its own and not an autograd.Function: torch 2.11's compiler loses a gradient when a Function is given
# one tensor twice, as in a square.
def _multiplied(left: Tensor, right: Tensor) -> Tensor:
    with full_precision(left.device):
        return left @ right


_product = torch.library.custom_op("transductor::product", _multiplied, mutates_args=())
_product.register_fake(_multiplied)


def _remember(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _differentiate(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
    left, right = ctx.saved_tensors
    to_left = precise_product(grad, right.mT).sum_to_size(left.shape) if ctx.needs_input_grad[0] else None
    to_right = precise_product(left.mT, grad).sum_to_size(right.shape) if ctx.needs_input_grad[1] else None
    return to_left, to_right


_product.register_autograd(_differentiate, setup_context=_remember)


class _DirectProduct(torch.autograd.Function):
    """The same without the operation."""

    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor) -> Tensor:
        ctx.save_for_backward(left, right)
        return _multiplied(left, right)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        return _differentiate(ctx, grad)


@_product.register_vmap
def _(info: Any, in_dims: tuple[int | None, int | None], left: Tensor, right: Tensor) -> tuple[Tensor, int]:
    factors = [left, right]
    rank = max(value.ndim - (dim is not None) for value, dim in zip(factors, in_dims, strict=True))
    for place, dim in enumerate(in_dims):
        if dim is not None:  # the new dimension in front of as many as the other factor has
            value = factors[place].movedim(dim, 0)
            factors[place] = value.reshape(len(value), *[1] * (rank + 1 - value.ndim), *value.shape[1:])
    return torch.ops.transductor.product(*factors), 0


def precise_spectral_norm(matrices: Tensor) -> Tensor:
    """Compute ``‖M‖₂`` of ``(..., N, M)``; value and gradient ``u vᵀ`` have the precision of the matrices."""
    if differentiated(matrices):
        return cast(Tensor, torch.linalg.matrix_norm(matrices, 2))
    return cast(Tensor, torch.ops.transductor.spectral_norm(matrices))


@torch.library.custom_op("transductor::spectral_norm", mutates_args=())
def _spectral_norm(matrices: Tensor) -> Tensor:
    return cast(Tensor, torch.linalg.matrix_norm(matrices, 2))


@_spectral_norm.register_fake
def _(matrices: Tensor) -> Tensor:
    return matrices.new_empty(matrices.shape[:-2])


def _differentiate_norm(ctx: Any, grad: Tensor) -> Tensor:
    left, _, right = torch.linalg.svd(ctx.saved_tensors[0], full_matrices=False)
    return cast(Tensor, grad[..., None, None] * left[..., :, :1] * right[..., :1, :])


_spectral_norm.register_autograd(
    _differentiate_norm, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs)
)


@_spectral_norm.register_vmap
def _(info: Any, in_dims: tuple[int], matrices: Tensor) -> tuple[Tensor, int]:
    return torch.ops.transductor.spectral_norm(matrices.movedim(in_dims[0], 0)), 0
