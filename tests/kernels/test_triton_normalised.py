"""The normalised scan's kernels: on a GPU where there is one, else small sizes in Triton's interpreter."""

from __future__ import annotations

import math

import pytest
import torch

from tests.comparison import assert_same
from tests.laws.test_normalised_scan import operands, outcome
from transductor.recurrence import NORMS, scan

gpu = pytest.importorskip("transductor.kernels.gpu.normalised")
ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
NAMES = "states", "logs", "final state", "final log", "gradient of transitions", "gradient of the start"


@pytest.fixture(autouse=True)
def repeatable():
    torch.manual_seed(0)


@pytest.fixture
def tiny_cut(monkeypatch):
    """Chunks of four steps, guessed from so few that most rows need several rounds, and some their own order."""
    monkeypatch.setattr(gpu, "WARM", 2)
    monkeypatch.setattr(gpu, "cut_into", lambda batch, time: (-(-time // 4), 4) if time > 8 else (1, max(time, 1)))


def assert_kernels_agree(transitions, tokens, start, **options):
    expected, cotangents = outcome(transitions, tokens, start, backend="reference", **options)
    leaves = [leaf.detach().to(DEVICE).requires_grad_() for leaf in (transitions, start)]
    there = {name: value.to(DEVICE) if isinstance(value, torch.Tensor) else value for name, value in options.items()}
    ids = None if tokens is None else tokens.to(DEVICE)
    weights = [weight.to(DEVICE) for weight in cotangents]
    computed, _ = outcome(leaves[0], ids, leaves[1], backend="triton", cotangents=weights, **there)
    for ours, theirs, what in zip(computed, expected, NAMES, strict=True):
        assert_same(ours.cpu(), theirs, what=what)


@pytest.mark.parametrize("dense", [False, True], ids=["tokens", "dense"])
@pytest.mark.parametrize("signed", [False, True], ids=["positive", "signed"])
@pytest.mark.parametrize("norm", NORMS)
def test_values_and_gradients(norm, signed, dense, tiny_cut):
    """Signed matrices turn the state and forget nothing, so that their rows are computed in order."""
    for time in (1, 9, 22) if norm == "l1" and not dense else (18,):
        assert_kernels_agree(*operands(time, batch=2, dim=3, dense=dense, signed=signed), norm=norm)


def test_rows_that_forget_are_settled_side_by_side(monkeypatch):
    """Without the last resort: matrices of rank one forget at once, so that two rounds are enough."""
    monkeypatch.setattr(gpu, "WARM", 2)
    monkeypatch.setattr(gpu, "cut_into", lambda batch, time: (-(-time // 4), 4))
    cuts = []
    run = gpu._Sweeps.run

    def watched(self, kernel, rows, arrays, cut, kind, **options):
        cuts.append(cut)
        run(self, kernel, rows, arrays, cut, kind, **options)

    monkeypatch.setattr(gpu._Sweeps, "run", watched)
    transitions, tokens, start = operands(18, batch=2)
    flat = transitions.detach().mean(-1, keepdim=True) * torch.rand(5, 1, 4, dtype=torch.float64)
    assert_kernels_agree(flat.requires_grad_(), tokens, start)
    assert set(cuts) == {(5, 4)}
    assert len(cuts) == 4  # a guess and one round, forward and back


def test_masks_documents_and_lengths(tiny_cut):
    transitions, tokens, start = operands(21, batch=2, dim=3)
    assert_kernels_agree(transitions, tokens, start, mask=torch.rand(2, 21) < 0.7)
    assert_kernels_agree(transitions, tokens, start, lengths=torch.tensor([0, 17]))
    transitions, tokens, _ = operands(30, batch=1, dim=3)
    starts = torch.rand(4, 3, dtype=torch.float64, requires_grad=True)
    assert_kernels_agree(transitions, tokens, starts, cu_seqlens=torch.tensor([0, 11, 11, 28, 30]))


@pytest.mark.parametrize("dim", [1, 4, 8, 17, *([64, 100, 128] if ON_GPU else [])])
def test_every_size_of_state(dim, tiny_cut):
    assert_kernels_agree(*operands(10, batch=1, dim=dim, symbols=3))


def test_a_zero_product_is_an_honest_infinity(tiny_cut):
    transitions, tokens, start = operands(18)
    with torch.no_grad():
        transitions[4] = 0.0
    tokens = tokens % 4
    tokens[1, 9] = 4
    leaves = [leaf.detach().to(DEVICE).requires_grad_() for leaf in (transitions, start)]
    states, logs = scan(leaves[0], tokens.to(DEVICE), initial_state=leaves[1], normalise="l1", backend="triton")
    assert (logs[1, 9:] == -math.inf).all()
    assert (states[1, 9:] == 0).all()
    assert logs[[0, 2]].isfinite().all()
    (logs.clamp_min(-1e9).sum() + states.square().sum()).backward()
    assert leaves[0].grad.isfinite().all()
    assert (leaves[0].grad[4] == 0).all()


def test_an_unknown_token_shows_from_its_position_on(tiny_cut):
    transitions, tokens, start = (each.detach().to(DEVICE) for each in operands(18))
    table, ids, scaled = transitions.contiguous(), tokens.clone(), start / start.sum(-1, keepdim=True)
    ids[1, 7] = 5
    states, logs = gpu.forward(table, ids, scaled, 1)
    assert states[1, 7:].isnan().all()
    assert logs[1, 7:].isnan().all()
    assert states[1, :7].isfinite().all()
    assert states[[0, 2]].isfinite().all()


@pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")  # the interpreter is NumPy
def test_a_row_that_leaves_the_range_leaves_every_bit_of_the_others(tiny_cut):
    given, tokens, begun = (each.detach().to(DEVICE) for each in operands(18))
    rows = []
    for entry in (0.01, 1e308):
        table, ids = given.clone(), tokens % 4
        ids[1, 8:], table[4] = 4, entry
        start = begun.clone().requires_grad_()
        result = scan(table, ids, initial_state=start, normalise="l1", backend="triton")
        gradient = torch.autograd.grad(result.logs[[0, 2]].square().sum(), start)[0]
        rows.append([result.states[[0, 2]], result.logs[[0, 2]], gradient[[0, 2]]])
    for harmless, beside in zip(*rows, strict=True):
        assert torch.equal(harmless, beside)


def test_a_belief_survives_on_an_unlikely_state(tiny_cut):
    table = torch.diag(torch.tensor([1.0, 1e-3]))[None].to(DEVICE)
    tokens = torch.zeros(1, 20, dtype=torch.long, device=DEVICE)
    start = torch.tensor([0.0, 1.0], device=DEVICE)
    states, logs = scan(table, tokens, initial_state=start, normalise="l1", backend="triton")
    assert_same(states.cpu(), torch.tensor([0.0, 1.0]).expand(1, 20, 2))
    assert_same(logs.cpu(), torch.arange(1.0, 21.0, dtype=torch.float64)[None] * math.log(1e-3), dtype=torch.float32)


def test_many_seeds_are_one_scan():
    tables = torch.rand(3, 5, 4, 4, dtype=torch.float64, device=DEVICE, requires_grad=True)
    tokens, start = torch.randint(0, 5, (3, 2, 9), device=DEVICE), torch.rand(4, dtype=torch.float64, device=DEVICE)

    def logs_of(table, ids, backend):
        return scan(table, ids, initial_state=start, normalise="l1", backend=backend).logs

    together = torch.func.vmap(lambda table, ids: logs_of(table, ids, "triton"))(tables, tokens)
    alone = torch.stack([logs_of(*each, "reference") for each in zip(tables, tokens, strict=True)])
    assert_same(together, alone)
    for mine, meant in zip(*(torch.autograd.grad(each.sum(), tables) for each in (together, alone)), strict=True):
        assert_same(mine, meant)


@pytest.mark.skipif(not ON_GPU, reason="needs a GPU")
@pytest.mark.parametrize("dim", [8, 64])
def test_a_long_scan_in_float32_is_as_good_as_float64(dim):
    transitions, tokens, start = operands(100_000, batch=1, dim=dim, dtype=torch.float32)
    table, ids, begun = (each.detach().cuda() for each in (transitions, tokens, start))
    table.requires_grad_()
    logs = scan(table, ids, initial_state=begun, normalise="l1").logs
    wide = transitions.detach().double().requires_grad_()
    exact = scan(wide, tokens, initial_state=start.detach().double(), normalise="l1").logs
    assert ((logs.cpu() - exact) / exact).abs().max() < 1e-6
    ours = torch.autograd.grad(logs[0, -1], table)[0].cpu().double()
    theirs = torch.autograd.grad(exact[0, -1], wide)[0]
    assert (ours - theirs).abs().max() < 1e-4 * theirs.abs().max()
