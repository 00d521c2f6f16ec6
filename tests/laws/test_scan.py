"""What every backend of the scan inherits: the values and gradients of the reference."""

from __future__ import annotations

import pytest
import torch

from tests.comparison import assert_same
from transductor.recurrence import BACKENDS, SEMIRINGS, Problem, scan


def empty_problem(ring):
    """A scan of no steps on the CPU, which a backend refuses only where it cannot run at all."""
    nothing = torch.zeros(1, 2)
    return Problem(torch.eye(2)[None], nothing[:, :0].long(), None, nothing, ring=ring)


TIMES = [1, 2, 7, 64, 129, 1000]
# The Triton kernels have a file of their own, since they run elsewhere or in an interpreter.
HERE = [name for name in BACKENDS if name != "triton" and BACKENDS[name].refusal(empty_problem("real")) is None]
OF_ANY_RING = [name for name in HERE if BACKENDS[name].refusal(empty_problem("log")) is None]
FAST = ["auto", *(name for name in HERE if name != "reference")]
REAL_RINGS = [name for name in SEMIRINGS if name != "boolean"]


def operands(time, *, batch=3, dim=4, symbols=5, dense=False, semiring="real", dtype=torch.float64):
    """Random leaves of a scan that neither explodes nor dies out."""
    if dense:
        transitions = torch.randn(batch, time, dim, dim, dtype=dtype)
    else:
        transitions = torch.randn(symbols, dim, dim, dtype=dtype)
    if semiring == "real":
        transitions = torch.linalg.qr(transitions)[0] * 0.999
    leaves = {
        "transitions": transitions,
        "bias": torch.randn(batch, time, dim, dtype=dtype),
        "initial_state": torch.randn(batch, dim, dtype=dtype),
    }
    if not dense:
        leaves["token_bias"] = torch.randn(symbols, dim, dtype=dtype)
    tokens = None if dense else torch.randint(0, symbols, (batch, time))
    return {name: leaf.requires_grad_() for name, leaf in leaves.items()}, tokens


def outcome(leaves, tokens, *, backend, cotangents=None, **options):
    """States, final state, and the gradient of a random functional of both for every leaf."""
    states, final = scan(**leaves, tokens=tokens, backend=backend, return_final=True, **options)
    if cotangents is None:
        cotangents = torch.randn_like(states), torch.randn_like(final)
    loss = (states * cotangents[0]).sum() + (final * cotangents[1]).sum()
    gradients = torch.autograd.grad(loss, list(leaves.values()))
    return states, final, dict(zip(leaves, gradients, strict=True)), cotangents


def assert_equals_reference(leaves, tokens, backend, **options):
    states, final, gradients, cotangents = outcome(leaves, tokens, backend="reference", **options)
    fast_states, fast_final, fast_gradients, _ = outcome(
        leaves, tokens, backend=backend, cotangents=cotangents, **options
    )
    assert_same(fast_states, states, what="states")
    assert_same(fast_final, final, what="final state")
    for name, gradient in gradients.items():
        assert_same(fast_gradients[name], gradient, what=f"gradient of {name}")


