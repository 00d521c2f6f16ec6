"""The Triton kernels: on a GPU where there is one, else small sizes in Triton's interpreter; the same tests."""

from __future__ import annotations

import pytest
import torch

from tests.comparison import assert_same
from tests.laws.test_scan import assert_rows_are_alone, operands, outcome
from tests.recurrence.test_derivatives import Case, assert_forward_mode, assert_second_derivatives
from transductor.kernels import rotation
from transductor.kernels.gpu import cuts
from transductor.recurrence import scan

pytest.importorskip("triton")
ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
on_gpu = pytest.mark.skipif(not ON_GPU, reason="needs a GPU")


@pytest.fixture(autouse=True)
def repeatable():
    """Kernels are deterministic of themselves; on a GPU torch's own switch would ask for cuBLAS settings."""
    torch.manual_seed(0)


@pytest.fixture
def tiny_cut(monkeypatch):
    """Chunks of two steps, groups of three chunks: two levels above the positions at T = 26."""
    monkeypatch.setattr(cuts, "chunk_length", lambda batch, time, dim: 2)
    monkeypatch.setattr(cuts, "chunks_per_group", lambda chunks, dim: 3)


def on_device(values):
    return {name: value.detach().to(DEVICE).requires_grad_() for name, value in values.items()}


def assert_kernels_agree(leaves, tokens, **options):
    """States, final state and every gradient of the kernels against the reference loop on the CPU."""
    states, final, gradients, cotangents = outcome(leaves, tokens, backend="reference", **options)
    found = outcome(
        on_device(leaves),
        None if tokens is None else tokens.to(DEVICE),
        backend="triton",
        cotangents=[cotangent.to(DEVICE) for cotangent in cotangents],
        **{name: value.to(DEVICE) for name, value in options.items()},
    )
    assert_same(found[0].cpu(), states, what="states")
    assert_same(found[1].cpu(), final, what="final state")
    for name, gradient in gradients.items():
        assert_same(found[2][name].cpu(), gradient, what=f"gradient of {name}")


def without_bias(leaves):
    return {name: leaves[name] for name in ("transitions", "initial_state")}


@pytest.mark.parametrize("dense", [False, True], ids=["tokens", "dense"])
@pytest.mark.parametrize("time", [1, 2, 9, 26])
class TestAgainstTheReference:
    def test_plain(self, time, dense, tiny_cut):
        leaves, tokens = operands(time, batch=2, dim=3, dense=dense)
        assert_kernels_agree(without_bias(leaves), tokens)

    def test_affine(self, time, dense, tiny_cut):
        leaves, tokens = operands(time, batch=2, dim=3, dense=dense)
        assert_kernels_agree(leaves, tokens)

    def test_masked(self, time, dense, tiny_cut):
        leaves, tokens = operands(time, batch=2, dim=3, dense=dense)
        mask = torch.rand(2, time) < 0.7
        mask[0] = False
        assert_kernels_agree(leaves, tokens, mask=mask)

    def test_packed(self, time, dense, tiny_cut):
        leaves, tokens = operands(time, batch=1, dim=3, dense=dense)
        leaves["initial_state"] = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
        cuts = torch.randint(0, time + 1, (3,)).sort().values
        offsets = torch.cat((torch.tensor([0]), cuts, torch.tensor([time])))
        mask = torch.rand(1, time) < 0.8
        assert_kernels_agree(without_bias(leaves), tokens, cu_seqlens=offsets)
        assert_kernels_agree(leaves, tokens, cu_seqlens=offsets, mask=mask)


@pytest.mark.filterwarnings("ignore:.torch.jit.*deprecated:DeprecationWarning")  # torch's own
@pytest.mark.parametrize("kind", ["dense", "packed"])
def test_forward_mode_and_second_derivatives(kind, tiny_cut):
    case = Case(kind, DEVICE)
    assert_forward_mode(case, "triton")
    assert_second_derivatives(case, "triton")


@pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")  # the interpreter is NumPy
@pytest.mark.parametrize(("wild", "dense"), [("opposite", False), ("product", True)])
def test_a_row_that_overflows_leaves_every_bit_of_the_others(wild, dense, tiny_cut):
    assert_rows_are_alone(wild, dense=dense, time=14, device=DEVICE, backend="triton")


@pytest.mark.parametrize("dim", [1, 4, 7, 8, 16, 17, 64])
@pytest.mark.parametrize("dense", [False, True], ids=["tokens", "dense"])
def test_every_size_of_state(dim, dense, tiny_cut):
    leaves, tokens = operands(10 if dim < 64 else 9, batch=1, dim=dim, symbols=3, dense=dense)
    assert_kernels_agree(without_bias(leaves), tokens)


