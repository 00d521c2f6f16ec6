"""Attention of short sequences with narrow heads equals torch's, in values and gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from transductor.checks import VALUE_TOLERANCE
from transductor.kernels.cpu import attention as kernels

SIZES = [(3, 2, 1, 8), (2, 4, 7, 8), (5, 1, 64, 4), (2, 3, 129, 1), (1, 2, 256, 8)]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often torch's attention is asked."""
    counted: list[int] = []
    theirs = F.scaled_dot_product_attention

    def count(*given: object, **options: object) -> Tensor:
        counted.append(1)
        return theirs(*given, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(F, "scaled_dot_product_attention", count)
    return counted


def operands(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> list[Tensor]:
    """Queries, keys, values as a layer makes them: heads taken out of one stream, so not contiguous."""
    batch, heads, time, width = shape
    generator = torch.Generator().manual_seed(seed)
    stream = torch.randn(batch, time, 3 * heads * width, dtype=dtype, generator=generator)
    parts = (part.unflatten(-1, (heads, width)).transpose(1, 2) for part in stream.chunk(3, -1))
    return [part.detach().requires_grad_() for part in parts]


def gradients(mixed: Tensor, given: list[Tensor]) -> list[Tensor]:
    weights = torch.randn(mixed.shape, dtype=mixed.dtype, generator=torch.Generator().manual_seed(1))
    return list(torch.autograd.grad((mixed * weights).sum(), given))


def close(ours: Tensor, theirs: Tensor) -> None:
    assert ours.shape == theirs.shape
    scale = theirs.abs().max().clamp_min(1)
    assert ((ours - theirs).abs().max() / scale) <= VALUE_TOLERANCE[ours.dtype]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", SIZES)
def test_causal(shape: tuple[int, ...], dtype: torch.dtype, calls: list[int]) -> None:
    given = operands(shape, dtype)
    ours = kernels.attention(*given)
    assert not calls
    theirs = F.scaled_dot_product_attention(*given, is_causal=True)
    close(ours, theirs)
    for one, other in zip(gradients(ours, given), gradients(theirs, given), strict=True):
        close(one, other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("spread", [(1, 2, 7, 7), (3, 1, 7, 7), (7, 7), (3, 2, 1, 7)])
def test_what_is_added_has_its_gradient(spread: tuple[int, ...], dtype: torch.dtype, calls: list[int]) -> None:
    given = operands((3, 2, 7, 16), dtype)  # wider than what pays without a gradient
    added = torch.randn(spread, dtype=dtype, generator=torch.Generator().manual_seed(2)).requires_grad_()
    ours = kernels.attention(*given, added)
    assert not calls
    theirs = F.scaled_dot_product_attention(*given, attn_mask=added)
    close(ours, theirs)
    for one, other in zip(gradients(ours, [*given, added]), gradients(theirs, [*given, added]), strict=True):
        close(one, other)


def test_a_query_without_keys_gives_numbers() -> None:
    given = operands((1, 1, 3, 8), torch.float32)
    hidden = torch.full((3, 3), torch.finfo(torch.float32).min / 2)
    mixed = kernels.attention(*given, hidden)
    assert mixed.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in gradients(mixed, given))


def test_torch_is_asked_where_nothing_is_to_be_gained(calls: list[int]) -> None:
    with torch.no_grad():
        kernels.attention(*operands((1, 1, 5, 8), torch.float32))
    kernels.attention(*operands((1, 1, 5, 9), torch.float32))  # wide heads
    kernels.attention(*operands((1, 1, 257, 8), torch.float32))  # long
    kernels.attention(*operands((1, 1, 5, 8), torch.bfloat16))
    assert len(calls) == 4


def test_under_function_transforms(calls: list[int]) -> None:
    given = [value.detach() for value in operands((2, 1, 5, 8), torch.float64)]
    torch.func.grad(lambda queries: kernels.attention(queries, *given[1:]).sum())(given[0])
    assert calls
