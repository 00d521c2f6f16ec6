"""Scores of attention as their four terms, for models with one head and for stacks."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.comparison import assert_same
from tests.laws.test_models import COMBINATIONS, V, backbone, features_head, tokens_head
from transductor.heads import LookbackHead, RationalHead
from transductor.model import RationalTransductor, StackedTransductor, Transformer, interaction_matrices, score_terms
from transductor.model.attention import SlidingWindow
from transductor.model.token_positions import TokenPositions
from transductor.recurrence import Layout
from transductor.transitions import CayleyTransitions, OrthogonalTransitions

MODELS = {
    "transductor": lambda config: RationalTransductor(tokens_head(), config),
    "input injection": lambda config: RationalTransductor(tokens_head(), config, injection="input"),
    "linear stack": lambda config: StackedTransductor([tokens_head(), tokens_head()], config),
    "non-linear stack": lambda config: StackedTransductor([features_head(), features_head()], config),
    "mixed stack": lambda config: StackedTransductor(
        [LookbackHead(OrthogonalTransitions(vocab_size=V, state_dim=3)), features_head()], config
    ),
}
LAYOUTS = {
    "complete": {},
    "right padding": {"lengths": torch.tensor([11, 4])},
    "left padding": {"mask": torch.arange(11) >= torch.tensor([[3], [0]])},
    "documents": {"cu_seqlens": torch.tensor([0, 4, 5, 11])},
}
SCHEMES = [(positions, attention) for positions, attention in COMBINATIONS if attention != "no_attention"]


def hidden(tokens, places, kind):
    """Return what attention does not look at, ``(B or 1, 1, T, T)``, from the definition."""
    time = tokens.shape[1]
    distance = torch.arange(time)[:, None] - torch.arange(time)
    out = ((distance < 0) | (distance >= (kind.window if isinstance(kind, SlidingWindow) else time)))[None]
    if places.real is not None:
        out = out | ~places.real[:, None]
    if places.documents is not None:
        out = out | (places.documents[:, :, None] != places.documents[:, None])
    return out[:, None]


@pytest.mark.parametrize(("positions", "attention"), SCHEMES)
@pytest.mark.parametrize("name", MODELS)
def test_a_score_is_the_sum_of_its_four_terms(name, positions, attention):
    torch.manual_seed(0)
    model = MODELS[name](backbone(positions, attention)).double()
    for layout, keywords in LAYOUTS.items():
        tokens = torch.randint(0, V, (1 if layout == "documents" else 2, 11))
        receiving = 1 if name == "input injection" else 2
        check_terms(model, tokens, keywords, biased=positions == "relative", receiving=receiving)


def check_terms(model, tokens, keywords, *, biased, receiving):
    """The sum against queries and keys written out, and what each layer mixes against a softmax of the sum."""
    normed, mixed, handles = [], [], []
    for block in model.backbone.blocks:
        handles.append(block.attention_norm.register_forward_hook(lambda *call: normed.append(call[2])))
        handles.append(block.attention.register_forward_hook(lambda *call: mixed.append(call[2][0])))
    model(tokens, **keywords)
    for handle in handles:
        handle.remove()
    places = TokenPositions.of(tokens, Layout.of(tokens.shape, tokens.device, **keywords))
    real = torch.ones_like(tokens, dtype=torch.bool) if places.real is None else places.real
    scheme, layers = model.backbone.positions, score_terms(model, tokens, **keywords)
    assert len(layers) == len(normed) == 2
    for layer, (terms, stream, out) in enumerate(zip(layers, normed, mixed, strict=True)):
        attention = model.backbone.blocks[layer].attention
        queries, keys = (
            scheme.turned(attention.heads(linear(stream)), places.positions)
            for linear in (attention.query, attention.key)
        )
        scores, bias = queries @ keys.mT * attention.scale(), scheme.score_bias(places.positions, places.positions)
        assert_same(terms.total, scores if bias is None else scores + bias)
        assert (terms.position_bias.abs().max() > 0) == biased
        weights = terms.total.masked_fill(hidden(tokens, places, attention.kind), -torch.inf).softmax(-1)
        values = attention.heads(attention.value(stream))
        assert_same(attention.output((weights @ values).transpose(1, 2).flatten(-2))[real], out[real])
        for term in (terms.content_state, terms.state_content, terms.state_state):
            assert (term.abs().max() > 1e-6) == (layer < receiving)


@pytest.mark.parametrize("name", MODELS)
def test_the_interaction_matrices_give_the_state_state_terms(name):
    """The states are measured where they enter the stream, not computed by what is tested."""
    torch.manual_seed(1)
    model = MODELS[name](backbone()).double()
    tokens, entered, states, handles = torch.randint(0, V, (2, 7)), [], [], []
    for block in model.backbone.blocks:
        handles.append(block.attention_norm.register_forward_pre_hook(lambda *call: entered.append(call[1][0])))
    heads = model.heads if isinstance(model, StackedTransductor) else [model.rational_head]
    for head in heads:
        handles.append(head.register_forward_hook(lambda *call: states.append(call[2])))
    model(tokens)
    for handle in handles:
        handle.remove()
    states = states * (2 // len(states))
    matrices, layers = interaction_matrices(model), score_terms(model, tokens)
    assert isinstance(matrices, torch.Tensor) == isinstance(model, RationalTransductor)
    for matrix, state, stream, block, terms in zip(
        matrices, states, entered, model.backbone.blocks, layers, strict=True
    ):
        assert matrix.shape == (2, state.shape[-1], state.shape[-1])
        inverse = 1 / (stream.var(-1, unbiased=False) + block.attention_norm.eps).sqrt()
        bilinear = torch.einsum("btd,hde,bse->bhts", state, matrix, state)
        assert_same(terms.state_state, bilinear * inverse[:, None, :, None] * inverse[:, None, None, :])
    assert name != "input injection" or (matrices[1] == 0).all()


def test_content_of_a_stack_holds_what_earlier_heads_wrote():
    """A stack of two layers whose second head is silent: its scores still depend on the first head, as content."""
    torch.manual_seed(2)
    model = MODELS["linear stack"](backbone()).double()
    torch.nn.init.zeros_(model.injections[1].projections.weight)
    tokens = torch.randint(0, V, (1, 6))
    before = score_terms(model, tokens)[1]
    assert before.state_state.abs().max() == before.content_state.abs().max() == 0
    model.heads[0].raw_initial_state.data += 1.0
    assert (score_terms(model, tokens)[1].content_content - before.content_content).abs().max() > 1e-6


def test_single_tokens_and_training_models_are_decomposed_without_dropout():
    config = replace(backbone("rotary"), dropout=0.5)
    for name in ("transductor", "mixed stack"):
        model = MODELS[name](config).train()
        first, again = (score_terms(model, torch.zeros(1, 1, dtype=torch.long)) for _ in range(2))
        assert model.training
        for one, other in zip(first, again, strict=True):
            assert one.total.shape == (1, 2, 1, 1)
            assert torch.equal(one.total, other.total)
        assert score_terms(model, torch.zeros(2, 0, dtype=torch.long))[0].total.shape == (2, 2, 0, 0)


@pytest.mark.parametrize(
    ("error", "words", "act"),
    [
        (TypeError, "a RationalTransductor or a StackedTransductor; got Transformer",
         lambda: score_terms(Transformer(backbone()), torch.zeros(1, 2, dtype=torch.long))),
        (TypeError, "a RationalTransductor or a StackedTransductor; got Transformer",
         lambda: interaction_matrices(Transformer(backbone()))),
        (ValueError, "feed-forward only", lambda: interaction_matrices(
            StackedTransductor([tokens_head(), tokens_head()], backbone("none", "no_attention")))),
        (ValueError, "at most one of mask", lambda: score_terms(
            MODELS["linear stack"](backbone()), torch.zeros(1, 2, dtype=torch.long),
            lengths=torch.tensor([1]), mask=torch.ones(1, 2, dtype=torch.bool))),
        (ValueError, r"tokens must be a tensor of shape \(B, T\)",
         lambda: score_terms(MODELS["linear stack"](backbone()), torch.zeros(2, dtype=torch.long))),
    ],
)  # fmt: skip
def test_what_cannot_be_decomposed_is_refused(error, words, act):
    with pytest.raises(error, match=words):
        act()


def test_states_of_other_dimensions_have_matrices_of_their_own():
    model = StackedTransductor(
        [RationalHead(CayleyTransitions(vocab_size=V, state_dim=dim)) for dim in (2, 5)], backbone()
    )
    assert [tuple(matrix.shape) for matrix in interaction_matrices(model)] == [(2, 2, 2), (2, 5, 5)]
