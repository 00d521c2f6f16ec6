"""The Cayley map as one torch operation, with the gradient it has in closed form.

From ``C (I − A) = I + A``: ``dC = ½ (I + C) dA (I + C)``.  So the way back is two products, and no second solve.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from transductor.kernels.plan import LARGEST_STATE, TRITON_FOUND
from transductor.kernels.precise import precise_product

__all__ = ["cayley_rotation", "polished"]


def cayley_rotation(skews: Tensor) -> Tensor:
    """``(I + A)(I − A)⁻¹`` of skew-symmetric ``(..., D, D)``: a rotation without eigenvalue −1."""
    return cast(Tensor, torch.ops.transductor.cayley(skews))


@torch.library.custom_op("transductor::cayley", mutates_args=())
def _cayley(skews: Tensor) -> Tensor:
    dim = skews.shape[-1]
    if skews.is_cuda and TRITON_FOUND and dim <= LARGEST_STATE and skews.numel():
        rotations = _eliminated(skews)
    else:
        eye = torch.eye(dim, dtype=skews.dtype, device=skews.device)
        # I + A and (I − A)⁻¹ commute, so one solve from the left suffices; it never meets a singular matrix.
        rotations = torch.linalg.solve_ex(eye - skews, eye + skews)[0].contiguous()  # LAPACK answers by columns
    return polished(rotations)


def polished(rotation: Tensor) -> Tensor:
    """One Newton step towards the nearest orthogonal matrix: an error ε of MᵀM becomes ε².

    A solve with a large A, or the squarings inside ``matrix_exp``, cost some digits of orthogonality.
    """
    return 1.5 * rotation - 0.5 * precise_product(rotation, precise_product(rotation.mT, rotation))


def _eliminated(skews: Tensor) -> Tensor:
    from transductor.kernels.elimination import cayley_rotations
    from transductor.kernels.launch import launch

    given = skews.contiguous()
    out = torch.empty_like(given)
    dim = given.shape[-1]
    block = max(16, 1 << (dim - 1).bit_length())
    launch(
        cayley_rotations, (given.numel() // dim**2,), given, out, D=dim, BLOCK=block, warps=max(1, block**2 // 512)
    )  # fmt: skip
    return out


@_cayley.register_fake
def _(skews: Tensor) -> Tensor:
    return torch.empty_like(skews, memory_format=torch.contiguous_format)


def _remember(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
    ctx.save_for_backward(output)


def _differentiate(ctx: Any, grad: Tensor) -> Tensor:
    (rotations,) = ctx.saved_tensors
    eye = torch.eye(rotations.shape[-1], dtype=rotations.dtype, device=rotations.device)
    side = (eye + rotations).mT
    return 0.5 * precise_product(precise_product(side, grad), side)


_cayley.register_autograd(_differentiate, setup_context=_remember)
