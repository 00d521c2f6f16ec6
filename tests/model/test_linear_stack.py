"""The linear stack: its equation, the one head that is equal to it, and what it refuses."""

from __future__ import annotations

import pytest
import torch

from tests.comparison import assert_same
from transductor.heads import LookbackHead, RationalHead
from transductor.model import LinearStack, load, save
from transductor.transitions import AffineTransitions, OrthogonalTransitions, StochasticTransitions

V = 3


def stack(width=4, dtype=torch.float64):
    torch.manual_seed(0)
    heads = (
        RationalHead(OrthogonalTransitions(vocab_size=V, state_dim=3)),
        RationalHead(StochasticTransitions(vocab_size=V, state_dim=2)),
        RationalHead(AffineTransitions(vocab_size=V, state_dim=4)),
    )
    return LinearStack(heads, 5, width=width).to(dtype).eval()


@pytest.mark.parametrize("width", [0, 4])
def test_the_states_follow_the_equation(width):
    model = stack(width)
    (word,) = tokens = torch.randint(0, V, (1, 12))
    states, logits = [head.initial_state() for head in model.heads], []
    for token in word:
        before = None if model.embedding is None else model.embedding(token)
        for layer, head in enumerate(model.heads):
            moved = head.transitions.table()[token] @ states[layer]
            before = states[layer] = moved if before is None else moved + model.inputs[layer](before)
        logits.append(model.readout(torch.cat(states)))
    assert_same(model(tokens)[0], torch.stack(logits))


@pytest.mark.parametrize("width", [0, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_head_of_all_states_and_a_constant_is_equal(width, dtype):
    model = stack(width, dtype)
    single = model.as_one_head()
    assert single.rational_head.state_dim == 3 + 2 + 4 + 1
    tokens, lengths = torch.randint(0, V, (4, 30)), torch.tensor([30, 0, 1, 17])
    mine, one = model(tokens, lengths=lengths), single(tokens, lengths=lengths)
    assert mine.dtype == one.dtype == dtype
    assert_same(one, mine)
    assert_same(single(torch.randint(0, V, (2, 0))), model(torch.randint(0, V, (2, 0))))


def test_the_one_head_shares_nothing_and_can_train_on():
    model = stack()
    single, before = model.as_one_head(), model.readout.weight.clone()
    assert all(parameter.requires_grad for parameter in single.parameters())
    with torch.no_grad():
        for parameter in single.parameters():
            parameter.zero_()
    assert torch.equal(model.readout.weight, before)


def test_every_part_of_a_stack_has_a_gradient():
    model = stack()
    model(torch.randint(0, V, (2, 9))).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.abs().max() > 0 for parameter in model.parameters())


def test_saved_and_loaded_it_is_the_same(tmp_path):
    model = stack(dtype=torch.float32)
    tokens = torch.randint(0, V, (2, 9))
    back = load(save(model, tmp_path / "stack"))
    assert isinstance(back, LinearStack)
    assert back.config == model.config
    assert torch.equal(back(tokens), model(tokens))


def test_what_does_not_fit_is_refused():
    head = RationalHead(OrthogonalTransitions(vocab_size=V, state_dim=3))
    wider = RationalHead(OrthogonalTransitions(vocab_size=V + 1, state_dim=3))
    featured = RationalHead(OrthogonalTransitions(feature_dim=V, state_dim=3))
    looking = LookbackHead(OrthogonalTransitions(vocab_size=V, state_dim=3))
    for heads, error, words in (
        ((), ValueError, "heads must hold at least one head"),
        ((head, head), ValueError, "heads must be different objects"),
        ((head, wider), ValueError, "driven by the same tokens"),
        ((featured,), ValueError, "driven by the same tokens"),
        ((head, looking), TypeError, r"heads\[1\] must be a RationalHead without a look back; got LookbackHead"),
    ):
        with pytest.raises(error, match=words):
            LinearStack(heads, 2)
    with pytest.raises(ValueError, match="width"):
        LinearStack((head,), 2, width=-1)
