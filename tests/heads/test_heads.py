"""Heads: the scan behind them, streams, long inputs, configurations."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from tests.comparison import assert_same
from tests.properties import given, st
from transductor.bench.memory import PeakMemory
from transductor.configuration import from_json, to_json
from transductor.heads import HEADS, RandomFeatureHead, RationalHead, UniversalHead, build_head
from transductor.recurrence import scan
from transductor.transitions import (
    Cascade,
    CayleyTransitions,
    DirectSum,
    DPLRTransitions,
    OrthogonalTransitions,
    PermutationTransitions,
    StochasticTransitions,
)

SPIN = CayleyTransitions(vocab_size=4, state_dim=3)


def examples():
    return {
        "rational": RationalHead(CayleyTransitions(vocab_size=4, state_dim=3)),
        "composite": RationalHead(
            Cascade(DPLRTransitions(vocab_size=4, state_dim=3), StochasticTransitions(vocab_size=4, state_dim=2))
        ),
        "universal": UniversalHead(vocab_size=4, orthogonal_dim=3, stochastic_dim=2),
        "random_features": RandomFeatureHead(vocab_size=4, state_dim=5),
    }


@pytest.mark.parametrize("name", examples())
def test_states_are_the_recurrence(name):
    head = examples()[name].double()
    tokens = torch.randint(0, 4, (2, 30))
    state, table = head.initial_state().expand(2, -1), head.transitions.table()
    for t, states in enumerate(head(tokens).unbind(1)):
        state = (table[tokens[:, t]] @ state.unsqueeze(-1)).squeeze(-1)
        assert_same(states, state, what=f"state {t}")


@pytest.mark.parametrize("name", examples())
@given(cuts=st.lists(st.integers(0, 40), max_size=5), padded=st.booleans())
def test_any_split_of_a_stream_is_the_parallel_pass(name, cuts, padded):
    head = examples()[name].double()
    tokens = torch.randint(0, 4, (2, 40))
    mask = torch.rand(2, 40) < 0.7 if padded else None
    stream, pieces = head.start(2), []
    for begin, end in pairwise([0, *sorted(cuts), 40]):
        part = None if mask is None else mask[:, begin:end]
        states, stream = head.advance(tokens[:, begin:end], stream, mask=part)
        pieces.append(states)
    assert_same(torch.cat(pieces, 1), head(tokens, mask=mask))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
def test_every_integer_type_is_a_token(dtype):
    head = RationalHead(PermutationTransitions(state_dim=3, vocab_size=3))
    tokens = torch.randint(0, 3, (3, 9))
    expected = head(tokens)
    assert torch.equal(head(tokens.to(dtype)), expected)
    stream, pieces = head.start(3), []
    for t in range(9):
        states, stream = head.advance(tokens[:, t : t + 1].to(dtype), stream)
        pieces.append(states)
    assert torch.equal(torch.cat(pieces, 1), expected)


def test_a_stream_keeps_the_parameters_of_its_start():
    head = RationalHead(OrthogonalTransitions(vocab_size=4, state_dim=3)).double()
    tokens = torch.randint(0, 4, (1, 20))
    with torch.no_grad():
        expected, stream = head(tokens), head.start(1)
        head.transitions.source.raw.add_(1)
        first, stream = head.advance(tokens[:, :3], stream)
        second, _ = head.advance(tokens[:, 3:], stream)
    assert_same(torch.cat((first, second), 1), expected)


def test_a_head_driven_by_features():
    head = RationalHead(OrthogonalTransitions(feature_dim=6, state_dim=3)).double()
    features = torch.randn(2, 20, 6, dtype=torch.float64)
    states = head(features)
    assert_same(states, scan(head.transitions.matrices(features), initial_state=head.initial_state()))
    stream, pieces = head.start(2), []
    for begin in range(0, 20, 3):
        part, stream = head.advance(features[:, begin : begin + 3], stream)
        pieces.append(part)
    assert_same(torch.cat(pieces, 1), states)
    packed = head(features[:1], cu_seqlens=torch.tensor([0, 7, 20]))
    assert_same(packed[:, 7:], head(features[:1, 7:]))


def test_a_universal_head_is_orthogonal_beside_stochastic():
    head = UniversalHead(vocab_size=3, orthogonal_dim=4, stochastic_dim=2)
    assert isinstance(head.transitions, DirectSum)
    states = head(torch.randint(0, 3, (2, 50)))
    start = head.initial_state()
    assert_same(states[..., :4].norm(dim=-1), start[:4].norm().expand(2, 50))
    assert_same(states[..., 4:].sum(-1), torch.ones(2, 50))


def test_nothing_in_a_random_feature_head_trains():
    assert not any(p.requires_grad for p in RandomFeatureHead(vocab_size=4, state_dim=5).parameters())


def test_an_exact_machine_counts_at_any_length():
    """Mod 5 on all ones, an enemy's input: exact after a million steps."""
    head = RationalHead(PermutationTransitions(permutations=[range(5), [1, 2, 3, 4, 0]]))
    ones = torch.ones(1, 1_000_003, dtype=torch.long)
    _, final = head(ones, initial_state=torch.eye(5)[0], return_final=True)
    assert torch.equal(final[0], torch.eye(5)[1_000_003 % 5])


