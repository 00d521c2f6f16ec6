"""The factored filter: every factor is a filter of its own, and together they are one head."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from tests.comparison import assert_same
from transductor import load, save
from transductor.heads import FactoredFilterHead, FilterHead, build_head
from transductor.model import FilterReadout
from transductor.transitions import DirectSum, PositiveTransitions


def head_of(*dims):
    return FactoredFilterHead(DirectSum(*(PositiveTransitions(state_dim=dim, vocab_size=3) for dim in dims))).double()


def factors(head):
    """The same factors as heads of their own."""
    alone = []
    for family, start in zip(
        head.transitions.families, head.raw_initial_state.detach().split(head.factor_dims), strict=True
    ):
        alone.append(FilterHead(family).double())
        alone[-1].raw_initial_state.data.copy_(start)
    return alone


@pytest.mark.parametrize("dims", [(3, 3), (2, 4, 3)], ids=["equal", "different"])
@pytest.mark.parametrize("padded", ["no", "mask", "packed"])
def test_it_is_its_factors_side_by_side(dims, padded):
    head, tokens, options = head_of(*dims), torch.randint(0, 3, (2, 30)), {}
    if padded == "mask":
        options["mask"] = torch.rand(2, 30) < 0.6
    elif padded == "packed":
        tokens, options["cu_seqlens"] = tokens[:1], torch.tensor([0, 0, 11, 30])
    shown, final = head(tokens, return_final=True, **options)
    each = [factor(tokens, return_final=True, **options) for factor in factors(head)]
    assert_same(shown[..., :-1], torch.cat([one[..., :-1] for one, _ in each], -1))
    assert_same(shown[..., -1], sum(one[..., -1] for one, _ in each))
    assert_same(final[..., :-1], torch.cat([end[..., :-1] for _, end in each], -1))
    assert_same(final[..., -1], sum(end[..., -1] for _, end in each))


@pytest.mark.parametrize("dims", [(3, 3), (2, 4)], ids=["equal", "different"])
def test_a_stream_is_the_parallel_pass(dims):
    head, tokens = head_of(*dims), torch.randint(0, 3, (2, 30))
    mask = torch.rand(2, 30) < 0.7
    stream, pieces = head.start(2), []
    for begin, end in pairwise([0, 1, 3, 20, 30]):
        shown, stream = head.advance(tokens[:, begin:end], stream, mask=mask[:, begin:end])
        pieces.append(shown)
    expected, final = head(tokens, mask=mask, return_final=True)
    assert_same(torch.cat(pieces, 1), expected)
    assert_same(stream.state, final)
    assert_same(head(tokens[0]), head(tokens)[0])


def test_a_readout_predicts_the_product_and_is_saved(tmp_path):
    model = FilterReadout(head_of(2, 3), 5).double()
    tokens = torch.randint(0, 3, (2, 8))
    logits = model(tokens)
    assert_same(logits.exp().sum(-1), torch.ones(2, 8, dtype=torch.float64))
    beliefs = model.rational_head(tokens)[..., :-1].split((2, 3), -1)
    tables = torch.softmax(model.readout.weight, 0).split((2, 3), 1)
    product = (beliefs[0] @ tables[0].mT) * (beliefs[1] @ tables[1].mT)
    assert_same(logits.exp(), product / product.sum(-1, keepdim=True))
    assert torch.equal(load(save(model, tmp_path / "factored"))(tokens), logits)


def test_what_does_not_fit_is_refused_by_name():
    with pytest.raises(TypeError, match="must be a DirectSum of factors; got PositiveTransitions"):
        FactoredFilterHead(PositiveTransitions(state_dim=3, vocab_size=3))
    head = head_of(2, 2)
    assert isinstance(build_head(head.config), FactoredFilterHead)
    with pytest.raises(TypeError, match="has several beliefs"):
        head.beliefs(torch.zeros(1, 2, dtype=torch.long))
    with pytest.raises(ValueError, match="must end in dimension 4 or 5"):
        head(torch.zeros(1, 2, dtype=torch.long), initial_state=torch.ones(3, dtype=torch.float64))
