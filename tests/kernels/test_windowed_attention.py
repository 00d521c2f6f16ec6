"""Attention in a window equals full attention under a mask, in values and gradients, however it is computed."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.kernels.test_attention import close, gradients, operands
from tests.kernels.test_triton import on_gpu
from transductor.kernels import windowed_attention as kernels


def masked(queries: Tensor, keys: Tensor, values: Tensor, window: int) -> Tensor:
    index = torch.arange(queries.shape[2], device=queries.device)
    distance = index[:, None] - index
    return F.scaled_dot_product_attention(queries, keys, values, attn_mask=(distance >= 0) & (distance < window))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("window", [1, 4, 16])
@pytest.mark.parametrize("time", [1, 4, 5, 16, 33])
def test_equals_full_attention_under_a_mask(time, window, dtype):
    for width in (8, 16):  # one width has a kernel of ours for short sequences
        given = operands((2, 3, time, width), dtype)
        ours, theirs = kernels.windowed_attention(*given, window), masked(*given, window)
        close(ours, theirs)
        for one, other in zip(gradients(ours, given), gradients(theirs, given), strict=True):
            close(one, other)


@pytest.mark.parametrize("time", [3, 20])
def test_compiled_for_every_length(time):
    """One graph, lengths shorter and longer than the window."""
    torch.compiler.reset()
    compiled = torch.compile(kernels.windowed_attention, fullgraph=True, backend="aot_eager", dynamic=True)
    given = operands((2, 2, time, 16), torch.float64)
    ours, theirs = compiled(*given, 4), masked(*given, 4)
    close(ours, theirs)
    for one, other in zip(gradients(ours, given), gradients(theirs, given), strict=True):
        close(one, other)


@pytest.mark.filterwarnings("ignore:`torch.jit")  # how torch decomposes what it has no tangent for
@pytest.mark.parametrize("time", [3, 9])
def test_transforms_of_torch_see_through_it(time):
    given = tuple(operands((1, 2, time, 16), torch.float64))
    tangents = tuple(torch.randn_like(value) for value in given)
    scores = torch.nn.attention.SDPBackend.MATH
    found = torch.func.jvp(lambda *values: kernels.windowed_attention(*values, 4), given, tangents)
    with torch.nn.attention.sdpa_kernel(scores):
        exact = torch.func.jvp(lambda *values: masked(*values, 4), given, tangents)
    for one, other in zip(found, exact, strict=True):
        close(one, other)
    rows = tuple(torch.stack((value, 2 * value)) for value in given)
    found = torch.func.vmap(lambda *values: kernels.windowed_attention(*values, 4))(*rows)
    close(found[1], masked(*(2 * value for value in given), 4))


@on_gpu
@pytest.mark.parametrize("how", ["bfloat16", "autocast"])
@pytest.mark.parametrize("time", [5, 300])
def test_half_precision_on_a_gpu(time, how):
    """Torch's flash attention, which knows windows, also where autocast asks for it."""
    dtype = torch.bfloat16 if how == "bfloat16" else torch.float32
    given = [value.detach().to("cuda", dtype).requires_grad_() for value in operands((2, 2, time, 64), torch.float64)]
    exact = [value.detach().double().requires_grad_() for value in given]
    with torch.autocast("cuda", torch.bfloat16, enabled=how == "autocast"):
        ours = kernels.windowed_attention(*given, 16)
    theirs = masked(*exact, 16)
    assert ours.dtype == torch.bfloat16
    weights = torch.randn_like(theirs)
    found = torch.autograd.grad((ours * weights).sum(), given)
    right = torch.autograd.grad((theirs * weights).sum(), exact)
    for one, other in zip((ours, *found), (theirs, *right), strict=True):
        assert (one.double() - other).norm() <= 0.01 * other.norm()
