"""What every model inherits: one interface, causality, streams, padding, packing, files."""

from __future__ import annotations

import functools
from itertools import pairwise, product

import pytest
import torch

from tests.comparison import assert_same
from tests.properties import given, st
from transductor.configuration import from_json, to_json
from transductor.heads import FilterHead, LookbackHead, RationalHead, UniversalHead
from transductor.model import (
    LSTM,
    BackboneConfig,
    FilterReadout,
    FullAttention,
    LearnedPositions,
    LinearRNN,
    LinearStack,
    NoAttention,
    NoPositions,
    RationalReadout,
    RationalTransductor,
    RelativePositions,
    RotaryPositions,
    SinusoidalPositions,
    SlidingWindow,
    StackedTransductor,
    Transformer,
    build,
    load,
    save,
)
from transductor.transitions import OrthogonalTransitions, PositiveTransitions, StochasticTransitions

V, OUT, WIDTH = 5, 7, 16
POSITIONS = {
    "none": NoPositions(),
    "learned": LearnedPositions(max_length=64),
    "sinusoidal": SinusoidalPositions(),
    "rotary": RotaryPositions(),
    "relative": RelativePositions(buckets=8, max_distance=20),
}
ATTENTIONS = {"full": FullAttention(), "window": SlidingWindow(4), "no_attention": NoAttention()}
COMBINATIONS = [
    (positions, attention)
    for positions, attention in product(POSITIONS, ATTENTIONS)
    if attention != "no_attention" or positions not in ("rotary", "relative")  # they act on scores
]


def backbone(positions="none", attention="full"):
    return BackboneConfig(
        vocab_size=V,
        output_size=OUT,
        width=WIDTH,
        layers=2,
        attention_heads=2,
        positions=POSITIONS[positions],
        attention=ATTENTIONS[attention],
    )


def tokens_head():
    return RationalHead(OrthogonalTransitions(vocab_size=V, state_dim=4))


def tokens_filter():
    return FilterHead(PositiveTransitions(vocab_size=V, state_dim=4))


def features_head():
    return RationalHead(StochasticTransitions(feature_dim=WIDTH, state_dim=3))


MODELS = {
    **{f"transformer-{p}-{a}": lambda p=p, a=a: Transformer(backbone(p, a)) for p, a in COMBINATIONS},
    **{
        f"transductor-{p}-{a}": lambda p=p, a=a: RationalTransductor(tokens_head(), backbone(p, a))
        for p, a in [("none", "full"), ("rotary", "window"), ("relative", "window"), ("none", "no_attention")]
    },
    "transductor-universal-input": lambda: RationalTransductor(
        UniversalHead(vocab_size=V, orthogonal_dim=3, stochastic_dim=2), backbone(), injection="input"
    ),
    "transductor-ignored-head": lambda: RationalTransductor(tokens_head(), backbone(), injection="none"),
    "transductor-lookback": lambda: RationalTransductor(
        LookbackHead(OrthogonalTransitions(vocab_size=V, state_dim=4)), backbone()
    ),
    "readout": lambda: RationalReadout(tokens_head(), OUT),
    "readout-lookback": lambda: RationalReadout(LookbackHead(StochasticTransitions(vocab_size=V, state_dim=3)), OUT),
    "filter": lambda: FilterReadout(tokens_filter(), OUT),
    "transductor-filter": lambda: RationalTransductor(tokens_filter(), backbone()),
    "stack-of-filters": lambda: StackedTransductor(
        [tokens_filter(), FilterHead(PositiveTransitions(feature_dim=WIDTH, state_dim=3))], backbone()
    ),
    "linear-stack": lambda: LinearStack([tokens_head(), tokens_head()], OUT, width=6),
    "linear-stack-undriven": lambda: LinearStack([tokens_head(), tokens_head(), tokens_head()], OUT),
    "stack-driven-by-tokens": lambda: StackedTransductor([tokens_head(), tokens_head()], backbone()),
    "nonlinear-stack": lambda: StackedTransductor([features_head(), features_head()], backbone()),
    "mixed-stack": lambda: StackedTransductor([tokens_head(), features_head()], backbone("rotary", "window")),
    "lstm": lambda: LSTM(vocab_size=V, output_size=OUT, width=WIDTH, layers=2),
    "linear-rnn": lambda: LinearRNN(vocab_size=V, output_size=OUT, width=WIDTH),
}

every_model = pytest.mark.parametrize("name", MODELS)


def made(name):
    torch.manual_seed(1)
    return MODELS[name]().double().eval()


made_once = functools.cache(made)  # for a test of many examples, which only reads the model


@every_model
def test_tokens_to_logits(name):
    model = made(name)
    for batch, time in ((2, 9), (1, 1), (3, 0)):
        assert model(torch.randint(0, V, (batch, time))).shape == (batch, time, OUT)


@every_model
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32])
def test_every_integer_type_is_a_token(name, dtype):
    model = made(name)
    tokens = torch.randint(0, V, (2, 9))
    assert torch.equal(model(tokens.to(dtype)), model(tokens))
    assert_same(model.advance(tokens.to(dtype), model.start(2))[0], model(tokens))


@every_model
def test_a_stream_refuses_another_batch(name):
    model = made(name)
    with pytest.raises(ValueError, match="tokens must have 2 rows like the stream; got 3"):
        model.advance(torch.zeros(3, 1, dtype=torch.long), model.start(2))


@every_model
def test_the_future_is_not_seen(name):
    model = made(name)
    tokens = torch.randint(0, V, (2, 20))
    changed = tokens.clone()
    changed[:, 12:] = (changed[:, 12:] + 1) % V
    assert_same(model(changed)[:, :12], model(tokens)[:, :12])
    assert (model(changed)[:, 12:] - model(tokens)[:, 12:]).abs().max() > 1e-6


