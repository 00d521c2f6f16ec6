"""What everyone who computes the normalised scan inherits: the reference's values and gradients, and its zeros."""

from __future__ import annotations

import math

import pytest
import torch

from tests.comparison import assert_same
from transductor.recurrence import NORMS, Normalised, scan
from transductor.recurrence.normalised_operator import normalised_backends

FAST = [name for name in normalised_backends() if name not in ("reference", "triton")]
HERE = ["reference", *FAST]


def operands(time, *, batch=3, dim=4, symbols=5, dense=False, signed=False, dtype=torch.float64):
    """Random leaves; signed ones turn the state without forgetting where it was, which keeps them comparable."""
    transitions = torch.randn(*((batch, time) if dense else (symbols,)), dim, dim, dtype=torch.float64)
    start = torch.randn(batch, dim, dtype=torch.float64)
    if signed:
        transitions = torch.linalg.qr(transitions)[0] * torch.rand(len(transitions), *[1] * (transitions.ndim - 1))
    else:
        transitions, start = transitions.exp() * 0.01, start.exp()
    tokens = None if dense else torch.randint(0, symbols, (batch, time))
    return transitions.to(dtype).requires_grad_(), tokens, start.to(dtype).requires_grad_()


def outcome(transitions, tokens, start, *, cotangents=None, norm="l1", **options):
    """States and logs, final ones, and the gradients of a random functional of them."""
    result, final = scan(transitions, tokens, initial_state=start, normalise=norm, return_final=True, **options)
    values = (*result, *final)
    if cotangents is None:
        cotangents = [torch.randn_like(value) for value in values]
    loss = sum((value * weight).sum() for value, weight in zip(values, cotangents, strict=True))
    return [*values, *torch.autograd.grad(loss, (transitions, start))], cotangents


def assert_all_equal_the_reference(transitions, tokens, start, **options):
    expected, cotangents = outcome(transitions, tokens, start, backend="reference", **options)
    names = "states", "logs", "final state", "final log", "gradient of transitions", "gradient of the start"
    for backend in FAST:
        computed, _ = outcome(transitions, tokens, start, backend=backend, cotangents=cotangents, **options)
        for ours, theirs, what in zip(computed, expected, names, strict=True):
            assert_same(ours, theirs, what=f"{backend}: {what}")


@pytest.mark.parametrize("dense", [False, True], ids=["tokens", "dense"])
@pytest.mark.parametrize("time", [1, 7, 64, 129])
class TestAgainstTheReference:
    @pytest.mark.parametrize("signed", [False, True], ids=["positive", "signed"])
    @pytest.mark.parametrize("norm", NORMS)
    def test_plain(self, time, dense, norm, signed):
        assert_all_equal_the_reference(*operands(time, dense=dense, signed=signed), norm=norm)

    def test_mask(self, time, dense):
        mask = torch.rand(3, time) < 0.7
        mask[0] = False
        assert_all_equal_the_reference(*operands(time, dense=dense), mask=mask)

    def test_packed_with_mask(self, time, dense):
        transitions, tokens, _ = operands(time, batch=1, dense=dense)
        cuts = torch.randint(0, time + 1, (4,)).sort().values
        offsets = torch.cat((torch.tensor([0]), cuts, torch.tensor([time])))
        starts = torch.rand(5, 4, dtype=torch.float64, requires_grad=True)
        mask = torch.rand(1, time) < 0.8
        assert_all_equal_the_reference(transitions, tokens, starts, cu_seqlens=offsets, mask=mask)


@pytest.mark.parametrize("signed", [False, True], ids=["positive", "signed"])
def test_a_thousand_steps(signed):
    assert_all_equal_the_reference(*operands(1000, signed=signed), lengths=torch.tensor([0, 1000, 500]))


