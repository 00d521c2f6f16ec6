"""The Rational Transductor beside its Transformer, its injection, and its attention."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.comparison import assert_same
from tests.laws.test_models import COMBINATIONS, V, backbone, features_head, tokens_head
from transductor.heads import RationalHead
from transductor.injection import build_injection
from transductor.model import (
    BackboneConfig,
    LearnedPositions,
    RationalTransductor,
    RelativePositions,
    RotaryPositions,
    SlidingWindow,
    StackedTransductor,
    Transformer,
)
from transductor.model.backbone import Backbone
from transductor.model.token_positions import TokenPositions
from transductor.transitions import CayleyTransitions


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("positions", "attention"), COMBINATIONS)
def test_with_all_projections_zero_it_is_the_transformer_bit_for_bit(positions, attention, dtype):
    config = backbone(positions, attention)
    transductor, transformer = RationalTransductor(tokens_head(), config).to(dtype), Transformer(config).to(dtype)
    transformer.backbone.load_state_dict(transductor.backbone.state_dict())
    tokens = torch.randint(0, V, (3, 33))
    assert not torch.equal(transductor(tokens), transformer(tokens))
    torch.nn.init.zeros_(transductor.injection.projections.weight)
    assert torch.equal(transductor(tokens), transformer(tokens))


def test_deep_injection_gives_each_layer_its_own_projection():
    config = backbone()
    counts = {
        kind: RationalTransductor(tokens_head(), config, injection=kind).parameter_count()
        for kind in ("deep", "input", "none")
    }
    assert counts["deep"] - counts["input"] == counts["input"] - counts["none"] == 4 * config.width


def test_injection_is_the_stated_sum():
    model = RationalTransductor(tokens_head(), backbone()).double()
    stream, states = torch.randn(2, 3, 16, dtype=torch.float64), torch.randn(2, 3, 4, dtype=torch.float64)
    for layer in range(2):
        weight = model.injection.projection(layer)
        assert_same(model.injection.into(states)(layer, stream), stream + states @ weight.T)


@pytest.mark.parametrize("window", [1, 3, 8, 100])
@pytest.mark.parametrize("positions", ["none", "relative", "rotary"])
def test_a_window_is_full_attention_with_far_keys_hidden(window, positions):
    """Against scores written out in full, at lengths around the block size."""
    for time in (1, window, window + 1, 2 * window + 1, 29):
        config = replace(backbone(positions), layers=1, attention=SlidingWindow(window))
        torch.manual_seed(2)
        net = Backbone(config).double()
        attention, scheme = net.blocks[0].attention, net.positions
        stream = torch.randn(2, time, 16, dtype=torch.float64)
        places = TokenPositions(torch.arange(time)[None])
        queries, keys = (
            scheme.turned(attention.heads(linear(stream)), places.positions)
            for linear in (attention.query, attention.key)
        )
        scores = queries @ keys.mT * attention.scale()
        bias = scheme.score_bias(places.positions, places.positions)
        if bias is not None:
            scores = scores + bias
        distance = torch.arange(time)[:, None] - torch.arange(time)
        scores = scores.masked_fill((distance < 0) | (distance >= window), -torch.inf)
        mixed = (scores.softmax(-1) @ attention.heads(attention.value(stream))).transpose(1, 2).flatten(-2)
        assert_same(attention(stream, places, scheme)[0], attention.output(mixed))


def test_a_windowed_stream_keeps_a_cache_of_fixed_size():
    model = RationalTransductor(tokens_head(), backbone("none", "window"))
    state, sizes = model.start(1), []
    for _ in range(12):
        _, state = model.advance(torch.zeros(1, 1, dtype=torch.long), state)
        sizes.append(state.backbone.caches[0].keys.shape[2])
    assert sizes[-1] == sizes[3] == 3  # the window of 4 minus the current token
    assert state.head.state.shape == (1, 4)


def test_stacks_follow_their_equations():
    """One layer of each stack against the recurrence written as a loop."""
    for make in (tokens_head, features_head):
        config = BackboneConfig(vocab_size=V, width=16, layers=1, attention_heads=2)
        model = StackedTransductor([make()], config).double()
        tokens = torch.randint(0, V, (2, 9))
        head, stream = model.heads[0], model.backbone.embedding(tokens)
        state, states = head.initial_state().expand(2, -1), []
        for t in range(9):
            matrix = (
                head.transitions.table()[tokens[:, t]]
                if head.transitions.vocab_size
                else head.transitions.matrices(stream[:, t])
            )
            state = (matrix @ state.unsqueeze(-1)).squeeze(-1) + model.inputs[0](stream[:, t])
            states.append(state)
        entered = stream + torch.stack(states, 1) @ model.injections[0].projection(0).T
        out, _ = model.backbone.blocks[0](
            entered, TokenPositions(torch.arange(9)[None]), model.backbone.positions, None
        )
        assert_same(model(tokens), model.backbone.readout(model.backbone.final_norm(out)))


@pytest.mark.parametrize(
    ("error", "words", "act"),
    [
        (ValueError, "driven by the backbone's 5 tokens; it has state_dim=2, vocab_size=3",
         lambda: RationalTransductor(RationalHead(CayleyTransitions(vocab_size=3, state_dim=2)), backbone())),
        (ValueError, "driven by the backbone's 5 tokens", lambda: RationalTransductor(features_head(), backbone())),
        (TypeError, "head must be a RationalHead", lambda: RationalTransductor(torch.nn.Linear(1, 1), backbone())),
        (ValueError, "injection must be one of 'deep', 'input', 'none'",
         lambda: RationalTransductor(tokens_head(), backbone(), injection="late")),
        (ValueError, "one head per layer, 2; got 1", lambda: StackedTransductor([tokens_head()], backbone())),
        (ValueError, r"heads\[1\] must be driven by vocab_size=5 or feature_dim=16", lambda: StackedTransductor(
            [tokens_head(), RationalHead(CayleyTransitions(vocab_size=3, state_dim=2))], backbone())),
        (ValueError, "width must be a multiple of attention_heads = 3",
         lambda: BackboneConfig(vocab_size=2, width=16, attention_heads=3)),
        (ValueError, "layers must be a positive integer", lambda: BackboneConfig(vocab_size=2, layers=0)),
        (TypeError, "positions must be a position scheme", lambda: BackboneConfig(vocab_size=2, positions="rope")),
        (TypeError, "attention must be FullAttention", lambda: BackboneConfig(vocab_size=2, attention="full")),
        (ValueError, r"dropout must lie in \[0, 1\)", lambda: BackboneConfig(vocab_size=2, dropout=1.0)),
        (ValueError, "even width per attention head", lambda: Transformer(
            BackboneConfig(vocab_size=2, width=6, attention_heads=2, positions=RotaryPositions()))),
        (ValueError, "learned positions end at max_length = 4", lambda: Transformer(
            BackboneConfig(vocab_size=2, positions=LearnedPositions(4)))(torch.zeros(1, 5, dtype=torch.long))),
        (ValueError, "window must be a positive integer", lambda: SlidingWindow(0)),
        (ValueError, "act on attention scores need attention", lambda: backbone("rotary", "no_attention")),
        (ValueError, "max_distance > buckets / 2", lambda: RelativePositions(buckets=8, max_distance=4)),
    ],
)  # fmt: skip
def test_bad_arguments_are_refused_by_name(error, words, act):
    with pytest.raises(error, match=words):
        act()


@torch.no_grad()
@pytest.mark.parametrize("hooked", [False, True])
def test_layers_projected_at_once_and_one_by_one_agree(hooked):
    """With gradient, and for few tokens, at once; over a long stretch one by one, unless something wraps the map."""
    model = RationalTransductor(
        RationalHead(CayleyTransitions(vocab_size=5, state_dim=4)), BackboneConfig(vocab_size=5, width=16, layers=3)
    ).double()
    tokens = torch.randint(0, 5, (2, 6))
    bare = model(tokens)
    calls = []
    if hooked:
        model.injection.projections.register_forward_hook(lambda module, inputs, output: 2 * output)
        model.injection.projections.register_forward_pre_hook(lambda *_: calls.append(1))
    with torch.enable_grad():
        expected = model(tokens).detach()
    assert torch.allclose(bare, expected) != hooked
    assert_same(model(tokens), expected)
    state = model.start(2)
    for place in range(6):
        logits, state = model.advance(tokens[:, place : place + 1], state)
        assert_same(logits[:, 0], expected[:, place])
    assert len(calls) == (8 if hooked else 0)


@pytest.mark.parametrize(
    ("stream", "weight"), [("float32", "bfloat16"), ("bfloat16", "float32"), ("float64", "float64")]
)
def test_an_injected_stream_keeps_its_dtype(stream, weight):
    injection = build_injection("deep", 3, 4, 2).to(getattr(torch, weight))
    before = torch.randn(2, 5, 4).to(getattr(torch, stream))
    assert injection.into(torch.randn(2, 5, 3))(1, before).dtype == before.dtype


@pytest.mark.parametrize("how", ["eager", "compiled", "autocast"])
@pytest.mark.parametrize("injection", ["deep", "input"])
def test_terms_joined_with_a_product_are_the_same_terms(injection, how, monkeypatch):
    """What a compiled model does on a GPU: states enter the last product of the layer before."""
    model = RationalTransductor(tokens_head(), backbone(), injection=injection)
    model = model if how == "autocast" else model.double()
    tokens, run = torch.randint(0, V, (2, 9)), model
    outcomes = []
    for joins in (False, True):
        monkeypatch.setattr("transductor.injection.joins_products", lambda states, joins=joins: joins)
        if how == "compiled":
            torch.compiler.reset()
            run = torch.compile(model, fullgraph=True, backend="aot_eager")
        with torch.autocast("cpu", torch.bfloat16, enabled=how == "autocast"):
            logits = run(tokens)
        gradients = torch.autograd.grad(logits.float().square().mean(), list(model.parameters()))
        outcomes.append((logits, *gradients))
    if how == "autocast":  # together, because some gradients are rounding alone: that of a key's bias is zero
        outcomes = [[torch.cat([value.detach().flatten() for value in values[1:]])] for values in outcomes]
        assert (outcomes[0][0] - outcomes[1][0]).norm() <= 0.02 * outcomes[0][0].norm()
        return
    for joined, added in zip(*outcomes, strict=True):
        assert_same(joined, added)


def test_a_compiler_is_told_to_join_them(monkeypatch):
    """The compiler answers some questions of its own accord, and not as they are answered elsewhere."""
    monkeypatch.setattr("transductor.injection.JOINED_ON", ("cpu",))
    model, joined = RationalTransductor(tokens_head(), backbone()), []

    def seen(graph, _):
        joined.extend(node for node in graph.graph.nodes if node.target is torch.cat)
        return graph

    for training in (True, False):
        torch.compiler.reset()
        with torch.set_grad_enabled(training):
            torch.compile(model, fullgraph=True, backend=seen)(torch.randint(0, V, (2, 9)))
        assert len(joined) == 2  # what the second layer receives, and its matrix


def test_nothing_is_joined_with_a_product_that_something_else_follows():
    block = Backbone(replace(backbone(), dropout=0.5)).blocks[0]
    assert not block.joins()
    assert block.eval().joins()
    block.feedforward[-1].register_forward_hook(lambda *_: None)
    assert not block.joins()
