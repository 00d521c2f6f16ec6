"""How two results are compared, with the project's one tolerance table."""

from __future__ import annotations

import torch
from torch import Tensor

from transductor.checks import VALUE_TOLERANCE


def assert_same(found: Tensor, expected: Tensor, *, what: str = "values", dtype: torch.dtype | None = None) -> None:
    """Equal shapes, infinities in the same places, and a largest difference within the table."""
    assert found.shape == expected.shape, f"{what}: shape {tuple(found.shape)} against {tuple(expected.shape)}"
    tolerance = VALUE_TOLERANCE[dtype or found.dtype]
    found, expected = found.detach().double(), expected.detach().double()
    finite = torch.isfinite(expected)
    assert torch.equal(finite, torch.isfinite(found)), f"{what}: infinities or NaN in different places"
    assert torch.equal(found[~finite], expected[~finite]), f"{what}: different infinities"
    if not finite.any():
        return
    worst = (found - expected)[finite].abs().max().item()
    scale = max(1.0, expected[finite].abs().max().item())
    assert worst <= tolerance * scale, f"{what}: off by {worst:.3e} at scale {scale:.3e}, allowed {tolerance:.0e}"
