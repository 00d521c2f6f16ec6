"""The same numbers on every device there is: values, gradients, streams.  On a CPU alone this is a self-check."""

from __future__ import annotations

import pytest
import torch

from tests.comparison import assert_same
from tests.laws.test_models import MODELS, V
from tests.laws.test_scan import HERE, operands, outcome
from transductor.transitions import FAMILIES, certify_laws

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
on_every_device = pytest.mark.parametrize("device", DEVICES)


@on_every_device
@pytest.mark.parametrize("dense", [False, True], ids=["tokens", "dense"])
@pytest.mark.parametrize("options", ["plain", "mask", "packed"])
@pytest.mark.parametrize("backend", [*HERE, "triton"])
def test_scan(backend, options, dense, device):
    if (backend, device) in (("triton", "cpu"), ("numba", "cuda")):
        pytest.skip(f"{backend} does not run on {device}")
    leaves, tokens = operands(150, batch=1, dense=dense)
    arguments = {
        "plain": {},
        "mask": {"mask": torch.rand(1, 150) < 0.8},
        "packed": {"cu_seqlens": torch.tensor([0, 40, 150])},
    }[options]
    if options == "packed":
        leaves["initial_state"] = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    states, final, gradients, cotangents = outcome(leaves, tokens, backend="reference", **arguments)
    there = {name: leaf.detach().to(device).requires_grad_() for name, leaf in leaves.items()}
    found = outcome(
        there,
        None if tokens is None else tokens.to(device),
        backend=backend,
        cotangents=[cotangent.to(device) for cotangent in cotangents],
        **{name: value.to(device) for name, value in arguments.items()},
    )
    assert_same(found[0].cpu(), states)
    assert_same(found[1].cpu(), final)
    for name, gradient in gradients.items():
        assert_same(found[2][name].cpu(), gradient, what=f"gradient of {name}")


@on_every_device
@pytest.mark.parametrize("name", FAMILIES)
def test_families(name, device):
    family = FAMILIES[name](state_dim=6, vocab_size=5).double()
    expected = family.table()
    assert_same(family.to(device).table().cpu(), expected)
    assert all(certificate.holds for certificate in certify_laws(family))
    state, tokens = torch.randn(3, 6, dtype=torch.float64), torch.tensor([0, 4, 2])
    moved = family.stepper()(state.to(device), tokens.to(device)).cpu()
    assert_same(moved, (expected[tokens] @ state.unsqueeze(-1)).squeeze(-1))


@on_every_device
@pytest.mark.parametrize("name", MODELS)
def test_models(name, device):
    torch.manual_seed(1)
    model = MODELS[name]().double().eval()
    tokens = torch.randint(0, V, (2, 24))
    expected = model(tokens)
    model, tokens = model.to(device), tokens.to(device)
    assert_same(model(tokens).cpu(), expected)
    first, state = model.advance(tokens[:, :10], model.start(2))
    second, _ = model.advance(tokens[:, 10:], state)
    assert_same(torch.cat((first, second), 1).cpu(), expected)