@every_model
@given(cuts=st.lists(st.integers(0, 24), max_size=6), padded=st.booleans())
def test_any_split_of_a_stream_is_the_parallel_pass(name, cuts, padded):
    model = made_once(name)
    torch.manual_seed(1)
    tokens = torch.randint(0, V, (2, 24))
    mask = torch.arange(24) >= torch.tensor([[0], [5]]) if padded else None
    expected = model(tokens, mask=mask)
    state, pieces = model.start(2), []
    for begin, end in pairwise([0, *sorted(cuts), 24]):
        part = None if mask is None else mask[:, begin:end]
        logits, state = model.advance(tokens[:, begin:end], state, mask=part)
        pieces.append(logits)
    found = torch.cat(pieces, 1)
    if mask is not None:
        found, expected = found[mask], expected[mask]
    assert_same(found, expected)


@every_model
def test_padding_on_either_side_changes_nothing(name):
    model = made(name)
    tokens = torch.randint(0, V, (1, 10))
    alone = model(tokens)
    junk = torch.randint(0, V, (1, 6))
    right = model(torch.cat((tokens, junk), 1), lengths=torch.tensor([10]))
    assert_same(right[:, :10], alone)
    left = model(torch.cat((junk, tokens), 1), mask=torch.arange(16)[None] >= 6)
    assert_same(left[:, 6:], alone)


@every_model
def test_packed_documents_do_not_leak(name):
    model = made(name)
    documents = [torch.randint(0, V, (1, n)) for n in (6, 1, 9)]
    packed = model(torch.cat(documents, 1), cu_seqlens=torch.tensor([0, 6, 6, 7, 16]))
    assert_same(packed, torch.cat([model(document) for document in documents], 1))


@every_model
def test_rows_of_a_stream_can_be_picked_anew(name):
    model = made(name)
    tokens = torch.randint(0, V, (3, 8))
    rows = torch.tensor([2, 0, 2])
    _, state = model.advance(tokens[:, :5], model.start(3))
    found, _ = model.advance(tokens[rows, 5:], state.reordered(rows))
    assert_same(found, model(tokens[rows])[:, 5:])


@every_model
def test_gradient_reaches_every_parameter(name):
    model = made(name).train()
    model(torch.randint(0, V, (4, 12))).square().mean().backward()
    idle = ("rational_head", "key.bias") if name == "transductor-ignored-head" else ("key.bias",)
    for key, parameter in model.named_parameters():
        if parameter.requires_grad and not any(word in key for word in idle):  # softmax ignores a key's bias
            assert parameter.grad is not None, key
            assert (parameter.grad != 0).any(), key


@every_model
def test_configurations_and_files_round_trip(name, tmp_path):
    model = made(name)
    config = from_json(to_json(model.config))
    assert config == model.config
    assert build(config).parameter_count() == model.parameter_count()
    tokens = torch.randint(0, V, (2, 12))
    again = load(save(model, tmp_path / "checkpoint"))
    assert type(again) is type(model)
    assert torch.equal(again(tokens), model(tokens))


@every_model
def test_low_precision_runs(name):
    model = MODELS[name]().eval()
    tokens = torch.randint(0, V, (2, 12))
    expected = model(tokens)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = model(tokens)
    # bfloat16 keeps 8 bits (0.4 %) per operation; two layers of them on logits of size 1 leave a few per cent.
    assert (mixed - expected).abs().max() < 0.1
    low = model.to(torch.bfloat16)(tokens)
    assert low.dtype == torch.bfloat16
    assert (low - expected).abs().max() < 0.2


@every_model
def test_two_equal_trainings_are_equal_bit_for_bit(name):
    outcomes = []
    for _ in range(2):
        torch.manual_seed(3)
        model = MODELS[name]()
        optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
        for _ in range(3):
            loss = torch.nn.functional.cross_entropy(
                model(torch.randint(0, V, (4, 12))).flatten(0, 1), torch.randint(0, OUT, (48,))
            )
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        outcomes.append(torch.cat([parameter.detach().flatten() for parameter in model.parameters()]))
    assert torch.equal(*outcomes)


@every_model
@pytest.mark.parametrize(
    ("error", "words", "arguments"),
    [
        (IndexError, r"tokens must lie in \[0, 5\); got 5 at position \[0, 1\]", ([[0, 5]], {})),
        (TypeError, "tokens must be an integer tensor", ([[0.0, 1.0]], {})),
        (ValueError, r"tokens must be a tensor of shape \(B, T\)", ([0, 1], {})),
        (ValueError, r"mask must be a bool tensor of shape \(1, 2\)", ([[0, 1]], {"mask": torch.ones(1, 3).bool()})),
        (ValueError, r"mask must be a bool tensor of shape \(1, 2\); got list", ([[0, 1]], {"mask": [[True, True]]})),
        (ValueError, "lengths must lie in", ([[0, 1]], {"lengths": torch.tensor([3])})),
        (ValueError, "cu_seqlens must rise from 0 to T = 2", ([[0, 1]], {"cu_seqlens": torch.tensor([0, 3])})),
        (
            ValueError,
            "at most one of mask, lengths and cu_seqlens",
            ([[0, 1]], {"lengths": torch.tensor([2]), "cu_seqlens": torch.tensor([0, 2])}),
        ),
    ],
)
def test_bad_input_is_refused_by_name(name, error, words, arguments):
    tokens, options = arguments
    with pytest.raises(error, match=words):
        made(name)(torch.tensor(tokens), **options)
