"""Attention in a window: blocks as rows of a batch, as GPU kernels take them, give what blocks side by side give."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from transductor.model.attention import _blocks_as_rows


@pytest.mark.parametrize("mask", [(1, 1, 4, 8, 16), (2, 1, 4, 8, 16), (2, 1, 1, 8, 16)])
def test_blocks_as_rows(mask):
    queries = torch.randn(2, 3, 4, 8, 5, dtype=torch.float64, requires_grad=True)
    keys, values = torch.randn(2, 2, 3, 4, 16, 5, dtype=torch.float64)
    added = torch.randn(mask, dtype=torch.float64)
    ours = _blocks_as_rows(queries, keys, values, attn_mask=added)
    theirs = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=added)
    torch.testing.assert_close(ours, theirs)
    (gradient,) = torch.autograd.grad(ours.square().sum(), queries)
    torch.testing.assert_close(gradient, torch.autograd.grad(theirs.square().sum(), queries)[0])
