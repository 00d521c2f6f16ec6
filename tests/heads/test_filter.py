"""The filter head: the forward algorithm, its streams, and where it may stand."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from tests.comparison import assert_same
from tests.properties import given, st
from transductor import RationalHead, RationalTransductor, certify, extract, load, save
from transductor.automata import machine
from transductor.heads import FilterHead
from transductor.model import BackboneConfig, FilterReadout, FilterReadoutConfig, LinearStack, build
from transductor.transitions import DenseTransitions, PositiveTransitions

TWO = torch.zeros(1, 2, dtype=torch.long)


def tracker(**options):
    return FilterHead(PositiveTransitions(state_dim=4, vocab_size=3, **options)).double()


def forward_algorithm(head, tokens):
    """Beliefs and logs by the definition, one step after the other."""
    table, belief = head.transitions.table(), head.initial_state()[:-1].expand(len(tokens), -1)
    shown = []
    for letters in tokens.T:
        weights = (table[letters] @ belief.unsqueeze(-1)).squeeze(-1)
        total = weights.sum(-1, keepdim=True)
        belief = weights / total
        shown.append(torch.cat((belief, total.log()), -1))
    return torch.stack(shown, 1)


def test_it_is_the_forward_algorithm_in_values_and_gradients():
    head, tokens = tracker(), torch.randint(0, 3, (2, 60))
    weights = torch.randn(2, 60, 5, dtype=torch.float64)
    outcomes = []
    for shown in (head(tokens), forward_algorithm(head, tokens)):
        outcomes.append((shown, *torch.autograd.grad((shown * weights).sum(), list(head.parameters()))))
    for mine, meant in zip(*outcomes, strict=True):
        assert_same(mine, meant)


def test_logs_add_up_to_the_likelihood():
    head, tokens = tracker(), torch.randint(0, 3, (2, 30))
    lengths = torch.tensor([30, 11])
    states, logs = head.beliefs(tokens)
    shown = head(tokens)
    assert_same(shown[..., :-1], states)
    assert_same(shown[..., -1].cumsum(1), logs)
    assert_same(head.log_likelihood(tokens, lengths=lengths), logs[[0, 1], lengths - 1])


@given(cuts=st.lists(st.integers(0, 30), max_size=5), padded=st.booleans())
def test_any_split_of_a_stream_is_the_parallel_pass(cuts, padded):
    head, tokens = tracker(), torch.randint(0, 3, (2, 30))
    mask = torch.rand(2, 30) < 0.6 if padded else None
    stream, pieces = head.start(2), []
    for begin, end in pairwise([0, *sorted(cuts), 30]):
        part = None if mask is None else mask[:, begin:end]
        shown, stream = head.advance(tokens[:, begin:end], stream, mask=part)
        pieces.append(shown)
    expected, final = head(tokens, mask=mask, return_final=True)
    assert_same(torch.cat(pieces, 1), expected)
    assert_same(stream.state, final)


def test_packed_documents_begin_again_also_padded_and_empty():
    head, tokens = tracker(), torch.randint(0, 3, (1, 12))
    offsets = torch.tensor([0, 0, 5, 12, 12])
    mask = torch.ones(1, 12, dtype=torch.bool)
    mask[0, 5:7] = False
    shown, final = head(tokens, cu_seqlens=offsets, mask=mask, return_final=True)
    alone = head(tokens[:, 5:], mask=mask[:, 5:])
    assert_same(shown[:, 5:], alone)
    start = head.initial_state()
    assert_same(shown[0, 5], start)
    assert_same(final, torch.stack((start, shown[0, 4], shown[0, 11], start)))
    assert_same(head(tokens[0]), head(tokens)[0])


def test_a_belief_may_be_given_with_or_without_its_log():
    head, tokens = tracker(), torch.randint(0, 3, (2, 9))
    given_belief = torch.rand(2, 4, dtype=torch.float64)
    with_log = torch.cat((given_belief, torch.full((2, 1), -1.0, dtype=torch.float64)), -1)
    assert_same(head(tokens, initial_state=3 * given_belief), head(tokens, initial_state=with_log))
    with pytest.raises(ValueError, match="initial_state must end in dimension 4 or 5"):
        head(tokens, initial_state=torch.ones(3, dtype=torch.float64))


def test_an_impossible_reading_ends_a_filter_without_leak_and_not_one_with():
    family = DenseTransitions(state_dim=2, vocab_size=2).double()
    family.source.raw.data.copy_(torch.tensor([[1.0, 0, 0, 0], [0, 0, 0, 1]]))
    dead = FilterHead(family).double()
    dead.raw_initial_state.data.fill_(0.5)
    shown = dead(torch.tensor([[0, 1, 0]]))
    assert shown.isfinite().all()
    assert (shown[0, 1:, :-1] == 0).all()
    assert dead.log_likelihood(torch.tensor([[0, 1]])) == -torch.inf
    shown[..., -1].sum().backward()
    assert family.source.raw.grad.isfinite().all()
    alive = tracker()
    alive.transitions.source.raw.data.fill_(-60.0)
    alive.transitions.source.raw.data[0, 0] = 0
    alive.transitions.source.raw.data[1, -1] = 0
    long = alive(torch.tensor([[0, 1] * 50]))
    assert_same(long[..., :-1].sum(-1), torch.ones(1, 100, dtype=torch.float64))
    assert long[..., -1].min() > -30


def test_a_readout_predicts_distributions_and_is_saved(tmp_path):
    model = FilterReadout(tracker(), 5).double()
    tokens = torch.randint(0, 3, (2, 8))
    assert_same(model(tokens).exp().sum(-1), torch.ones(2, 8, dtype=torch.float64))
    assert torch.equal(load(save(model, tmp_path / "filter"))(tokens), model(tokens))
    with pytest.raises(ValueError, match="head must be a filter"):
        build(FilterReadoutConfig(linear_head().config, 2))
    with pytest.raises(TypeError, match="must be a FilterHead"):
        FilterReadout(linear_head(), 2)


def linear_head():
    return RationalHead(DenseTransitions(state_dim=2, vocab_size=3))


@pytest.mark.parametrize(
    ("error", "words", "act"),
    [
        (ValueError, "bias must be None", lambda: tracker()(TWO, bias=torch.ones(1, 2, 5))),
        (ValueError, "must have a linear head", lambda: certify(tracker(), against=machine("parity").dfa)),
        (ValueError, "must have a linear head", lambda: extract(tracker())),
        (TypeError, "without a look back", lambda: LinearStack([tracker()], 2)),
    ],
)  # fmt: skip
def test_what_needs_a_linear_head_refuses_it(error, words, act):
    with pytest.raises(error, match=words):
        act()


def test_it_trains_beside_attention():
    model = RationalTransductor(tracker(), BackboneConfig(vocab_size=3, width=8, layers=1, attention_heads=2)).double()
    model(torch.randint(0, 3, (2, 6))).square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.rational_head.parameters())


def test_it_learns_a_hidden_coin():
    """Two hidden biases that switch rarely: within 2 % of the loss of the machine that made the data."""
    moves = torch.tensor([[0.98, 0.02], [0.02, 0.98]])
    true = torch.stack([torch.tensor(shown).unsqueeze(-1) * moves for shown in ([0.9, 0.2], [0.1, 0.8])])
    torch.manual_seed(0)
    hidden = (torch.rand(64, 60) < 0.02).long().cumsum(1) % 2
    tokens = (torch.rand(64, 60) > torch.where(hidden == 0, 0.9, 0.2)).long()
    family = DenseTransitions(state_dim=2, vocab_size=2)
    family.source.raw.data.copy_(true.flatten(1))
    best = FilterHead(family)
    best.raw_initial_state.data.copy_(torch.tensor([1.0, 0.0]))
    model = FilterReadout(FilterHead(PositiveTransitions(state_dim=4, vocab_size=2)), 2)
    optimiser = torch.optim.Adam(model.parameters(), 0.1, betas=(0.9, 0.99))
    for _ in range(40):
        logits = model(tokens[:, :-1])
        loss = torch.nn.functional.nll_loss(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    _, logs = best.beliefs(tokens)
    bayes = -(logs[:, -1] - logs[:, 0]).mean() / 59
    assert loss < 1.02 * bayes
