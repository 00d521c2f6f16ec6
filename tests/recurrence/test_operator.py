"""The scan as a torch operation: what compilers, autocast, checkpointing and CUDA graphs see of it."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from tests.comparison import assert_same
from tests.laws.test_models import MODELS, V
from tests.laws.test_scan import operands
from transductor.kernels.cpu import scan as cpu
from transductor.kernels.rotation import cayley_rotation, skew_dim
from transductor.recurrence import scan

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ENGINES = ["triton", "chunked"] if DEVICE == "cuda" else ["chunked", *(["numba"] if cpu.available() else [])]
TRANSDUCTORS = [name for name in MODELS if "transductor" in name]
# torch 2.13 mistakes the strides of CPU attention with an additive bias when lengths are dynamic, in any model.
ONE_GRAPH = [name for name in TRANSDUCTORS if "relative" not in name]


@pytest.fixture(autouse=True)
def repeatable():
    """Compiled graphs are compared with eager ones; torch's own determinism switch has no part in it.

    Lengths are dynamic, but not the constants of layers: torch would trace a graph whose ``eps`` is a variable, learn
    from its own passes that it cannot be one, and trace everything a second time.
    """
    torch.manual_seed(0)
    with warnings.catch_warnings():  # of the compiler's own imports
        warnings.simplefilter("ignore")
        torch.compiler.reset()
        constants = torch._dynamo.config.patch(specialize_float=True)
    with constants:
        yield


def on_device(leaves):
    return {name: leaf.detach().to(DEVICE).requires_grad_() for name, leaf in leaves.items()}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dense", [False, True], ids=["tokens", "dense"])
def test_the_operation_keeps_torchs_contracts(engine, dense):
    """Schema, fake tensors, autograd registration and AOT dispatch, checked by torch itself."""
    leaves, tokens = operands(150, batch=2, dense=dense)
    leaves = on_device(leaves)
    matrices, bias, start = leaves["transitions"], leaves["bias"], leaves["initial_state"][:2]
    tokens = None if tokens is None else tokens.to(DEVICE)
    given = matrices, tokens, bias, start.detach().requires_grad_(), None, None, engine
    torch.library.opcheck(torch.ops.transductor.scan.default, given)


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("dim", [1, 2, 3, 4, 16])
def test_the_cayley_map_keeps_torchs_contracts(dim, squared):
    """Strides too: a compiler believes what it was told about them."""
    raw = torch.randn(3, skew_dim(dim), dtype=torch.float64, device=DEVICE, requires_grad=True)
    torch.library.opcheck(torch.ops.transductor.cayley.default, (raw, dim, squared))

    def rotations(raw):
        return cayley_rotation(raw, dim, squared=squared)

    leaf = raw[:1].detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(rotations, (leaf,))
    assert torch.autograd.gradgradcheck(rotations, (leaf,), fast_mode=dim > 4)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("options", ["plain", "lengths", "packed"])
def test_a_compiled_scan_is_one_graph_and_the_same(engine, options):
    def functional(transitions, tokens, start, **arguments):
        states, final = scan(
            transitions, tokens, initial_state=start, backend=engine, return_final=True, **arguments
        )  # fmt: skip
        return states.sin() + final.sum(), final

    compiled = torch.compile(functional, fullgraph=True, backend="aot_eager", dynamic=True)
    for time in (9, 70, 200):
        leaves, tokens = operands(time, batch=1 if options == "packed" else 3)
        leaves = on_device(leaves)
        arguments = {
            "plain": {},
            "lengths": {"lengths": torch.tensor([time, 0, time // 2], device=DEVICE)},
            "packed": {"cu_seqlens": torch.tensor([0, 4, 4, time], device=DEVICE)},
        }[options]
        start = leaves["initial_state"]
        if options == "packed":
            start = torch.randn(3, 4, dtype=torch.float64, device=DEVICE, requires_grad=True)
        outcomes = []
        for function in (functional, compiled):
            values, final = function(leaves["transitions"], tokens.to(DEVICE), start, **arguments)
            outcomes.append((values, final, *torch.autograd.grad(values.sum(), [leaves["transitions"], start])))
        for eager, found in zip(*outcomes, strict=True):
            assert_same(found, eager)


@pytest.mark.parametrize("name", ONE_GRAPH)
def test_a_whole_model_compiles_to_one_graph(name):
    model = MODELS[name]().to(DEVICE).double()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager", dynamic=True)
    for time in (20, 75):
        tokens = torch.randint(0, V, (2, time), device=DEVICE)
        assert_same(compiled(tokens), model(tokens))
    compiled(tokens).square().mean().backward()
    found = {key: weight.grad for key, weight in model.named_parameters() if weight.grad is not None}
    model.zero_grad()
    model(tokens).square().mean().backward()
    expected = {key: weight.grad for key, weight in model.named_parameters() if weight.grad is not None}
    assert expected.keys() == found.keys()
    for key, gradient in expected.items():
        assert_same(found[key], gradient, what=key)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_a_whole_model_compiles_with_the_default_compiler():
    model = MODELS[TRANSDUCTORS[0]]().to(DEVICE)
    compiled = torch.compile(model, fullgraph=True)
    tokens = torch.randint(0, V, (2, 75), device=DEVICE)
    assert_same(compiled(tokens), model(tokens))


@pytest.mark.parametrize("engine", ENGINES)
def test_autocast_leaves_the_state_alone(engine):
    leaves, tokens = operands(200, dtype=torch.float32)
    leaves = on_device(leaves)
    expected = scan(**leaves, tokens=tokens.to(DEVICE), backend=engine)
    with torch.autocast(DEVICE, torch.bfloat16):
        found = scan(**leaves, tokens=tokens.to(DEVICE), backend=engine)
    assert torch.equal(found, expected)


@pytest.mark.parametrize("engine", ENGINES)
def test_checkpointing_recomputes_the_same(engine):
    leaves, tokens = operands(200)
    gradients = []
    for recompute in (False, True):
        on = on_device(leaves)
        names = list(on)

        def states(*values, names=names):
            return scan(**dict(zip(names, values, strict=True)), tokens=tokens.to(DEVICE), backend=engine)

        out = checkpoint(states, *on.values(), use_reentrant=False) if recompute else states(*on.values())
        gradients.append(torch.autograd.grad(out.square().sum(), list(on.values())))
    assert all(torch.equal(*pair) for pair in zip(*gradients, strict=True))


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
@pytest.mark.parametrize("options", ["plain", "mask", "packed"])
def test_cuda_graphs_replay_on_new_inputs(options):
    """Nothing waits for the device: forward and backward are captured once, then fed other numbers."""
    leaves, tokens = operands(300, batch=1, dim=16, dtype=torch.float32)
    leaves, tokens = on_device(leaves), tokens.to(DEVICE)
    arguments = {
        "plain": {},
        "mask": {"mask": (torch.rand(1, 300) < 0.8).to(DEVICE)},
        "packed": {"cu_seqlens": torch.tensor([0, 40, 300], device=DEVICE)},
    }[options]
    if options == "packed":
        leaves["initial_state"] = torch.randn(2, 16, device=DEVICE, requires_grad=True)

    def run():
        states = scan(**leaves, tokens=tokens, **arguments)
        gradients = torch.autograd.grad(states.square().sum(), list(leaves.values()))
        return states.detach(), *gradients  # a graph kept alive belongs to the stream it was made on

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run()
    with torch.no_grad():
        for leaf in leaves.values():
            leaf.copy_(torch.randn_like(leaf) * 0.2)
        tokens.copy_(torch.randint_like(tokens, 5))
    graph.replay()
    for found, expected in zip(captured, run(), strict=True):
        assert_same(found, expected)