def test_a_million_tokens_stream_through_a_head_in_constant_memory():
    head = RationalHead(OrthogonalTransitions(vocab_size=8, state_dim=16))

    @torch.no_grad()
    def streamed(head, total):
        generator, stream = torch.Generator().manual_seed(1), head.start(1)
        for _ in range(total // 10_000):
            _, stream = head.advance(torch.randint(0, 8, (1, 10_000), generator=generator), stream)
        return stream.state

    streamed(head, 100_000)
    with PeakMemory() as peak:
        state = streamed(head, 1_000_000)
    assert peak.grown < 2**23, f"{peak.grown} bytes; the states alone would be 64 MB"
    norm = head.initial_state().norm()
    # A float32 rotation is orthogonal to 1e-7, so 10^6 of them keep the norm to 10 %, and in float64 exactly.
    assert abs(state.norm() / norm - 1) < 0.1
    assert_same(streamed(head.double(), 1_000_000).norm(), norm.double(), dtype=torch.float32)


def test_autocast_and_low_precision_keep_float32_states():
    head = RationalHead(OrthogonalTransitions(vocab_size=4, state_dim=8))
    tokens = torch.randint(0, 4, (1, 1000))
    expected = head(tokens)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(head(tokens), expected)
    low = head.to(torch.bfloat16)(tokens)
    assert low.dtype == torch.float32
    assert_same(low.norm(dim=-1), low[:, :1].norm(dim=-1).expand(1, 1000))


@pytest.mark.parametrize("name", examples())
def test_configurations_round_trip(name):
    head = examples()[name]
    config = from_json(to_json(head.config))
    assert config == head.config
    again = build_head(config)
    assert type(again) is type(head)
    again.load_state_dict(head.state_dict())
    tokens = torch.randint(0, 4, (2, 9))
    assert torch.equal(again(tokens), head(tokens))


def test_a_changed_temperature_is_part_of_the_configuration():
    head = UniversalHead(vocab_size=3, orthogonal_dim=2, stochastic_dim=2)
    head.transitions.families[1].temperature = 0.0
    assert build_head(head.config).transitions.families[1].temperature == 0.0


def test_gradient_reaches_the_initial_state_and_the_family():
    head = UniversalHead(vocab_size=3, orthogonal_dim=3, stochastic_dim=3)
    weights = torch.randn(2, 20, 6)
    (head(torch.randint(0, 3, (2, 20))) * weights).sum().backward()
    assert all((parameter.grad != 0).any() for parameter in head.parameters())


@pytest.mark.parametrize(
    ("error", "words", "act"),
    [
        (TypeError, "must be a transition family; got Linear", lambda: RationalHead(torch.nn.Linear(2, 2))),
        (ValueError, "backend must be one of 'auto'", lambda: RationalHead(SPIN, backend="fast")),
        (IndexError, r"tokens must lie in \[0, 4\); got 9", lambda: examples()["rational"](torch.full((1, 2), 9))),
        (IndexError, r"tokens must lie in \[0, 4\); got -1",
         lambda: RationalHead(SPIN).advance(torch.full((1, 1), -1), RationalHead(SPIN).start(1))),
        (TypeError, "must be a torch.Tensor; got list", lambda: RationalHead(SPIN)([[0, 1]])),
        (ValueError, "batch_size must be a positive integer; got 2.0", lambda: RationalHead(SPIN).start(2.0)),
        *((ValueError, words, lambda n=n, options=options: RationalHead(SPIN).advance(
            torch.zeros(2, n, dtype=torch.long), RationalHead(SPIN).start(2), **options(n)))
          for n in (1, 9) for words, options in (
              ("mask must be", lambda n: {"mask": torch.ones(1, n).bool()}),
              ("bias must h", lambda n: {"bias": torch.ones(2, n, 1)}),
              ("bias must hold finite", lambda n: {"bias": torch.full((2, n, 3), float("nan"))}))),
        *((ValueError, "tokens must have 1 rows like the stream; got 2", lambda n=n: RationalHead(SPIN).advance(
            torch.zeros(2, n, dtype=torch.long), RationalHead(SPIN).start(1))) for n in (1, 9)),
        (ValueError, r"tokens must be a tensor of shape \(B, n\)",
         lambda: RationalHead(SPIN).advance(torch.zeros(3, dtype=torch.long), RationalHead(SPIN).start(1))),
    ],
)  # fmt: skip
def test_bad_input_is_refused_by_name(error, words, act):
    with pytest.raises(error, match=words):
        act()


def test_every_head_is_registered_under_its_name():
    assert set(HEADS) == {"rational", "lookback", "universal", "random_features", "filter", "factored_filter"}