@pytest.mark.parametrize("dense", [False, True], ids=["tokens", "dense"])
@pytest.mark.parametrize("time", TIMES)
@pytest.mark.parametrize("backend", FAST)
class TestAgainstTheReference:
    def test_plain(self, backend, time, dense):
        leaves, tokens = operands(time, dense=dense)
        leaves = {name: leaves[name] for name in ("transitions", "initial_state")}
        assert_equals_reference(leaves, tokens, backend)

    def test_affine(self, backend, time, dense):
        leaves, tokens = operands(time, dense=dense)
        assert_equals_reference(leaves, tokens, backend)

    def test_mask(self, backend, time, dense):
        leaves, tokens = operands(time, dense=dense)
        mask = torch.rand(3, time) < 0.7
        mask[0] = False
        assert_equals_reference(leaves, tokens, backend, mask=mask)

    def test_lengths(self, backend, time, dense):
        leaves, tokens = operands(time, dense=dense)
        assert_equals_reference(leaves, tokens, backend, lengths=torch.tensor([0, time, time // 2]))

    def test_packed(self, backend, time, dense):
        leaves, tokens = operands(time, batch=1, dense=dense)
        cuts = torch.randint(0, time + 1, (4,)).sort().values
        offsets = torch.cat((torch.tensor([0]), cuts, torch.tensor([time])))
        leaves["initial_state"] = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
        assert_equals_reference(leaves, tokens, backend, cu_seqlens=offsets)

    def test_packed_without_bias_and_with_mask(self, backend, time, dense):
        leaves, tokens = operands(time, batch=1, dense=dense)
        leaves = {name: leaves[name] for name in ("transitions", "initial_state")}
        leaves["initial_state"] = torch.randn(4, dtype=torch.float64, requires_grad=True)
        mask = torch.rand(1, time) < 0.7
        mask[0, 0] = False
        assert_equals_reference(leaves, tokens, backend, mask=mask, cu_seqlens=torch.tensor([0, time // 3, time]))


@pytest.mark.parametrize("backend", ["auto", *OF_ANY_RING[1:]])
@pytest.mark.parametrize("semiring", [name for name in REAL_RINGS if name != "real"])
@pytest.mark.parametrize("dense", [False, True], ids=["tokens", "dense"])
@pytest.mark.parametrize("time", TIMES)
def test_semirings(semiring, backend, time, dense):
    leaves, tokens = operands(time, semiring=semiring, dense=dense)
    assert_equals_reference(leaves, tokens, backend, semiring=semiring, mask=torch.rand(3, time) < 0.8)


@pytest.mark.parametrize("backend", ["auto", *OF_ANY_RING[1:]])
@pytest.mark.parametrize("semiring", REAL_RINGS)
def test_packed_semirings(semiring, backend):
    leaves, tokens = operands(40, batch=1, semiring=semiring)
    leaves["initial_state"] = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    assert_equals_reference(leaves, tokens, backend, semiring=semiring, cu_seqlens=torch.tensor([0, 3, 3, 40]))


@pytest.mark.parametrize("backend", OF_ANY_RING)
@pytest.mark.parametrize("semiring", ["max_plus", "min_plus", "log"])
def test_paths_that_do_not_exist_have_no_gradient(semiring, backend):
    """A machine with missing arcs: infinities in the table, finite gradients everywhere."""
    zero = SEMIRINGS[semiring].zero
    table = torch.randn(3, 4, 4, dtype=torch.float64)
    table[torch.rand(3, 4, 4) < 0.6] = zero
    table.requires_grad_()
    start = torch.tensor([0.0, zero, zero, zero], dtype=torch.float64, requires_grad=True)
    tokens = torch.randint(0, 3, (2, 9))
    states = scan(table, tokens, initial_state=start, semiring=semiring, backend=backend)
    expected = scan(table, tokens, initial_state=start, semiring=semiring, backend="reference")
    assert_same(states, expected)
    states.where(torch.isfinite(states), 0.0).sum().backward()
    assert torch.isfinite(table.grad).all()
    assert torch.isfinite(start.grad).all()
    assert (table.grad[table == zero] == 0).all()
    assert (start.grad[start == zero] == 0).all()


@pytest.mark.parametrize("backend", OF_ANY_RING)
@pytest.mark.parametrize("time", [1, 7, 129])
def test_boolean(backend, time):
    table = torch.rand(5, 4, 4) < 0.35
    tokens = torch.randint(0, 5, (3, time))
    start = torch.tensor([True, False, False, False])
    states, final = scan(
        table, tokens, initial_state=start, semiring="boolean", backend=backend, return_final=True, lengths=
        torch.tensor([time, 0, time // 2])
    )  # fmt: skip
    # Counting paths over the reals and asking which are positive is the same question.
    paths = scan(table.double(), tokens, initial_state=start.double(), lengths=torch.tensor([time, 0, time // 2]))
    assert torch.equal(states, paths > 0)
    assert torch.equal(final, paths[:, -1] > 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("backend", HERE)
def test_every_dtype_is_as_good_as_its_last_rounding(backend, dtype):
    leaves, tokens = operands(1000)
    exact = scan(
        leaves["transitions"].to(dtype).double(),
        tokens,
        initial_state=leaves["initial_state"].to(dtype).double(),
    )
    found = scan(
        leaves["transitions"].to(dtype),
        tokens,
        initial_state=leaves["initial_state"].to(dtype),
        backend=backend,
    )
    assert found.dtype == dtype
    assert_same(found, exact, dtype=dtype)


@pytest.mark.parametrize("backend", HERE)
@pytest.mark.parametrize("time", [0, 1])
def test_empty_and_single_step(backend, time):
    leaves, tokens = operands(time)
    states, final = scan(**leaves, tokens=tokens, backend=backend, return_final=True)
    assert states.shape == (3, time, 4)
    assert_same(final, states[:, -1] if time else leaves["initial_state"])


@pytest.mark.parametrize("backend", HERE)
def test_empty_batch(backend):
    states = scan(
        torch.eye(2).expand(3, 2, 2),
        torch.empty(0, 6, dtype=torch.long),
        initial_state=torch.ones(2),
        backend=backend,
    )
    assert states.shape == (0, 6, 2)


@pytest.mark.parametrize("dense", [False, True], ids=["tokens", "dense"])
@pytest.mark.parametrize("time", [3, 70])
def test_gradcheck(time, dense):
    leaves, tokens = operands(time, batch=1 if time > 9 else 2, dim=2, symbols=2, dense=dense)
    names = list(leaves)

    def states(*values):
        return scan(**dict(zip(names, values, strict=True)), tokens=tokens)

    assert torch.autograd.gradcheck(states, tuple(leaves.values()), fast_mode=time > 9)


def test_second_derivatives():
    leaves, tokens = operands(5, batch=2, dim=2, symbols=2)
    names = list(leaves)

    def states(*values):
        return scan(**dict(zip(names, values, strict=True)), tokens=tokens)

    assert torch.autograd.gradgradcheck(states, tuple(leaves.values()))


def test_second_derivatives_of_packed_documents():
    leaves, tokens = operands(6, batch=1, dim=2, symbols=2)
    names = [name for name in leaves if name != "initial_state"]
    start = torch.randn(2, 2, dtype=torch.float64, requires_grad=True)

    def states(start, *values):
        options = dict(zip(names, values, strict=True))
        return scan(**options, initial_state=start, tokens=tokens, cu_seqlens=torch.tensor([0, 2, 6]))

    assert torch.autograd.gradgradcheck(states, (start, *(leaves[name] for name in names)))


def test_second_derivatives_of_a_tropical_scan_are_refused():
    leaves, tokens = operands(5, semiring="max_plus")
    states = scan(**leaves, tokens=tokens, semiring="max_plus")
    with pytest.raises(NotImplementedError, match="need backend='reference'"):
        torch.autograd.grad(states.sum(), leaves["transitions"], create_graph=True)


@pytest.mark.parametrize("backend", HERE)
def test_a_product_that_overflows_does_not_touch_states_that_do_not(backend):
    """`inf · 0` inside a product: the doubling coordinate is empty, so every state is small."""
    table = torch.diag(torch.tensor([2.0, 0.5]))[None].requires_grad_()
    states = scan(table, torch.zeros(1, 300, dtype=torch.long), initial_state=torch.tensor([0.0, 1.0]), backend=backend)
    assert torch.isfinite(states).all()
    states[..., 1].sum().backward()
    assert torch.isfinite(table.grad).all()


@pytest.mark.parametrize("backend", HERE)
def test_a_document_that_overflows_does_not_touch_the_next(backend):
    table, tokens = torch.tensor([[[2.0]], [[0.5]]]), torch.tensor([[0] * 140 + [1] * 60])
    states = scan(table, tokens, initial_state=torch.ones(1), cu_seqlens=torch.tensor([0, 140, 200]), backend=backend)
    assert states[0, 139] == float("inf")
    assert_same(states[0, 140:, 0], 0.5 ** torch.arange(1.0, 61.0))


@pytest.mark.parametrize("backend", ["auto", "chunked"])
def test_the_log_gradient_counts_the_steps_at_any_length(backend):
    """Each step of a weighted path adds one arc, so the gradient by the table sums to T, in float32 too."""
    table = (torch.log_softmax(torch.randn(3, 4, 4), -2) - 5).requires_grad_()
    tokens = torch.randint(0, 3, (1, 10_000))
    states = scan(table, tokens, initial_state=torch.zeros(4), semiring="log", backend=backend)
    torch.logsumexp(states[0, -1], -1).backward()
    assert abs(table.grad.sum().item() / 10_000 - 1) < 0.01


@pytest.mark.parametrize("backend", HERE)
def test_no_steps_are_still_part_of_the_graph(backend):
    leaves, tokens = operands(0)
    scan(**leaves, tokens=tokens, backend=backend).sum().backward()
    assert (leaves["initial_state"].grad == 0).all()


def rows_beside(wild, *, dense, time, device="cpu", **options):
    """The end of a row that does ``wild`` things; states and gradients of two harmless rows; the shared gradient."""
    torch.manual_seed(0)
    leaves, tokens = operands(time, symbols=4, dense=dense, dtype=torch.float32)
    with torch.no_grad():
        strong = leaves["transitions"][1 if dense else 3]
        if not dense:
            tokens = tokens % 3
            tokens[1] = 3 if wild else tokens[1]
        if wild == "overflow":
            strong.mul_(1e4)
        elif wild == "product":  # the states stay finite, the product of the matrices does not
            strong.copy_(torch.diag(torch.tensor([1e4, 0.5, 0.5, 0.5])).expand_as(strong))
            leaves["initial_state"][1, 0] = 0.0
            leaves["bias"][1] = 0.0
            if not dense:
                leaves["token_bias"][3] = 0.0
        elif wild == "opposite":  # +inf and −inf meet, and NaN follows
            strong.copy_(torch.tensor([[1e4, -1e4, 0, 0], [-1e4, 1e4, 0, 0], [1e4, 1e4, 1, 0], [0, 0, 0, 1]]))
    leaves = {name: leaf.detach().to(device).requires_grad_() for name, leaf in leaves.items()}
    tokens = None if tokens is None else tokens.to(device)
    states = scan(**leaves, tokens=tokens, **options)
    gradients = torch.autograd.grad(
        states[[0, 2]].square().sum(), [leaves["bias"], leaves["initial_state"], leaves["transitions"]]
    )
    private = [states.detach(), *gradients[: 3 if dense else 2]]
    shared = [] if dense else [gradients[2][:3]]
    return states.detach()[1, -1].cpu(), [each[[0, 2]].cpu() for each in private], [each.cpu() for each in shared]


def assert_rows_are_alone(wild, **options):
    _, expected, tables = rows_beside(None, **options)
    end, found, shared = rows_beside(wild, **options)
    assert bool(end.isfinite().all()) == (wild == "product")
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.isfinite().all()
        assert torch.equal(ours, theirs)
    # The table's gradient is a sum over all rows, in an order that depends on their tokens.
    for ours, theirs in zip(shared, tables, strict=True):
        assert_same(ours, theirs)


@pytest.mark.parametrize("dense", [False, True], ids=["tokens", "dense"])
@pytest.mark.parametrize("wild", ["overflow", "product", "opposite"])
@pytest.mark.parametrize("backend", ["auto", *HERE])
def test_a_row_that_overflows_leaves_every_bit_of_the_others(backend, wild, dense):
    assert_rows_are_alone(wild, dense=dense, time=300, backend=backend)
