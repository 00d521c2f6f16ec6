"""The Cayley map from its free numbers: values, gradients, and what torch's transformations make of it."""

from __future__ import annotations

import pytest
import torch
from torch.func import vmap

from tests.comparison import assert_same
from transductor.kernels.rotation import cayley_rotation, skew, skew_dim

SIZES = [1, 2, 3, 16, 17, 32]


def drawn(*shape, dim):
    return torch.randn(*shape, skew_dim(dim), dtype=torch.float64) / dim**0.5


def solved(raw, dim, *, squared=False):
    """The definition."""
    skews, eye = skew(raw, dim), torch.eye(dim, dtype=raw.dtype)
    rotations = torch.linalg.solve(eye - skews, eye + skews)
    return rotations @ rotations if squared else rotations


@pytest.mark.parametrize("dim", SIZES)
def test_a_skew_matrix_is_read_row_by_row_above_the_diagonal(dim):
    raw = drawn(2, dim=dim)
    matrices, numbers = skew(raw, dim), iter(raw.unbind(-1))
    for i in range(dim):
        for j in range(i + 1, dim):
            assert torch.equal(matrices[:, i, j], next(numbers))
    assert next(numbers, None) is None
    assert torch.equal(matrices, -matrices.mT)


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("dim", SIZES)
class TestAgainstTheSolve:
    @pytest.mark.parametrize("shape", [(), (3,), (2, 3)], ids=str)
    def test_values(self, shape, dim, squared):
        raw = drawn(*shape, dim=dim)
        found = cayley_rotation(raw, dim, squared=squared)
        assert found.shape == (*shape, dim, dim)
        assert_same(found, solved(raw, dim, squared=squared))

    def test_gradients(self, dim, squared):
        leaf = drawn(3, dim=dim).requires_grad_()
        weights = torch.randn(3, dim, dim, dtype=torch.float64)
        found, expected = (
            torch.autograd.grad(function(leaf, dim, squared=squared), leaf, weights)[0]
            for function in (cayley_rotation, solved)
        )
        assert_same(found, expected)

    def test_an_empty_batch(self, dim, squared):
        leaf = drawn(2, 0, dim=dim).requires_grad_()
        rotations = cayley_rotation(leaf, dim, squared=squared)
        assert rotations.shape == (2, 0, dim, dim)
        assert torch.autograd.grad(rotations.sum(), leaf)[0].shape == leaf.shape


def test_there_is_one_rotation_of_one_dimension():
    assert torch.equal(cayley_rotation(torch.empty(2, 3, 0), 1), torch.ones(2, 3, 1, 1))


@pytest.mark.parametrize("squared", [False, True])
def test_numbers_behind_each_row_are_not_read(squared):
    """A family with a gain hands over all but the last number."""
    wide = torch.cat((drawn(2, 3, dim=5), torch.full((2, 3, 1), torch.nan, dtype=torch.float64)), -1)
    raw = wide[..., :-1]
    assert not raw.is_contiguous()
    assert_same(cayley_rotation(raw, 5, squared=squared), solved(raw.contiguous(), 5, squared=squared))


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("in_dim", [0, 1, 2])
def test_many_under_vmap_and_their_gradients(in_dim, squared):
    leaf = drawn(4, 3, dim=4).requires_grad_()
    together = vmap(lambda raw: cayley_rotation(raw, 4, squared=squared), in_dims=in_dim)(leaf.movedim(0, in_dim))
    expected = solved(leaf, 4, squared=squared)
    assert_same(together, expected)
    weights = torch.randn_like(expected)
    assert_same(*(torch.autograd.grad(values, leaf, weights)[0] for values in (together, expected)))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, where this test is the first to compile
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("squared", [False, True])
def test_compiled_it_is_one_graph_and_the_same(squared, dynamic):
    def gained(raw):
        return torch.sigmoid(raw[..., -1, None, None]) * cayley_rotation(raw[..., :-1], 5, squared=squared)

    torch.compiler.reset()
    compiled = torch.compile(gained, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for count in (3, 7):
        leaf = torch.randn(count, skew_dim(5) + 1, dtype=torch.float64, requires_grad=True)
        found, expected = compiled(leaf), gained(leaf)
        assert_same(found, expected)
        weights = torch.randn_like(expected)
        assert_same(*(torch.autograd.grad(values, leaf, weights)[0] for values in (found, expected)))


@pytest.mark.parametrize("count", [0, 1, 5, 7, 16])
def test_another_number_of_numbers_is_refused(count):
    with pytest.raises(ValueError, match=rf"raw must end in dimension 6; got \(2, {count}\)"):
        cayley_rotation(torch.ones(2, count), 4)
