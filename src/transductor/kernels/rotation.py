"""The Cayley map as one torch operation, with its gradient in closed form.

From ``C (I − A) = I + A``: ``dC = ½ (I + C) dA (I + C)``.  So the backward pass takes two products, four for the
square of C, and no second solve.

It starts from the free numbers of A, not from A: on a GPU, laying out many small skew-symmetric matrices and taking
their gradient apart again would cost as much as the rotations.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from transductor.checks import differentiated, unseen
from transductor.kernels.gpu.cuts import LARGEST_STATE, TRITON_FOUND
from transductor.kernels.gpu.launch import launch
from transductor.kernels.precise import precise_product


def skew_dim(state_dim: int) -> int:
    """Return how many free numbers a skew-symmetric matrix has: d(d−1)/2."""
    return state_dim * (state_dim - 1) // 2


def skew(raw: Tensor, state_dim: int) -> Tensor:
    """Lay out ``(..., d(d−1)/2)``, the rows above the diagonal, as skew ``(..., d, d)``; ‖A‖_F = √2 ‖raw‖."""
    rows, columns = torch.triu_indices(state_dim, state_dim, 1, device=raw.device)
    upper = raw.new_zeros(*raw.shape[:-1], state_dim, state_dim)
    upper[..., rows, columns] = raw
    return upper - upper.mT


def cayley_rotation(raw: Tensor, state_dim: int, *, squared: bool = False) -> Tensor:
    """Return ``C = (I + A)(I − A)⁻¹``, ``A = skew(raw)``, a rotation without eigenvalue −1; or ``C²``, any rotation.

    ``(..., d(d−1)/2)`` to ``(..., d, d)``.
    """
    if raw.shape[-1] != skew_dim(state_dim):  # a kernel would read past the end
        raise ValueError(f"raw must end in dimension {skew_dim(state_dim)}; got {tuple(raw.shape)}")
    if differentiated(raw):
        rotations = _solved(raw, state_dim)
        return precise_product(rotations, rotations) if squared else rotations
    if not unseen(raw):
        return cast(Tensor, torch.ops.transductor.cayley(raw, state_dim, squared)[0])
    if torch.is_grad_enabled() and raw.requires_grad:
        return cast(Tensor, _DirectCayley.apply(raw, state_dim, squared)[0])  # type: ignore[no-untyped-call]
    return _rotations(raw, state_dim, squared)[0]


def _solved(raw: Tensor, state_dim: int) -> Tensor:
    skews, eye = skew(raw, state_dim), torch.eye(state_dim, dtype=raw.dtype, device=raw.device)
    # I + A and (I − A)⁻¹ commute, so one solve from the left suffices; it never meets a singular matrix.
    return polished(torch.linalg.solve_ex(eye - skews, eye + skews)[0])


def _rotations(raw: Tensor, state_dim: int, squared: bool) -> tuple[Tensor, Tensor]:
    """Return C or its square, and C again beside its square, because the gradient needs C."""
    if _in_triton(raw, state_dim):
        return _eliminated(raw, state_dim, squared=squared)
    rotations = _solved(raw, state_dim).contiguous()  # LAPACK answers by columns
    return (precise_product(rotations, rotations), rotations) if squared else (rotations, rotations.new_empty(0))


_cayley = torch.library.custom_op("transductor::cayley", _rotations, mutates_args=())


def polished(rotation: Tensor) -> Tensor:
    """Take one Newton step towards the nearest orthogonal matrix: an error ε of MᵀM becomes ε².

    A solve with a large A, or the squarings inside ``matrix_exp``, cost some digits of orthogonality.
    """
    return 1.5 * rotation - 0.5 * precise_product(rotation, precise_product(rotation.mT, rotation))


def _in_triton(values: Tensor, state_dim: int) -> bool:
    """Tell whether the kernels run for these raw numbers or matrices; for d = 1 there are no raw numbers."""
    return values.is_cuda and TRITON_FOUND and state_dim <= LARGEST_STATE and 0 not in values.shape[:-1]


def _eliminated(raw: Tensor, state_dim: int, *, squared: bool) -> tuple[Tensor, Tensor]:
    rotations = raw.new_empty(*raw.shape[:-1], state_dim, state_dim)
    squares = torch.empty_like(rotations) if squared else None
    _launch("cayley_rotations", rotations.shape, raw.contiguous(), rotations, squares)
    return (rotations, rotations.new_empty(0)) if squares is None else (squares, rotations)


def _launch(kernel: str, shape: torch.Size, *operands: Tensor | None, **constants: Any) -> None:
    """Launch a kernel with one program for each matrix of ``shape`` ``(..., D, D)``."""
    from transductor.kernels.gpu import elimination  # Triton is optional

    dim = shape[-1]
    block = max(16, 1 << (dim - 1).bit_length())
    warps = max(1, block**2 // 1024)  # sums across warps wait for each other
    grid = (shape[:-2].numel(),)
    launch(getattr(elimination, kernel), grid, *operands, D=dim, BLOCK=block, **constants, warps=warps)


@_cayley.register_fake
def _(raw: Tensor, state_dim: int, squared: bool) -> tuple[Tensor, Tensor]:
    out = raw.new_empty(*raw.shape[:-1], state_dim, state_dim)
    return out, torch.empty_like(out) if squared else raw.new_empty(0)


def _to_raw(rotations: Tensor, grad: Tensor, squared: bool) -> Tensor:
    """Compute the gradient of the raw numbers by one kernel."""
    out = _like_raw(rotations)
    _launch("cayley_gradients", rotations.shape, rotations.contiguous(), grad.contiguous(), out, SQUARED=squared)
    return out


_cayley_backward = torch.library.custom_op("transductor::cayley_backward", _to_raw, mutates_args=())


@_cayley_backward.register_fake
def _(rotations: Tensor, grad: Tensor, squared: bool) -> Tensor:
    return _like_raw(rotations)


def _like_raw(rotations: Tensor) -> Tensor:
    return rotations.new_empty(*rotations.shape[:-2], skew_dim(rotations.shape[-1]))


def _remember(ctx: Any, inputs: tuple[Tensor, int, bool], output: tuple[Tensor, Tensor]) -> None:
    ctx.squared = inputs[2]
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(output[1 if ctx.squared else 0])


def _differentiate(ctx: Any, grad: Tensor | None, to_rotations: Tensor | None) -> tuple[Tensor | None, None, None]:
    (rotations,) = ctx.saved_tensors
    dim = rotations.shape[-1]
    if to_rotations is None and grad is not None and _in_triton(rotations, dim) and not torch.is_grad_enabled():
        backward = _to_raw if unseen(rotations, grad) else torch.ops.transductor.cayley_backward
        return backward(rotations, grad, ctx.squared), None, None
    if ctx.squared:
        if grad is not None:
            through = precise_product(grad, rotations.mT) + precise_product(rotations.mT, grad)
            to_rotations = through if to_rotations is None else through + to_rotations
    else:
        to_rotations = grad
    if to_rotations is None:
        return None, None, None
    side = (torch.eye(dim, dtype=rotations.dtype, device=rotations.device) + rotations).mT
    to_skews = 0.5 * precise_product(precise_product(side, to_rotations), side)
    rows, columns = torch.triu_indices(dim, dim, 1, device=rotations.device)
    return (to_skews - to_skews.mT)[..., rows, columns], None, None  # a raw number stands in A twice, once negated


_cayley.register_autograd(_differentiate, setup_context=_remember)


class _DirectCayley(torch.autograd.Function):
    """The same without the operation."""

    @staticmethod
    def forward(ctx: Any, raw: Tensor, state_dim: int, squared: bool) -> tuple[Tensor, Tensor]:
        output = _rotations(raw, state_dim, squared)
        _remember(ctx, (raw, state_dim, squared), output)
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, to_rotations: Tensor | None) -> tuple[Tensor | None, None, None]:
        return _differentiate(ctx, grad, to_rotations)


@_cayley.register_vmap
def _(
    info: Any, in_dims: tuple[int, None, None], raw: Tensor, state_dim: int, squared: bool
) -> tuple[tuple[Tensor, Tensor], tuple[int, int | None]]:
    rotations = torch.ops.transductor.cayley(raw.movedim(in_dims[0], 0), state_dim, squared)
    return rotations, (0, 0 if squared else None)
