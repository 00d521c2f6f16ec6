"""Block-diagonal matrices are scanned block by block: the same states and gradients."""

from __future__ import annotations

import pytest
import torch

from tests.comparison import assert_same
from tests.kernels.test_triton import DEVICE, on_gpu, tiny_cut
from transductor.heads import UniversalHead
from transductor.recurrence import Problem, scan
from transductor.recurrence.blocks import block_states, joined_blocks
from transductor.transitions import DirectSum, OrthogonalTransitions

__all__ = ["tiny_cut"]  # a fixture


def block_diagonal(symbols, sizes, dtype=torch.float64):
    parts = [torch.linalg.qr(torch.randn(symbols, size, size, dtype=dtype))[0] for size in sizes]
    return torch.stack([torch.block_diag(*(part[symbol] for part in parts)) for symbol in range(symbols)])


def test_small_neighbours_are_one_block():
    assert joined_blocks((16, 16)) == (16, 16)
    assert joined_blocks((2,) * 9 + (20, 3)) == (16, 2, 20, 3)


@pytest.mark.parametrize("masked", [False, True])
def test_blocks_by_the_kernels(masked, tiny_cut, monkeypatch):
    pytest.importorskip("triton")
    if DEVICE == "cpu":
        monkeypatch.setenv("TRITON_INTERPRET", "1")
    torch.manual_seed(0)
    sizes, tokens = (3, 5, 17), torch.randint(0, 3, (2, 14))
    mask = torch.rand(2, 14) < 0.8 if masked else None
    leaves = block_diagonal(3, sizes).requires_grad_(), torch.randn(2, 25, dtype=torch.float64, requires_grad=True)
    cotangent = torch.randn(2, 14, 25, dtype=torch.float64)
    right = scan(leaves[0], tokens, initial_state=leaves[1], mask=mask, backend="reference")
    wanted = torch.autograd.grad(right, leaves, cotangent)
    on = [leaf.detach().to(DEVICE).requires_grad_() for leaf in leaves]
    problem = Problem(on[0], tokens.to(DEVICE), None, on[1], None if mask is None else mask.to(DEVICE))
    states = block_states(problem, sizes)
    assert_same(states.cpu(), right, what="states")
    to_table, to_start = torch.autograd.grad(states, on, cotangent.to(DEVICE))
    beside = block_diagonal(3, sizes) == 0
    assert (to_table.cpu()[beside] == 0).all()
    assert_same(to_table.cpu(), wanted[0].where(~beside, 0.0), what="gradient of the table")
    assert_same(to_start.cpu(), wanted[1], what="gradient of the start")


def test_a_head_says_what_its_blocks_are():
    head = UniversalHead(orthogonal_dim=4, stochastic_dim=3, vocab_size=5)
    assert head.transitions.blocks() == (4, 3)
    inner = DirectSum(*(OrthogonalTransitions(vocab_size=5, state_dim=size) for size in (2, 3)))
    assert DirectSum(inner, OrthogonalTransitions(vocab_size=5, state_dim=4)).blocks() == (2, 3, 4)
    assert inner.families[0].blocks() is None


def test_sizes_that_do_not_add_up_are_refused():
    table, tokens = block_diagonal(2, (2, 3)), torch.zeros(1, 4, dtype=torch.long)
    with pytest.raises(ValueError, match=r"blocks must be sizes that add up to 5; got \(2, 2\)"):
        scan(table, tokens, initial_state=torch.ones(5, dtype=torch.float64), blocks=(2, 2))
    found = scan(table, tokens, initial_state=torch.ones(5, dtype=torch.float64), blocks=(2, 3))
    assert_same(found, scan(table, tokens, initial_state=torch.ones(5, dtype=torch.float64)))


@on_gpu
@pytest.mark.parametrize("padded", [False, True])
def test_a_universal_head_scans_its_blocks(padded):
    torch.manual_seed(0)
    head = UniversalHead(orthogonal_dim=16, stochastic_dim=16, vocab_size=8).to(DEVICE)
    tokens = torch.randint(0, 8, (16, 2500), device=DEVICE)
    lengths = torch.randint(1, 2500, (16,), device=DEVICE) if padded else None
    states = head(tokens, lengths=lengths)
    grads = torch.autograd.grad(states.square().sum(), list(head.parameters()))
    whole = UniversalHead(orthogonal_dim=16, stochastic_dim=16, vocab_size=8, backend="chunked").to(DEVICE)
    whole.load_state_dict(head.state_dict())
    exact = whole(tokens, lengths=lengths)
    assert_same(states, exact, what="states")
    wanted = torch.autograd.grad(exact.square().sum(), list(whole.parameters()))
    for found, right in zip(grads, wanted, strict=True):
        assert (found - right).norm() <= 1e-3 * right.norm()