@pytest.mark.parametrize("norm", NORMS)
def test_the_reference_is_the_plain_scan_divided_by_its_norm(norm):
    transitions, tokens, start = operands(40, signed=True)
    plain, end = scan(transitions, tokens, initial_state=start, return_final=True)
    result, final = scan(
        transitions, tokens, initial_state=start, normalise=norm, return_final=True, backend="reference"
    )
    order = {"l1": 1, "l2": 2, "max": math.inf}[norm]
    sizes = torch.linalg.vector_norm(plain, order, dim=-1)
    assert_same(result.logs, sizes.log())
    assert_same(result.states, plain / sizes.unsqueeze(-1))
    assert_same(final.states * final.logs.exp().unsqueeze(-1), end)
    wanted = torch.autograd.grad(result.logs.sum() + result.states[..., 0].sum(), transitions)[0]
    direct = torch.autograd.grad(sizes.log().sum() + (plain / sizes.unsqueeze(-1))[..., 0].sum(), transitions)[0]
    assert_same(wanted, direct)


@pytest.mark.parametrize("backend", HERE)
@pytest.mark.parametrize("time", [9, 200])
def test_a_zero_product_is_an_honest_infinity(backend, time):
    """Row 1 meets what cannot happen: state 0, log −inf from there on; gradients are finite, other rows untouched."""
    transitions, tokens, start = operands(time)
    with torch.no_grad():
        transitions[4] = 0.0
    tokens = tokens % 4
    end = time // 2
    harmless, tokens = tokens, tokens.clone()
    tokens[1, end] = 4
    states, logs = scan(transitions, tokens, initial_state=start, normalise="l1", backend=backend)
    assert (logs[1, end:] == -math.inf).all()
    assert (states[1, end:] == 0).all()
    assert states[1, :end].isfinite().all()
    others = scan(transitions, harmless, initial_state=start, normalise="l1", backend=backend)
    assert torch.equal(states[[0, 2]], others.states[[0, 2]])
    assert torch.equal(logs[[0, 2]], others.logs[[0, 2]])
    (logs.clamp_min(-1e9).sum() + states.square().sum()).backward()
    assert transitions.grad.isfinite().all()
    assert start.grad.isfinite().all()
    # The zero row of gradients is the one that would make the impossible possible: it is not asked for.
    assert (transitions.grad[4] == 0).all()


@pytest.mark.parametrize("backend", HERE)
def test_an_infinite_log_takes_no_gradient(backend):
    transitions, tokens, start = operands(20, batch=1)
    with torch.no_grad():
        transitions[:, 0] = 0.0
        transitions[:, :, 1:] = 0.0  # from state 0 to the others, from where nothing leads on
    _, logs = scan(transitions, tokens, initial_state=start, normalise="l1", backend=backend)
    assert logs[0, 0] > -math.inf
    assert (logs[0, 1:] == -math.inf).all()
    to_table, to_start = torch.autograd.grad(logs[0, -1], (transitions, start))
    assert (to_table == 0).all()
    assert (to_start == 0).all()


@pytest.mark.parametrize("backend", HERE)
def test_a_zero_start_stays_zero(backend):
    transitions, tokens, start = operands(70)
    begun = start.detach().clone()
    begun[2] = 0.0
    begun.requires_grad_()
    states, logs = scan(transitions, tokens, initial_state=begun, normalise="l2", backend=backend)
    assert (states[2] == 0).all()
    assert (logs[2] == -math.inf).all()
    states.sum().backward()
    assert begun.grad.isfinite().all()


@pytest.mark.parametrize("backend", HERE)
def test_a_belief_survives_on_an_unlikely_state(backend):
    """One power of two for a complete product would lose the second column: 10^-3 against 1, two hundred times."""
    table = torch.diag(torch.tensor([1.0, 1e-3]))[None].requires_grad_()
    tokens, start = torch.zeros(1, 200, dtype=torch.long), torch.tensor([0.0, 1.0])
    states, logs = scan(table, tokens, initial_state=start, normalise="l1", backend=backend)
    assert_same(states, torch.tensor([0.0, 1.0]).expand(1, 200, 2))
    assert_same(logs, torch.arange(1.0, 201.0, dtype=torch.float64)[None] * math.log(1e-3), dtype=torch.float32)
    if backend != "reference":  # autograd through the loop meets infinity times zero
        gradient = torch.autograd.grad(logs[0, -1], table)[0][0]
        assert_same(gradient[1, 1], torch.tensor(200 / 1e-3))
        assert gradient.isfinite().all()