@pytest.fixture(params=[0, 1, 3], ids=["sorted", "picked", "picked_in_spans"])
def many_tokens(request, monkeypatch):
    """How positions find the sum of their token when tokens are more than a few."""
    monkeypatch.setattr(cuts, "picking_spans", lambda *_: request.param)


@pytest.mark.parametrize("symbols", [1, 2, 16])
@pytest.mark.parametrize("prepared", [False, True], ids=["as_it_lies", "prepared"])
def test_every_size_of_a_small_vocabulary(symbols, prepared, tiny_cut, monkeypatch):
    """Words of one to four letters, a table laid out anew or read where it lies."""
    monkeypatch.setattr(cuts, "prepares", lambda positions, symbols, *, reverse: prepared)
    leaves, tokens = operands(14, batch=2, dim=5, symbols=symbols)
    assert_kernels_agree(without_bias(leaves), tokens)


@pytest.mark.parametrize(("dim", "letters"), [(17, 2), (17, 3), (33, 2)])
@pytest.mark.parametrize("masked", [False, True])
def test_products_of_words_of_wide_matrices(dim, letters, masked, tiny_cut, monkeypatch):
    monkeypatch.setattr(cuts, "chunk_length", lambda batch, time, dim: 4)
    monkeypatch.setattr(cuts, "word_letters", lambda symbols, block, positions: letters)
    if dim == 17:  # one warp to a product, as for many chunks
        monkeypatch.setattr(cuts, "product_warps", lambda block, chunks: 1)
    leaves, tokens = operands(14, batch=1, dim=dim, symbols=2)
    mask = {"mask": torch.rand(1, 14) < 0.7} if masked else {}
    assert_kernels_agree(without_bias(leaves), tokens, **mask)


@pytest.mark.parametrize("symbols", [17, 300])
@pytest.mark.parametrize("prepared", [False, True], ids=["as_it_lies", "prepared"])
def test_every_size_of_a_large_vocabulary(symbols, prepared, tiny_cut, many_tokens, monkeypatch):
    monkeypatch.setattr(cuts, "prepares", lambda positions, symbols, *, reverse: prepared)
    leaves, tokens = operands(14, batch=2, dim=5, symbols=symbols)
    assert_kernels_agree(without_bias(leaves), tokens)


def test_runs_of_one_token_that_cross_many_tiles(tiny_cut, many_tokens):
    """Sorted by token, 150 of 160 positions are one run over three tiles of 64; the masked ones are nobody's."""
    leaves, tokens = operands(80, batch=2, dim=2, symbols=40)
    tokens[:] = 7
    tokens[0, :5], tokens[1, 40:45] = torch.tensor([0, 3, 39, 3, 8]), 39
    assert_kernels_agree(without_bias(leaves), tokens, mask=torch.rand(2, 80) < 0.95)


def test_long_runs_go_through_matrix_units(tiny_cut, monkeypatch):
    monkeypatch.setattr(cuts, "picking_spans", lambda *_: 0)
    monkeypatch.setattr(cuts, "short_runs", lambda *_: False)
    leaves, tokens = operands(80, batch=2, dim=2, symbols=40)
    tokens[:, 5:70] = 7
    assert_kernels_agree(without_bias(leaves), tokens, mask=torch.rand(2, 80) < 0.95)


def test_many_tokens_of_packed_documents(tiny_cut, many_tokens):
    leaves, tokens = operands(30, batch=1, dim=3, symbols=20)
    leaves["initial_state"] = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)
    assert_kernels_agree(without_bias(leaves), tokens, cu_seqlens=torch.tensor([0, 11, 11, 30]))


def test_positions_are_picked_only_where_that_is_cheap():
    assert cuts.picking_spans(16_384, 256, 16) == 8
    assert cuts.picking_spans(1, 256, 16) == 1
    assert cuts.picking_spans(16_384, 256, 3) == 0  # one token could have 5 462 positions in a span
    assert cuts.picking_spans(16_384, 50_257, 16) == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("dim", [3, 32])
def test_every_dtype_is_as_good_as_its_last_rounding(dtype, dim, tiny_cut):
    leaves, tokens = operands(11, batch=2, dim=dim, symbols=3)
    rounded = {name: leaf.detach().to(dtype) for name, leaf in leaves.items()}
    exact = scan(**{name: leaf.double() for name, leaf in rounded.items()}, tokens=tokens, backend="reference")
    on = {name: leaf.to(DEVICE).requires_grad_() for name, leaf in rounded.items()}
    found = scan(**on, tokens=tokens.to(DEVICE), backend="triton")
    assert found.dtype == dtype
    assert_same(found.cpu(), exact, dtype=dtype)
    found.float().square().sum().backward()
    assert all(leaf.grad.dtype == dtype and torch.isfinite(leaf.grad).all() for leaf in on.values())


