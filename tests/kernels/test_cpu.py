"""The compiled CPU scan: the reference's values and gradients, and what its threads may not change."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys

import pytest
import torch

from tests.comparison import assert_same
from transductor.kernels.cpu import scan as cpu
from transductor.recurrence import scan

pytest.importorskip("numba")

TIMES = [0, 1, 2, 7, 64, 129, 1000]
DIMS = [1, 3, 16, 17, 32]


def operands(batch, time, dim, *, symbols=5, dense=False, bias=True, dtype=torch.float64):
    """Orthogonal matrices, so that long products neither explode nor die out."""
    shape = (batch, time) if dense else (symbols,)
    matrices = torch.linalg.qr(torch.randn(*shape, dim, dim, dtype=dtype))[0].contiguous()
    tokens = None if dense else torch.randint(0, symbols, (batch, time))
    biases = torch.randn(batch, time, dim, dtype=dtype) if bias else None
    return matrices, tokens, biases, torch.randn(batch, dim, dtype=dtype)


def outcome(matrices, tokens, bias, initial, grad, **options):
    states = cpu.forward(matrices, tokens, bias, initial, **options)
    return states, *cpu.backward(matrices, tokens, initial, states, grad, wants_matrices=True, **options)


def expected(matrices, tokens, bias, initial, grad):
    """The same four from the reference and autograd; adjoints are the gradient of a bias, given or not."""
    zero = torch.zeros(*grad.shape, dtype=grad.dtype) if bias is None else bias
    leaves = [leaf.detach().requires_grad_() for leaf in (matrices, zero, initial)]
    states = scan(leaves[0], tokens, bias=leaves[1], initial_state=leaves[2], backend="reference")
    found = torch.autograd.grad(states, leaves, grad, materialize_grads=True, allow_unused=True)
    return states.detach(), *found


def assert_outcome(found, wanted):
    for name, one, other in zip(("states", "to_matrices", "adjoints", "to_initial"), found, wanted, strict=True):
        assert_same(one, other, what=name)


@pytest.mark.parametrize("dense", [False, True], ids=["tokens", "dense"])
@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("time", TIMES)
def test_equals_the_reference(time, dim, dense):
    # A dense matrix at every one of 1000 positions costs the reference seconds, so that case is one row.
    for batch, bias in ((0, True), (1, False), (3, True)) if time < 1000 else ((1 if dense else 3, True),):
        problem = operands(batch, time, dim, dense=dense, bias=bias)
        grad = torch.randn(batch, time, dim, dtype=torch.float64)
        assert_outcome(outcome(*problem, grad), expected(*problem, grad))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dim", [5, 12, 33, 48, 65, 100])
def test_every_width_lies_in_registers_of_several_sizes(dim, dtype):
    """Widths that are no power of two, by rows and by columns, few positions and many."""
    for time in (9, 2100):
        problem = operands(2, time, dim, dtype=dtype)
        grad = torch.randn(2, time, dim, dtype=dtype)
        states = scan(problem[0], problem[1], bias=problem[2], initial_state=problem[3], backend="chunked")
        found = outcome(*problem, grad)
        assert_same(found[0], states)
        adjoints = found[2]
        before = torch.cat((problem[3].unsqueeze(1), states[:, :-1]), 1)
        flow = (problem[0][problem[1][:, 1:]].mT @ adjoints[:, 1:].unsqueeze(-1)).squeeze(-1)
        assert_same(adjoints[:, :-1], grad[:, :-1] + flow)
        for token in range(5):
            here = problem[1] == token
            assert_same(found[1][token], adjoints[here].mT @ before[here])


@pytest.mark.parametrize("dense", [False, True], ids=["tokens", "dense"])
def test_states_too_long_for_registers(dense):
    problem = operands(2, 9, 130, dense=dense)
    grad = torch.randn(2, 9, 130, dtype=torch.float64)
    for chunks in (None, 3):
        assert_outcome(outcome(*problem, grad, _chunks=chunks), expected(*problem, grad))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("batch", [1, 9])
def test_many_positions_of_few_tokens(batch, bias):
    """Long enough that the table is transposed and that a token's sum crosses blocks."""
    problem = operands(batch, 6000, 3, symbols=2, bias=bias)
    grad = torch.randn(batch, 6000, 3, dtype=torch.float64)
    chunked = scan(problem[0], problem[1], bias=problem[2], initial_state=problem[3], backend="chunked")
    states, to_matrices, adjoints, to_initial = outcome(*problem, grad)
    assert_same(states, chunked)
    before = torch.cat((problem[3].unsqueeze(1), states[:, :-1]), 1)
    for token in range(2):
        here = problem[1] == token
        assert_same(to_matrices[token], adjoints[here].mT @ before[here])
    assert_same(to_initial, (problem[0][problem[1][:, 0]].mT @ adjoints[:, 0].unsqueeze(-1)).squeeze(-1))


