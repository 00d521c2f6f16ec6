"""The Cayley map as one torch operation, with the gradient it has in closed form.

From ``C (I − A) = I + A``: ``dC = ½ (I + C) dA (I + C)``.  So the way back is two products, four for the
square of C, and no second solve.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from transductor.kernels.plan import LARGEST_STATE, TRITON_FOUND
from transductor.kernels.precise import precise_product

__all__ = ["cayley_rotation", "polished"]


def cayley_rotation(skews: Tensor, *, squared: bool = False) -> Tensor:
    """``C = (I + A)(I − A)⁻¹`` of skew-symmetric ``(..., D, D)``: a rotation without eigenvalue −1; or ``C²``, any."""
    return cast(Tensor, torch.ops.transductor.cayley(skews, squared)[0])


@torch.library.custom_op("transductor::cayley", mutates_args=())
def _cayley(skews: Tensor, squared: bool) -> tuple[Tensor, Tensor]:
    """What is asked for, and C again where that was its square: the gradient needs C."""
    if _in_triton(skews):
        return _eliminated(skews, squared=squared)
    eye = torch.eye(skews.shape[-1], dtype=skews.dtype, device=skews.device)
    # I + A and (I − A)⁻¹ commute, so one solve from the left suffices; it never meets a singular matrix.
    rotations = polished(torch.linalg.solve_ex(eye - skews, eye + skews)[0]).contiguous()  # LAPACK answers by columns
    return (precise_product(rotations, rotations), rotations) if squared else (rotations, rotations.new_empty(0))


def polished(rotation: Tensor) -> Tensor:
    """One Newton step towards the nearest orthogonal matrix: an error ε of MᵀM becomes ε².

    A solve with a large A, or the squarings inside ``matrix_exp``, cost some digits of orthogonality.
    """
    return 1.5 * rotation - 0.5 * precise_product(rotation, precise_product(rotation.mT, rotation))


def _in_triton(matrices: Tensor) -> bool:
    return matrices.is_cuda and TRITON_FOUND and matrices.shape[-1] <= LARGEST_STATE and matrices.numel() > 0


def _eliminated(skews: Tensor, *, squared: bool) -> tuple[Tensor, Tensor]:
    from transductor.kernels.elimination import cayley_rotations

    given = skews.contiguous()
    rotations = torch.empty_like(given)
    squares = torch.empty_like(given) if squared else None
    _per_matrix(cayley_rotations, given, rotations, squares)
    return (rotations, rotations.new_empty(0)) if squares is None else (squares, rotations)


def _per_matrix(kernel: Any, given: Tensor, *others: Tensor | None, **constants: Any) -> None:
    """One program for each matrix ``(D, D)`` of ``given``."""
    from transductor.kernels.launch import launch

    dim = given.shape[-1]
    block = max(16, 1 << (dim - 1).bit_length())
    launch(
        kernel, (given.numel() // dim**2,), given, *others, D=dim, BLOCK=block, **constants,
        warps=max(1, block**2 // 512),
    )  # fmt: skip


@_cayley.register_fake
def _(skews: Tensor, squared: bool) -> tuple[Tensor, Tensor]:
    out = torch.empty_like(skews, memory_format=torch.contiguous_format)
    return out, torch.empty_like(out) if squared else skews.new_empty(0)


@torch.library.custom_op("transductor::cayley_backward", mutates_args=())
def _cayley_backward(rotations: Tensor, grad: Tensor, squared: bool) -> Tensor:
    """The gradient of the skew matrices, by one kernel."""
    from transductor.kernels.elimination import cayley_gradients

    given = rotations.contiguous()
    out = torch.empty_like(given)
    _per_matrix(cayley_gradients, given, grad.contiguous(), out, SQUARED=squared)
    return out


@_cayley_backward.register_fake
def _(rotations: Tensor, grad: Tensor, squared: bool) -> Tensor:
    return torch.empty_like(rotations, memory_format=torch.contiguous_format)


def _remember(ctx: Any, inputs: tuple[Tensor, bool], output: tuple[Tensor, Tensor]) -> None:
    ctx.squared = inputs[1]
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(output[1 if ctx.squared else 0])


def _differentiate(ctx: Any, grad: Tensor | None, to_rotations: Tensor | None) -> tuple[Tensor | None, None]:
    (rotations,) = ctx.saved_tensors
    if to_rotations is None and grad is not None and _in_triton(rotations) and not torch.is_grad_enabled():
        return torch.ops.transductor.cayley_backward(rotations, grad, ctx.squared), None
    if ctx.squared:
        if grad is not None:
            through = precise_product(grad, rotations.mT) + precise_product(rotations.mT, grad)
            to_rotations = through if to_rotations is None else through + to_rotations
    else:
        to_rotations = grad
    if to_rotations is None:
        return None, None
    eye = torch.eye(rotations.shape[-1], dtype=rotations.dtype, device=rotations.device)
    side = (eye + rotations).mT
    return 0.5 * precise_product(precise_product(side, to_rotations), side), None


_cayley.register_autograd(_differentiate, setup_context=_remember)


@_cayley.register_vmap
def _(
    info: Any, in_dims: tuple[int, None], skews: Tensor, squared: bool
) -> tuple[tuple[Tensor, Tensor], tuple[int, int | None]]:
    found = torch.ops.transductor.cayley(skews.movedim(in_dims[0], 0), squared)
    return found, (0, 0 if squared else None)
