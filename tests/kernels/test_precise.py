"""Products whose gradients stay precise where the compiler would round them."""

from __future__ import annotations

import pytest
import torch

from tests.comparison import assert_same
from tests.laws.test_transitions import FAMILIES, OPTIONS, composite_examples, shaken
from transductor.kernels.precise import precise_product, precise_spectral_norm

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SHAPES = [
    ((3, 4), (4, 2)),
    ((5, 3, 4), (5, 4, 2)),
    ((2, 5, 3, 4), (5, 4, 1)),
    ((3, 4), (5, 4, 2)),
    ((0, 3, 4), (0, 4, 2)),
]


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_it_is_the_product_with_gradients_of_any_order(shapes):
    left, right = (torch.randn(shape, dtype=torch.float64, device=DEVICE, requires_grad=True) for shape in shapes)
    assert torch.equal(precise_product(left, right), left @ right)
    torch.library.opcheck(torch.ops.transductor.product.default, (left, right))
    if left.numel():
        assert torch.autograd.gradcheck(precise_product, (left, right))
        assert torch.autograd.gradgradcheck(precise_product, (left, right), fast_mode=True)


@pytest.mark.parametrize("leading", [(), (7,), (2, 3)])
def test_one_matrix_on_the_right_takes_any_leading_dimensions(leading):
    left = torch.randn(*leading, 4, dtype=torch.float64, requires_grad=True)
    right = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    assert_same(precise_product(left, right), left @ right)
    assert torch.autograd.gradcheck(precise_product, (left, right))


@pytest.mark.parametrize("shape", [(4, 4), (2, 3, 4, 4), (5, 1, 1), (0, 3, 3)], ids=str)
def test_it_is_the_norm_with_gradients_of_any_order(shape):
    matrices = torch.randn(shape, dtype=torch.float64, device=DEVICE, requires_grad=True)
    assert_same(precise_spectral_norm(matrices), torch.linalg.matrix_norm(matrices, 2))
    torch.library.opcheck(torch.ops.transductor.spectral_norm.default, (matrices,))
    if matrices.numel():
        assert torch.autograd.gradcheck(precise_spectral_norm, (matrices,))
        assert torch.autograd.gradgradcheck(precise_spectral_norm, (matrices,), fast_mode=True)


@pytest.mark.filterwarnings("ignore")  # the compiler's own
@pytest.mark.parametrize("name", [*FAMILIES, *composite_examples(vocab_size=2)])
def test_compiled_under_autocast_a_family_keeps_its_gradient(name):
    """An ordinary product fails here by four thousandths; one tensor given twice must count twice."""
    torch.manual_seed(0)
    torch.compiler.reset()
    if name in FAMILIES:
        family = FAMILIES[name](state_dim=4, vocab_size=3, **OPTIONS.get(name, {}))
    else:
        family = composite_examples(vocab_size=3)[name]
    family = shaken(family, 5).to(DEVICE)
    weights = [weight for weight in family.parameters() if weight.requires_grad]
    direction = torch.randn(3, family.state_dim, family.state_dim, device=DEVICE)
    found = []
    for table in (family.table, torch.compile(family.table, backend="aot_eager")):
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = (table() * direction).sum()
        if weights:
            found.append(torch.autograd.grad(loss, weights))
        else:
            found.append((loss,))
    for expected, compiled in zip(*found, strict=True):
        assert_same(compiled, expected)