@pytest.mark.parametrize("backend", HERE)
@pytest.mark.parametrize("cuts", [(1, 2), (50,), (3, 100, 101)])
def test_streaming_goes_on_from_the_final_pair(backend, cuts):
    transitions, tokens, start = operands(130)
    expected, last = scan(transitions, tokens, initial_state=start, normalise="l1", return_final=True)
    final: torch.Tensor | Normalised = start
    states, logs = [], []
    for part in tokens.tensor_split(cuts, 1):
        result, final = scan(transitions, part, initial_state=final, normalise="l1", return_final=True, backend=backend)
        states.append(result.states)
        logs.append(result.logs)
    assert_same(torch.cat(states, 1), expected.states)
    assert_same(torch.cat(logs, 1), expected.logs)
    assert_same(final.logs, last.logs)
    gradient = torch.autograd.grad(final.logs.sum(), transitions)[0]
    assert_same(gradient, torch.autograd.grad(last.logs.sum(), transitions)[0])


@pytest.mark.parametrize("backend", FAST)
def test_a_long_scan_in_float32_is_as_good_as_float64(backend):
    transitions, tokens, start = operands(20_000, batch=1, dim=6, dtype=torch.float32)
    _, logs = scan(transitions, tokens, initial_state=start, normalise="l1", backend=backend)
    wide = transitions.detach().double().requires_grad_(), start.detach().double()
    _, exact = scan(wide[0], tokens, initial_state=wide[1], normalise="l1", backend="chunked")
    assert ((logs - exact) / exact).abs().max() < 1e-6
    ours = torch.autograd.grad(logs[0, -1], transitions)[0].double()
    theirs = torch.autograd.grad(exact[0, -1], wide[0])[0]
    assert (ours - theirs).abs().max() < 1e-4 * theirs.abs().max()


