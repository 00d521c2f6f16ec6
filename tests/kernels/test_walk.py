"""The walk over words: on a GPU where there is one, else small sizes in Triton's interpreter; the same tests."""

from __future__ import annotations

import pytest
import torch

from tests.comparison import assert_same
from tests.kernels.test_triton import DEVICE, assert_kernels_agree, on_device, on_gpu, repeatable, without_bias
from tests.laws.test_scan import assert_rows_are_alone, operands, outcome
from transductor.kernels.gpu import cuts
from transductor.recurrence import scan

__all__ = ["repeatable"]  # a fixture


@pytest.fixture(params=[1, 2, 3, 4])
def letters(request, monkeypatch):
    """Every scan of a table is a walk over words of so many tokens."""
    walks_by(monkeypatch, request.param)
    return request.param


def walks_by(monkeypatch, letters):
    monkeypatch.setattr(
        cuts, "walk_letters", lambda batch, time, dim, symbols, *, packed, **_: letters if symbols and not packed else 0
    )


@pytest.mark.parametrize("time", [10, 13])
def test_against_the_reference(time, letters):
    leaves, tokens = operands(time, batch=2, dim=3, symbols=3)
    assert_kernels_agree(without_bias(leaves), tokens)


def test_affine_and_masked(letters):
    leaves, tokens = operands(14, batch=2, dim=3, symbols=3)
    assert_kernels_agree(leaves, tokens)
    mask = torch.rand(2, 14) < 0.7
    mask[0] = False
    assert_kernels_agree(leaves, tokens, mask=mask)