def test_tokens_of_32_bits_and_states_that_carry_on(tiny_cut):
    leaves, tokens = operands(20, batch=2, dim=3)
    leaves = on_device(without_bias(leaves))
    tokens = tokens.to(DEVICE, torch.int32)
    whole = scan(**leaves, tokens=tokens, backend="triton")
    first, final = scan(**leaves, tokens=tokens[:, :7], backend="triton", return_final=True)
    rest = scan(leaves["transitions"], tokens[:, 7:], initial_state=final, backend="triton")
    assert_same(torch.cat((first, rest), 1), whole)


def test_equal_runs_are_equal_to_the_last_bit(tiny_cut):
    leaves, tokens = operands(26, batch=2, dim=4, symbols=40, dtype=torch.float32)
    cotangents = torch.randn(2, 26, 4, device=DEVICE), torch.randn(2, 4, device=DEVICE)
    runs = [
        outcome(on_device(leaves), tokens.to(DEVICE), backend="triton", cotangents=cotangents) for _ in range(2)
    ]  # fmt: skip
    assert torch.equal(runs[0][0], runs[1][0])
    for name, gradient in runs[0][2].items():
        assert torch.equal(gradient, runs[1][2][name]), name


@pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")  # the interpreter is NumPy
def test_a_product_that_overflows_does_not_touch_states_that_do_not(tiny_cut):
    """`inf · 0` inside a product: the growing coordinate is empty, so every state is small."""
    table = torch.diag(torch.tensor([1e13, 0.5]))[None].to(DEVICE).requires_grad_()
    tokens = torch.zeros(1, 30, dtype=torch.long, device=DEVICE)
    states = scan(table, tokens, initial_state=torch.tensor([0.0, 1.0], device=DEVICE), backend="triton")
    assert_same(states[0, :, 1].cpu(), 0.5 ** torch.arange(1.0, 31.0))
    states[..., 1].sum().backward()
    assert torch.isfinite(table.grad).all()


@pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")
def test_a_document_that_overflows_does_not_touch_the_next(tiny_cut):
    table = torch.tensor([[[1e10]], [[0.5]]], device=DEVICE)
    tokens = torch.tensor([[0] * 14 + [1] * 16], device=DEVICE)
    offsets = torch.tensor([0, 14, 30], device=DEVICE)
    states = scan(table, tokens, initial_state=torch.ones(1, device=DEVICE), cu_seqlens=offsets, backend="triton")
    assert states[0, 13] == float("inf")
    assert_same(states[0, 14:, 0].cpu(), 0.5 ** torch.arange(1.0, 17.0))


@pytest.mark.parametrize("prepared", [False, True], ids=["as_it_lies", "prepared"])
@pytest.mark.parametrize("wrong", [-1, 3, 2**40 + 1])
def test_an_unknown_token_is_seen_and_reads_no_foreign_memory(wrong, prepared, tiny_cut, monkeypatch):
    monkeypatch.setattr(cuts, "prepares", lambda positions, symbols, *, reverse: prepared)
    monkeypatch.setattr("transductor.recurrence.arguments.check_token_ids", lambda *_: None)  # as on a GPU
    leaves, tokens = operands(26, batch=2, dim=3, symbols=3, dtype=torch.float32)
    tokens[0, 9] = wrong
    states = scan(**on_device(without_bias(leaves)), tokens=tokens.to(DEVICE), backend="triton").cpu()
    assert torch.isfinite(states[0, :9]).all()
    assert torch.isnan(states[0, 9:]).all()
    assert torch.isfinite(states[1]).all()


def test_nothing_to_do():
    table, start = torch.eye(2, device=DEVICE).expand(3, 2, 2), torch.ones(2, device=DEVICE)
    for shape in ((0, 6), (2, 0)):
        tokens = torch.empty(shape, dtype=torch.long, device=DEVICE)
        assert scan(table, tokens, initial_state=start, backend="triton").shape == (*shape, 2)


def test_what_the_kernels_cannot_do_is_refused_by_name(monkeypatch):
    tokens, table = torch.zeros(1, 4, dtype=torch.long, device=DEVICE), torch.eye(129, device=DEVICE)[None]
    with pytest.raises(ValueError, match="D ≤ 64, for rows of tokens D ≤ 128"):
        scan(table, tokens, initial_state=torch.ones(129, device=DEVICE), backend="triton")
    with pytest.raises(ValueError, match="got D = 65: use 'chunked'"):
        scan(
            table[:, None, :65, :65].expand(1, 4, 65, 65), initial_state=torch.ones(65, device=DEVICE), backend="triton"
        )
    with pytest.raises(ValueError, match="real semiring only; use 'chunked' for log"):
        scan(table, tokens, initial_state=torch.ones(129, device=DEVICE), semiring="log", backend="triton")
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    with pytest.raises(ValueError, match="runs on a GPU; transitions are on cpu"):
        scan(torch.eye(2)[None], torch.zeros(1, 4, dtype=torch.long), initial_state=torch.ones(2), backend="triton")