@pytest.mark.parametrize("backend", HERE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dtypes_and_empty_inputs(backend, dtype):
    transitions, tokens, start = operands(30, dtype=dtype)
    states, logs = scan(transitions, tokens, initial_state=start, normalise="l1", backend=backend)
    assert states.dtype == dtype
    assert logs.dtype == torch.float64
    assert_same(states.double().sum(-1), torch.ones(3, 30), dtype=dtype)
    (empty, _), final = scan(
        transitions, tokens[:, :0], initial_state=start, normalise="l1", backend=backend, return_final=True
    )
    assert empty.shape == (3, 0, 4)
    assert_same(final.logs, start.double().sum(-1).log(), dtype=dtype)
    nobody = scan(transitions, tokens[:0], initial_state=start[:0], normalise="l1", backend=backend)
    assert nobody.states.shape == (0, 30, 4)
    single, end = scan(
        transitions, tokens[0], initial_state=start[0], normalise="l1", backend=backend, return_final=True
    )
    assert single.states.shape == (30, 4)
    assert single.logs.shape == (30,)
    assert end.logs.shape == ()


@pytest.mark.parametrize("dense", [False, True], ids=["tokens", "dense"])
@pytest.mark.parametrize("norm", NORMS)
def test_gradcheck_twice(norm, dense):
    transitions, tokens, start = operands(3, batch=1, dim=2, symbols=2, dense=dense)

    def values(transitions, start):
        return tuple(scan(transitions, tokens, initial_state=start, normalise=norm))

    assert torch.autograd.gradcheck(values, (transitions, start), fast_mode=True)
    assert torch.autograd.gradgradcheck(values, (transitions, start), fast_mode=True)


@pytest.mark.filterwarnings("ignore:.torch.jit.*deprecated:DeprecationWarning")
def test_transforms_of_torch_func():
    transitions, tokens, start = operands(12)

    def likelihood(start):
        return scan(transitions, tokens, initial_state=start, normalise="l1").logs[:, -1].sum()

    direct = torch.autograd.grad(likelihood(start), start)[0]
    assert_same(torch.func.grad(likelihood)(start), direct)
    _, tangent = torch.func.jvp(likelihood, (start,), (start,))
    assert_same(tangent, (direct * start).sum())
    many = torch.func.vmap(likelihood)(torch.stack((start, 2 * start)))
    assert_same(many[1] - many[0], torch.tensor(3 * math.log(2.0), dtype=torch.float64))


@pytest.mark.filterwarnings("ignore")  # of the compiler's own imports
def test_it_compiles_into_one_graph():
    def likelihood(transitions, tokens, start, **options):
        (states, logs), final = scan(
            transitions, tokens, initial_state=start, normalise="l1", return_final=True, **options
        )
        return logs.sum() + states[..., 0].sum() + final.logs.sum()

    compiled = torch.compile(likelihood, fullgraph=True, backend="aot_eager", dynamic=True)
    for time, offsets in ((40, None), (55, torch.tensor([0, 3, 3, 55]))):
        transitions, tokens, start = operands(time, batch=3 if offsets is None else 1)
        start = torch.rand(3, 4, dtype=torch.float64, requires_grad=True)
        direct = torch.autograd.grad(likelihood(transitions, tokens, start, cu_seqlens=offsets), (transitions, start))
        value = compiled(transitions, tokens, start, cu_seqlens=offsets)
        for ours, theirs in zip(torch.autograd.grad(value, (transitions, start)), direct, strict=True):
            assert_same(ours, theirs)


@pytest.mark.parametrize("engine", FAST)
def test_the_operation_keeps_torchs_contracts(engine):
    transitions, tokens, start = operands(30)
    torch.library.opcheck(
        torch.ops.transductor.normalised_scan.default, (transitions, tokens, start, None, "l1", engine)
    )
    packed = operands(30, batch=1)
    offsets = torch.tensor([0, 4, 4, 30])
    torch.library.opcheck(
        torch.ops.transductor.normalised_scan.default,
        (packed[0], packed[1], torch.rand(3, 4, dtype=torch.float64, requires_grad=True), offsets, "max", engine),
    )


def test_what_does_not_fit_is_refused_by_name():
    transitions, tokens, start = operands(5)
    with pytest.raises(ValueError, match="normalise must be one of 'l1', 'l2', 'max'; got 'l3'"):
        scan(transitions, tokens, initial_state=start, normalise="l3")
    with pytest.raises(ValueError, match="append a coordinate that stays 1"):
        scan(transitions, tokens, initial_state=start, normalise="l1", token_bias=torch.ones(5, 4, dtype=torch.float64))
    with pytest.raises(ValueError, match="semiring must be 'real' with normalise"):
        scan(transitions, tokens, initial_state=start, normalise="l1", semiring="log")
    with pytest.raises(ValueError, match="backend with normalise must be one of"):
        scan(transitions, tokens, initial_state=start, normalise="l1", backend="kogge_stone")
    with pytest.raises(ValueError, match="initial_state is required"):
        scan(transitions, tokens, normalise="l1")
    with pytest.raises(ValueError, match=r"initial_state.logs must have shape \(\) or \(3,\)"):
        scan(transitions, tokens, initial_state=Normalised(start, torch.zeros(2)), normalise="l1")
    with pytest.raises(TypeError, match=r"initial_state must be a torch.Tensor; got Normalised"):
        scan(transitions, tokens, initial_state=Normalised(start, torch.zeros(3)))


@pytest.mark.parametrize("dense", [False, True], ids=["tokens", "dense"])
@pytest.mark.parametrize("wild", [1e308, 1e300, 0.0])
@pytest.mark.parametrize("backend", HERE)
def test_a_row_that_leaves_the_range_leaves_every_bit_of_the_others(backend, wild, dense):
    given, tokens, start = (None if each is None else each.detach() for each in operands(150, dense=dense))
    rows = []
    for entry in (1.0, wild):
        matrices, initial = given.clone(), start.clone().requires_grad_()
        if dense:
            matrices[1, 70:] = entry
        else:
            tokens = tokens % 4
            tokens[1, 70:] = 4
            matrices[4] = entry
        result = scan(matrices, tokens, initial_state=initial, normalise="l1", backend=backend)
        gradient = torch.autograd.grad(result.logs[[0, 2]].square().sum(), initial)[0]
        rows.append([result.states[[0, 2]], result.logs[[0, 2]], gradient[[0, 2]]])
    for harmless, beside in zip(*rows, strict=True):
        assert harmless.isfinite().all()
        assert torch.equal(harmless, beside)
