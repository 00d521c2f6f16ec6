"""The scan of matrices with at most one entry in a column: the reference's values and gradients, in both forms."""

from __future__ import annotations

import pytest
import torch

from tests.comparison import assert_same
from tests.laws.test_scan import assert_equals_reference
from transductor import RationalHead
from transductor.recurrence import columns, scan
from transductor.transitions import ColumnChoiceTransitions


def sparse(*shape, dim=4, dtype=torch.float64):
    rows = torch.randint(0, dim, (*shape, 1, dim))
    gains = 1.02 * torch.rand(*shape, 1, dim, dtype=dtype) - 0.02
    return torch.zeros(*shape, dim, dim, dtype=dtype).scatter(-2, rows, gains.where(gains > 0.05, 0.0))


def operands(time, *, dense, batch=3):
    transitions = sparse(batch, time) if dense else sparse(5)
    leaves = {
        "transitions": transitions,
        "bias": torch.randn(batch, time, 4, dtype=torch.float64),
        "initial_state": torch.randn(batch, 4, dtype=torch.float64),
    }
    tokens = None if dense else torch.randint(0, 5, (batch, time))
    return {name: leaf.requires_grad_() for name, leaf in leaves.items()}, tokens


@pytest.fixture(params=["compiled", "torch"])
def form(request, monkeypatch):
    if request.param == "torch":
        monkeypatch.setattr(columns, "_compiled", lambda values: False)
    else:
        pytest.importorskip("numba")


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("dense", [False, True], ids=["tokens", "dense"])
@pytest.mark.parametrize("time", [1, 7, 64, 129, 300])
class TestAgainstTheReference:
    def test_affine_and_mask(self, time, dense):
        leaves, tokens = operands(time, dense=dense)
        assert_equals_reference(leaves, tokens, "columns", mask=torch.rand(3, time) < 0.7)

    def test_packed(self, time, dense):
        leaves, tokens = operands(time, dense=dense, batch=1)
        leaves = {name: leaves[name] for name in ("transitions", "initial_state")}
        leaves["initial_state"] = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
        assert_equals_reference(leaves, tokens, "columns", cu_seqlens=torch.tensor([0, time // 3, time]))


@pytest.mark.usefixtures("form")
def test_a_product_that_overflows_does_not_spoil_the_states():
    table = torch.diag(torch.tensor([2.0, 0.5])).expand(1, 2, 2)
    states = scan(
        table, torch.zeros(1, 300, dtype=torch.long), initial_state=torch.tensor([0.0, 1.0]), backend="columns"
    )
    assert torch.isfinite(states).all()
    assert (states[..., 0] == 0).all()


def test_other_matrices_are_refused():
    with pytest.raises(ValueError, match="at most one entry in a column"):
        scan(torch.ones(1, 2, 2), torch.zeros(1, 3, dtype=torch.long), initial_state=torch.ones(2), backend="columns")
    with pytest.raises(ValueError, match="real semiring"):
        scan(torch.eye(2)[None], torch.zeros(1, 3, dtype=torch.long), semiring="log", initial_state=torch.ones(2),
             backend="columns")  # fmt: skip


def test_twice_differentiable():
    leaves, tokens = operands(9, dense=False, batch=2)
    transitions, start = leaves["transitions"], leaves["initial_state"]
    both = []
    for backend in ("columns", "reference"):
        states = scan(transitions, tokens, initial_state=start, backend=backend)
        (first,) = torch.autograd.grad(states.pow(2).sum(), start, create_graph=True)
        both.append(torch.autograd.grad(first.pow(2).sum(), transitions)[0])
    assert_same(*both)


def test_a_wide_head_takes_the_structure_and_streams_equally():
    head = RationalHead(ColumnChoiceTransitions(state_dim=70, vocab_size=3)).double()
    tokens = torch.randint(0, 3, (2, 40))
    states = head(tokens)
    plain = RationalHead(head.transitions, backend="chunked").double()
    plain.raw_initial_state.data.copy_(head.raw_initial_state)
    assert_same(states, plain(tokens))
    with torch.no_grad():
        stream = head.start(2)
        pieces = []
        for piece in tokens.split([1, 3, 36], 1):
            part, stream = head.advance(piece, stream)
            pieces.append(part)
    assert_same(torch.cat(pieces, 1), states)


def test_the_choice_learns_by_the_gradient_of_the_softmax():
    family = ColumnChoiceTransitions(state_dim=3, vocab_size=1).double()
    cotangent = torch.randn(1, 3, 3, dtype=torch.float64)
    (found,) = torch.autograd.grad((family.table() * cotangent).sum(), family.source.raw)
    logits, angles = family.source.raw.detach().split([9, 3], -1)
    logits.requires_grad_()
    soft = torch.softmax(logits.view(1, 3, 3), -2) * angles.cos().unsqueeze(-2)
    (expected,) = torch.autograd.grad((soft * cotangent).sum(), logits)
    assert_same(found[:, :9], expected)


def test_training_reaches_a_permutation_and_a_reset_exactly():
    """Every column's choice moves by its straight-through gradient until the table is the target, not near it."""
    target = torch.stack((torch.eye(4)[[1, 0, 3, 2]], torch.eye(4)[:, [2, 2, 2, 2]]))
    family = ColumnChoiceTransitions(state_dim=4, vocab_size=2, gains="fixed")
    optimiser = torch.optim.Adam(family.parameters(), 0.1)
    for _ in range(100):
        optimiser.zero_grad()
        (family.table() - target).pow(2).sum().backward()
        optimiser.step()
    with torch.no_grad():
        assert torch.equal(family.table(), target)


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("dense", [False, True], ids=["tokens", "dense"])
@pytest.mark.parametrize("start", [1.0, 0.0], ids=["states overflow", "only products do"])
def test_a_row_that_overflows_leaves_every_bit_of_the_others(dense, start):
    table = torch.stack((*sparse(3, dtype=torch.float32), 1e4 * torch.eye(4)))
    rows = {}
    for token in (0, 3):
        tokens = torch.randint(0, 3, (3, 300), generator=torch.Generator().manual_seed(0))
        tokens[1] = token
        given = table[tokens] if dense else table.clone()
        initial = torch.ones(3, 4)
        initial[1] = start
        given.requires_grad_(), initial.requires_grad_()
        states = scan(given, None if dense else tokens, initial_state=initial, backend="columns")
        gradients = torch.autograd.grad(states[[0, 2]].square().sum(), (initial, given))
        rows[token] = [states[[0, 2]], gradients[0][[0, 2]], *([gradients[1][[0, 2]]] if dense else [])]
    assert bool(states[1].isfinite().all()) == (start == 0)
    for harmless, beside in zip(rows[0], rows[3], strict=True):
        assert torch.equal(harmless, beside)