CAYLEY_SIZES = [1, 2, 5, 16, 20]


@pytest.mark.parametrize("dim", [*CAYLEY_SIZES, 31])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("scale", [0.3, 30.0, 1000.0])
def test_cayley_rotations_by_elimination(dim, scale, dtype):
    """Orthogonal and equal to the solve, however large the skew matrix."""
    raw = scale * torch.randn(3, rotation.skew_dim(dim), dtype=dtype)
    found, _ = (each.cpu() for each in rotation._eliminated(raw.to(DEVICE), dim, squared=False))
    square, again = (each.cpu() for each in rotation._eliminated(raw.to(DEVICE), dim, squared=True))
    assert torch.equal(again, found)
    raw, found, square = raw.double(), found.double(), square.double()
    skews, eye = rotation.skew(raw, dim), torch.eye(dim, dtype=torch.float64)
    tolerance = 1e-12 if dtype == torch.float64 else 2e-7  # of numbers up to 1: two units in the last place
    rotations = torch.linalg.solve(eye - skews, eye + skews)
    assert (found - rotations).abs().max() <= tolerance
    assert (square - rotations @ rotations).abs().max() <= tolerance
    assert (found @ found.mT - eye).abs().max() <= 4 * tolerance


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("dim", CAYLEY_SIZES)
def test_cayley_gradients_by_one_kernel(dim, squared):
    raw = torch.randn(3, rotation.skew_dim(dim), dtype=torch.float64, requires_grad=True)
    skews, eye = rotation.skew(raw, dim), torch.eye(dim, dtype=torch.float64)
    rotations = torch.linalg.solve(eye - skews, eye + skews)
    grad = torch.randn_like(rotations)
    (expected,) = torch.autograd.grad(rotations @ rotations if squared else rotations, raw, grad)
    out = rotation._cayley_backward(rotations.detach().to(DEVICE), grad.to(DEVICE), squared)
    assert_same(out.cpu(), expected)


def test_cayley_kernels_read_strided_operands():
    """Raw numbers with something behind each row, a gradient that came through a transpose; and in float32."""
    raw, grad = torch.randn(2, 3, 11), torch.randn(2, 3, 5, 5)
    exact = raw[..., :-1].double().requires_grad_()
    rotations = rotation.cayley_rotation(exact, 5)
    (expected,) = torch.autograd.grad(rotations, exact, grad.double().mT)
    found, _ = rotation._eliminated(raw.to(DEVICE)[..., :-1], 5, squared=False)
    assert_same(found.cpu(), rotations)
    assert_same(rotation._cayley_backward(found, grad.to(DEVICE).mT, False).cpu(), expected)


@on_gpu
@pytest.mark.parametrize("symbols", [2, 8, 256])
@pytest.mark.parametrize(("batch", "time", "dim"), [(1, 32_768, 16), (3, 5_001, 16), (64, 777, 16), (2, 3_000, 64)])
def test_float32_stays_near_float64(batch, time, dim, symbols):
    """Orthogonal tables at the length where lower precision is lost: 1e-5 for states, 1e-4 for gradients."""
    # Rounded once: a table that is orthogonal only to float32 is another table, and that is not the scan's error.
    table = torch.linalg.qr(torch.randn(symbols, dim, dim, dtype=torch.float64, device=DEVICE))[0].float().double()
    tokens = torch.randint(0, symbols, (batch, time), device=DEVICE)
    start = torch.randn(batch, dim, device=DEVICE).double()
    cotangent = torch.randn(batch, time, dim, dtype=torch.float64, device=DEVICE)
    results = []
    for dtype, backend in ((torch.float64, "chunked"), (torch.float32, "triton")):
        leaves = [table.to(dtype).requires_grad_(), start.to(dtype).requires_grad_()]
        states = scan(leaves[0], tokens, initial_state=leaves[1], backend=backend)
        results.append([states, *torch.autograd.grad(states, leaves, cotangent.to(dtype))])
    for exact, found, bound in zip(*results, (1e-5, 1e-4, 1e-4), strict=True):
        assert (found.double() - exact).norm() <= bound * exact.norm()


@on_gpu
def test_a_million_steps_and_the_longest_group_chain():
    table = torch.linalg.qr(torch.randn(8, 16, 16, device=DEVICE))[0]
    tokens = torch.randint(0, 8, (1, 1_000_001), device=DEVICE)
    start = torch.randn(16, device=DEVICE)
    states = scan(table, tokens, initial_state=start, backend="triton")
    exact = scan(table.double(), tokens, initial_state=start.double(), backend="chunked")
    assert (states.double() - exact).norm() <= 1e-5 * exact.norm()