@pytest.mark.parametrize("dense", [False, True], ids=["tokens", "dense"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("time", "chunks"), [(129, 4), (7, 5), (2, 2), (3, 9), (64, 64)])
def test_chunks_of_time_change_nothing(time, chunks, bias, dense):
    problem = operands(3, time, 16, dense=dense, bias=bias)
    grad = torch.randn(3, time, 16, dtype=torch.float64)
    assert_outcome(outcome(*problem, grad, _chunks=chunks), outcome(*problem, grad, _chunks=1))


def test_a_chunk_that_overflows_is_computed_step_by_step():
    """`inf · 0` inside a product: the doubling coordinate of row 0 is empty, so its states are small."""
    table = torch.stack((torch.diag(torch.tensor([2.0, 0.5, 0.5])), torch.eye(3))).double()
    tokens = torch.arange(2).unsqueeze(-1).expand(2, 3000)
    initial = torch.tensor([[0.0, 1.0, 1.0], [1.0, 1.0, 1.0]], dtype=torch.float64)
    grad = torch.ones(2, 3000, 3, dtype=torch.float64)
    grad[..., 0] = 0.0
    found = outcome(table, tokens, None, initial, grad, _chunks=2)
    assert all(torch.isfinite(part).all() for part in found)
    assert_outcome(found, outcome(table, tokens, None, initial, grad, _chunks=1))


def test_float32_at_length_32768():
    problem = operands(1, 32_768, 16, symbols=8, bias=False)
    grad = torch.randn(1, 32_768, 16, dtype=torch.float64)
    # The rounded inputs are the problem: what is measured is the arithmetic.
    rounded = [part.float() if part is not None and part.is_floating_point() else part for part in problem]
    widened = [part.double() if part is not None and part.is_floating_point() else part for part in rounded]
    exact = outcome(*widened, grad.float().double())
    found = outcome(*rounded, grad.float())
    for one, other, tolerance in zip(found, exact, (1e-5, 1e-4, 1e-4, 1e-4), strict=True):
        assert one.dtype == torch.float32
        assert (one - other).norm() <= tolerance * other.norm()


@pytest.mark.parametrize("dense", [False, True], ids=["tokens", "dense"])
def test_threads_do_not_change_a_bit(dense):
    problem = operands(6, 3000, 16, dense=dense, bias=False, dtype=torch.float32)
    grad = torch.randn(6, 3000, 16)
    threads = torch.get_num_threads()
    results = []
    try:
        for count in (1, 2, 2, 3):
            torch.set_num_threads(count)
            results.append(outcome(*problem, grad))
    finally:
        torch.set_num_threads(threads)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("time", [40, 5000])  # by rows, by columns
def test_what_is_not_finite_takes_its_course(time, value):
    matrices, tokens, _, initial = operands(1, time, 3, bias=False)
    bias = torch.zeros(1, time, 3, dtype=torch.float64)
    bias[0, 20, 1] = value
    states = cpu.forward(matrices, tokens, bias, initial)
    assert torch.isfinite(states[0, :20]).all()
    assert not torch.isfinite(states[0, 20, 1])
    assert not torch.isfinite(states[0, 21:]).any()
    grad = torch.zeros_like(bias)
    grad[0, 20, 1] = value
    finite = cpu.forward(matrices, tokens, None, initial)
    _, adjoints, to_initial = cpu.backward(matrices, tokens, initial, finite, grad, wants_matrices=False)
    assert (adjoints[0, 21:] == 0).all()
    assert not torch.isfinite(adjoints[0, :20]).any()
    assert not torch.isfinite(to_initial).any()


@pytest.mark.parametrize("chunks", [1, 3])
def test_any_layout_of_the_inputs(chunks):
    matrices, tokens, bias, initial = operands(4, 30, 3)
    strided = (
        matrices.mT.contiguous().mT,
        tokens.t().contiguous().t().int(),
        bias.movedim(2, 0).contiguous().movedim(0, 2),
        initial[:1].expand(4, 3),
    )
    grad = torch.ones((), dtype=torch.float64).expand(4, 30, 3)
    plain = matrices, tokens, bias, initial[:1].repeat(4, 1)
    found = outcome(*strided, grad, _chunks=chunks)
    assert_outcome(found, expected(*plain, grad.contiguous()))
    assert (grad == 1).all()


@pytest.mark.parametrize("time", [500, 110_000])  # by rows; by columns of the matrices that occur
def test_a_large_vocabulary_of_which_little_occurs(time):
    matrices = torch.full((50_257, 3, 3), float("nan"), dtype=torch.float64)
    few = torch.tensor([3, 40_000, 50_256])
    matrices[few], _, _, initial = operands(2, 0, 3, symbols=3)
    small = torch.randint(0, 3, (2, time))
    grad = torch.randn(2, time, 3, dtype=torch.float64)
    states, to_matrices, adjoints, to_initial = outcome(matrices, few[small], None, initial, grad)
    wanted = outcome(matrices[few], small, None, initial, grad)
    assert_outcome((states, to_matrices[few], adjoints, to_initial), wanted)
    to_matrices[few] = 0
    assert (to_matrices == 0).all()


def test_matrices_that_ask_for_no_gradient():
    problem = operands(1, 5, 3)
    states = cpu.forward(*problem)
    assert cpu.backward(*problem[:2], problem[3], states, states, wants_matrices=False)[0] is None


def _tell_whether_equal(problem, grad, wanted, answer):
    # Torch's own threads do not survive a fork, so nothing here may use them: neither comparing nor filling memory.
    torch.use_deterministic_algorithms(False)
    found = outcome(*problem, grad)
    answer.put(all((a.numpy() == b.numpy()).all() for a, b in zip(found, wanted, strict=True)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*")
def test_a_forked_child_has_threads_of_its_own():
    problem = operands(8, 20_000, 3, bias=False)
    grad = torch.randn(8, 20_000, 3, dtype=torch.float64)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        wanted = outcome(*problem, grad)
        context = multiprocessing.get_context("fork")
        answer = context.SimpleQueue()
        child = context.Process(target=_tell_whether_equal, args=(problem, grad, wanted, answer), daemon=True)
        child.start()
        child.join(30)
        assert child.exitcode == 0
        assert answer.get()
    finally:
        torch.set_num_threads(threads)


def test_importing_the_kernel_does_not_import_numba():
    program = "import sys, transductor.kernels.cpu.scan; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_available():
    assert cpu.available()
