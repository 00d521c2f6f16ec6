"""Many models as one: vmap over scans, families and whole Transductors equals one after another, gradients too."""

from __future__ import annotations

import pytest
import torch
from torch.func import functional_call, stack_module_state, vmap

from tests.comparison import assert_same
from transductor.heads import RationalHead
from transductor.kernels.cpu import scan as cpu
from transductor.kernels.precise import precise_product, precise_spectral_norm
from transductor.model import BackboneConfig, RationalTransductor
from transductor.recurrence import scan
from transductor.transitions import FAMILIES

ENGINES = ["chunked", *(["numba"] if cpu.available() else [])]
D64 = {"dtype": torch.float64}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("shared", ["nothing", "table", "tokens"])
@pytest.mark.parametrize("masked", [False, True])
def test_scans_side_by_side(engine, shared, masked):
    torch.manual_seed(0)
    tables = torch.randn(3, 5, 4, 4, **D64) * 0.4
    tokens = torch.randint(0, 5, (3, 2, 40))
    bias, start = torch.randn(3, 2, 40, 4, **D64), torch.randn(3, 2, 4, **D64)
    mask = (torch.rand(2, 40) < 0.8) if masked else None
    leaves = [tables[0] if shared == "table" else tables, bias, start]
    leaves = [leaf.clone().requires_grad_() for leaf in leaves]
    tokens = tokens[0] if shared == "tokens" else tokens
    dims = (None if shared == "table" else 0, None if shared == "tokens" else 0, 0, 0)

    def one(table, ids, term, state):
        return scan(table, ids, bias=term, initial_state=state, mask=mask, backend=engine)

    together = vmap(one, in_dims=dims)(leaves[0], tokens, *leaves[1:])
    alone = torch.stack(
        [
            one(
                leaves[0] if shared == "table" else leaves[0][i],
                tokens if shared == "tokens" else tokens[i],
                leaves[1][i],
                leaves[2][i],
            )
            for i in range(3)
        ]
    )
    assert_same(together, alone)
    weights = torch.randn_like(together)
    for found, expected in zip(
        torch.autograd.grad((together * weights).sum(), leaves),
        torch.autograd.grad((alone * weights).sum(), leaves),
        strict=True,
    ):
        assert_same(found, expected)


@pytest.mark.parametrize("engine", ENGINES)
def test_matrices_per_position_side_by_side(engine):
    torch.manual_seed(0)
    matrices, start = torch.randn(3, 2, 20, 4, 4, **D64) * 0.4, torch.randn(4, **D64)
    together = vmap(lambda m: scan(m, initial_state=start, backend=engine))(matrices)
    assert_same(together, torch.stack([scan(m, initial_state=start, backend=engine) for m in matrices]))


@pytest.mark.parametrize(
    "shapes",
    [((3, 2, 4), (4, 5), (0, None)), ((2, 4), (3, 4, 5), (None, 0)), ((3, 6, 2, 4), (3, 4, 5), (0, 0))],
    ids=str,
)
def test_products_broadcast_under_vmap(shapes):
    left, right = torch.randn(shapes[0], **D64), torch.randn(shapes[1], **D64)
    found = vmap(precise_product, in_dims=shapes[2])(left, right)
    assert_same(found, vmap(torch.matmul, in_dims=shapes[2])(left, right))


def test_norms_under_vmap():
    matrices = torch.randn(4, 3, 5, 3, **D64)
    assert_same(
        vmap(precise_spectral_norm, in_dims=2)(matrices.movedim(2, 2)),
        torch.stack([torch.linalg.matrix_norm(each, 2) for each in matrices.movedim(2, 0)]),
    )


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch's attention on a CPU has no batching rule
@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "permutation"])
def test_whole_models_with_stacked_weights(family):
    """How several seeds are trained as one job."""
    models = []
    for seed in range(3):
        torch.manual_seed(seed)
        head = RationalHead(FAMILIES[family](vocab_size=3, state_dim=4))
        models.append(
            RationalTransductor(head, BackboneConfig(vocab_size=3, width=8, layers=1, attention_heads=2)).double()
        )
    weights, buffers = stack_module_state(models)
    tokens = torch.randint(0, 3, (3, 2, 17))

    def loss(parameters, held, ids):
        return functional_call(models[0], (parameters, held), (ids,)).square().mean()

    together = vmap(loss)(weights, buffers, tokens)
    alone = torch.stack([model(ids).square().mean() for model, ids in zip(models, tokens, strict=True)])
    assert_same(together, alone)
    trainable = {name: value for name, value in weights.items() if value.requires_grad}
    found = torch.autograd.grad(together.sum(), list(trainable.values()), allow_unused=True)
    alone.sum().backward()
    for (name, _), gradient in zip(trainable.items(), found, strict=True):
        expected = [dict(model.named_parameters())[name].grad for model in models]
        if gradient is None or expected[0] is None:
            assert gradient is None or not gradient.any()
        else:
            assert_same(gradient, torch.stack(expected), what=name)
