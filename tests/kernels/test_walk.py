"""The walk over words: on a GPU where there is one, else small sizes in Triton's interpreter; the same tests."""

from __future__ import annotations

import pytest
import torch

from tests.comparison import assert_same
from tests.kernels.test_triton import DEVICE, ON_GPU, assert_kernels_agree, on_device, repeatable, without_bias
from tests.laws.test_scan import operands, outcome, rows_beside
from transductor.kernels.gpu import cuts
from transductor.recurrence import scan

__all__ = ["repeatable"]  # a fixture


@pytest.fixture(params=[1, 3])
def letters(request, monkeypatch):
    """Every scan of a table is a walk over words of so many tokens."""
    walks_by(monkeypatch, request.param)
    return request.param


def walks_by(monkeypatch, letters):
    monkeypatch.setattr(cuts, "walk_shape", lambda block: (max(1, block**2 // 1024), 2))  # two steps ahead
    monkeypatch.setattr(
        cuts, "walk_letters", lambda batch, time, dim, symbols, *, packed, **_: letters if symbols and not packed else 0
    )


@pytest.mark.parametrize("tokens_per_word", [1, 2, 3, 4])
@pytest.mark.parametrize("time", [1, 4, 13])
def test_against_the_reference(time, tokens_per_word, monkeypatch):
    walks_by(monkeypatch, tokens_per_word)
    leaves, tokens = operands(time, batch=2, dim=3, symbols=3)
    assert_kernels_agree(without_bias(leaves), tokens)


def test_affine_and_masked(letters):
    leaves, tokens = operands(14, batch=2, dim=3, symbols=3)
    assert_kernels_agree(leaves, tokens)
    mask = torch.rand(2, 14) < 0.7
    mask[0] = False
    assert_kernels_agree(leaves, tokens, mask=mask)


def test_words_of_masked_letters_begin_and_end_rows(letters):
    leaves, tokens = operands(17, batch=3, dim=4, symbols=2)
    assert_kernels_agree(leaves, tokens, lengths=torch.tensor([0, 17, 6]))


@pytest.mark.parametrize("dim", [1, 16, 17, 33, 65])
def test_every_size_of_state(dim, monkeypatch):
    walks_by(monkeypatch, 2)
    leaves, tokens = operands(9 if dim < 65 else 5, batch=1, dim=dim, symbols=2)
    assert_kernels_agree(without_bias(leaves), tokens)


@pytest.mark.parametrize("symbols", [1, 19])
def test_every_size_of_a_vocabulary(symbols, monkeypatch):
    walks_by(monkeypatch, 2)
    leaves, tokens = operands(21, batch=2, dim=3, symbols=symbols)
    assert_kernels_agree(leaves, tokens)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_dtype_is_as_good_as_its_last_rounding(dtype, monkeypatch):
    walks_by(monkeypatch, 3)
    leaves, tokens = operands(15, batch=2, dim=5, symbols=3)
    rounded = {name: leaf.detach().to(dtype) for name, leaf in leaves.items()}
    exact = scan(**{name: leaf.double() for name, leaf in rounded.items()}, tokens=tokens, backend="reference")
    on = {name: leaf.to(DEVICE).requires_grad_() for name, leaf in rounded.items()}
    found = scan(**on, tokens=tokens.to(DEVICE, torch.int32), backend="triton")
    assert_same(found.cpu(), exact, dtype=dtype)
    found.float().square().sum().backward()
    assert all(leaf.grad.dtype == dtype and torch.isfinite(leaf.grad).all() for leaf in on.values())


def test_equal_runs_are_equal_to_the_last_bit(letters):
    leaves, tokens = operands(26, batch=2, dim=4, symbols=5, dtype=torch.float32)
    cotangents = torch.randn(2, 26, 4, device=DEVICE), torch.randn(2, 4, device=DEVICE)
    runs = [
        outcome(on_device(leaves), tokens.to(DEVICE), backend="triton", cotangents=cotangents) for _ in range(2)
    ]  # fmt: skip
    assert torch.equal(runs[0][0], runs[1][0])
    for name, gradient in runs[0][2].items():
        assert torch.equal(gradient, runs[1][2][name]), name


@pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")  # the interpreter is NumPy
def test_a_row_that_overflows_leaves_every_bit_of_the_others(letters):
    options = {"dense": False, "time": 14, "device": DEVICE, "backend": "triton"}
    (_, expected, _), (end, found, _) = (rows_beside(wild, **options) for wild in (None, "opposite"))
    assert not end.isfinite().all()
    for ours, theirs in zip(found, expected, strict=True):
        if ON_GPU:
            assert torch.equal(ours, theirs)
        else:  # in NumPy's products the last bit depends on the column
            assert_same(ours, theirs)


@pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")
def test_a_word_that_overflows_does_not_touch_states_that_do_not(letters):
    """`inf · 0` inside a word: the growing coordinate is empty, so every state is small."""
    table = torch.diag(torch.tensor([1e20, 0.5]))[None].to(DEVICE).requires_grad_()
    tokens = torch.zeros(2, 31, dtype=torch.long, device=DEVICE)
    states = scan(table, tokens, initial_state=torch.tensor([0.0, 1.0], device=DEVICE), backend="triton")
    assert_same(states[0, :, 1].cpu(), 0.5 ** torch.arange(1.0, 32.0))
    states[..., 1].sum().backward()
    assert torch.isfinite(table.grad).all()


@pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")
def test_a_state_that_overflows_is_infinite_from_there_on(letters):
    table = torch.tensor([[[1e10]]], device=DEVICE)
    tokens = torch.zeros(1, 20, dtype=torch.long, device=DEVICE)
    states = scan(table, tokens, initial_state=torch.ones(1, device=DEVICE), backend="triton")
    assert_same(states[0, :, 0].cpu(), torch.tensor([1e10, 1e20, 1e30] + 17 * [float("inf")]))


@pytest.mark.parametrize("wrong", [-1, 3, 2**40 + 1])
def test_an_unknown_token_is_seen_and_reads_no_foreign_memory(wrong, letters, monkeypatch):
    monkeypatch.setattr("transductor.recurrence.arguments.check_token_ids", lambda *_: None)  # as on a GPU
    leaves, tokens = operands(26, batch=2, dim=3, symbols=3, dtype=torch.float32)
    tokens[0, 9] = wrong
    leaves = on_device(without_bias(leaves))
    states = scan(**leaves, tokens=tokens.to(DEVICE), backend="triton")
    assert torch.isfinite(states[0, :9]).all()
    assert torch.isnan(states[0, 9:]).all()
    assert torch.isfinite(states[1]).all()
    (gradient,) = torch.autograd.grad(states[1].sum(), leaves["initial_state"])
    assert torch.isfinite(gradient[1]).all()
