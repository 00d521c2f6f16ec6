"""The bound for models with attention: every logit that any word gives lies inside, and so does all that could be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.certification.attended import (
    choosing,
    edges_of,
    pairs_of,
    random_model,
    short_words,
    stream_of,
)
from tests.certification.perturbed import counter
from transductor.automata.moore import IGNORED, MooreMachine
from transductor.certification.attention_tensors import NotAnalysed, attention_tensors
from transductor.certification.bounds.attended_models import attention_agreement
from transductor.certification.bounds.attended_stream import AttendedStream, attended_logits
from transductor.certification.bounds.attention_hull import average_error, edges_in_sight
from transductor.extraction.hardening import machine_head
from transductor.heads import RationalHead
from transductor.model import (
    BackboneConfig,
    LearnedPositions,
    NoAttention,
    RationalTransductor,
    RelativePositions,
    RotaryPositions,
    SinusoidalPositions,
    SlidingWindow,
)
from transductor.transitions import DenseTransitions

MODELS = {
    "two layers": {},
    "one layer, one attention head": {"layers": 1, "attention_heads": 1},
    "three layers": {"layers": 3, "values": 0.02},
    "rotary": {"positions": RotaryPositions()},
    "relative": {"positions": RelativePositions(buckets=4, max_distance=8)},
    "window": {"attention": SlidingWindow(4)},
    "window of one, rotary": {"attention": SlidingWindow(1), "positions": RotaryPositions()},
    "one-hot attention": {"scores": 1e3},
    "one-hot attention that turns": {"scores": 1e3, "positions": RotaryPositions(base=3.0)},
    "nearly constant": {"values": 1e-3},
    "wide": {"values": 0.3, "scores": 100.0},
    "one output": {"classes": 1},
    "float64": {"dtype": torch.float64},
}


def words_to_try(seed):
    generator = torch.Generator().manual_seed(seed)
    random = [torch.randint(0, 2, (4, length), generator=generator) for length in (30, 300)]
    return [*short_words(6), *random, torch.ones(1, 300, dtype=torch.long), torch.zeros(1, 300, dtype=torch.long)]


def assert_inside(model, ball, seed=0):
    """Return how much of the radius was used, at most."""
    used = 0.0
    with torch.no_grad():
        for words in words_to_try(seed):
            edges = edges_of(words)
            apart = np.abs(model(words).double().numpy() - ball.centre[edges])
            assert (apart <= ball.radius[edges]).all()
            used = max(used, float((apart / ball.radius[edges]).max()))
    return used


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("seed", [0, 1])
def test_every_logit_of_every_word_lies_inside(name, seed):
    model = random_model(seed, **MODELS[name])
    ball = stream_of(model).logits(300)
    assert np.isfinite(ball.radius).all()
    used = assert_inside(model, ball, seed)
    assert used > 0.01  # a bound that means something
    # The same numbers in float64 lie inside both the wider bound and their own.
    assert_inside(model.double(), ball, seed)
    assert_inside(model, stream_of(model).logits(300), seed)


@pytest.mark.parametrize("name", MODELS)
def test_whatever_attention_may_choose_lies_inside(name):
    options = {key: value for key, value in MODELS[name].items() if key != "attention"}
    model = random_model(2, **options)
    ball = stream_of(model).logits()
    logits = choosing(model, 3, np.random.default_rng(0), 2000)
    apart = np.abs(logits - ball.centre)
    assert (apart <= ball.radius).all()
    if options.get("values", 0.1) >= 1e-2:
        assert (apart / ball.radius).max() > 0.2  # random vertices come near


def test_streaming_and_padding_lie_inside():
    model = random_model(3, positions=RotaryPositions())
    ball = stream_of(model).logits(64)
    words = torch.randint(0, 2, (3, 40), generator=torch.Generator().manual_seed(0))
    edges = edges_of(words)
    with torch.no_grad():
        state, logits = model.start(3), []
        for first in range(0, 40, 7):
            shown, state = model.advance(words[:, first : first + 7], state)
            logits.append(shown)
        streamed = torch.cat(logits, 1).double().numpy()
        padded = model(words, lengths=torch.tensor([40, 13, 1])).double().numpy()
    assert (np.abs(streamed - ball.centre[edges]) <= ball.radius[edges]).all()
    real = np.arange(40) < np.array([40, 13, 1])[:, None]
    assert (np.abs(padded - ball.centre[edges]) <= ball.radius[edges])[real].all()


def shown_on_short_words(model, modulus=3, longest=4):
    """The label of every edge on its shortest word."""
    labels = np.full(2 * modulus, IGNORED)
    with torch.no_grad():
        for words in short_words(longest):
            last, shown = edges_of(words, modulus)[:, -1], model(words)[:, -1]
            shown = (shown[:, 0] > 0).long() if shown.shape[-1] == 1 else shown.argmax(-1)
            for edge, label in zip(last, shown.numpy(), strict=True):
                labels[edge] = label if labels[edge] == IGNORED else labels[edge]
    return labels


def mistakes(model, labels):
    with torch.no_grad():
        wrong = 0
        for words in words_to_try(0):
            shown = model(words)
            shown = (shown[..., 0] > 0).long() if shown.shape[-1] == 1 else shown.argmax(-1)
            wrong += int((shown.numpy() != labels[edges_of(words)]).sum())
    return wrong


def test_what_is_certified_is_right_and_what_is_wrong_is_not_certified():
    certified = refused = 0
    for seed in range(24):
        options = {"classes": 1} if seed % 4 == 3 else {}
        model = random_model(seed, values=(1e-3, 1e-2, 0.3, 1.0)[seed // 6], scores=10.0, **options)
        labels = shown_on_short_words(model)
        result = attended_logits(stream_of(model), labels, longest=1000)
        wrong = mistakes(model, labels)
        if result.holds:
            certified += 1
            assert wrong == 0
            assert result.float_length >= 300
        elif wrong:
            refused += 1
            assert "too wide" in str(result)
    assert certified >= 6
    assert refused >= 3


def test_the_gap_is_a_bound_of_the_difference_of_logits():
    model = random_model(1, values=1e-2)
    labels = shown_on_short_words(model)
    stream = stream_of(model)
    result, ball = attended_logits(stream, labels), stream.logits()
    assert result.gap.shape == result.rival.shape == (12,)
    right = ball.centre[result.edge, labels[result.edge]]
    # Symbols are shared by the two logits, so a gap is better known than either of them.
    apart = ball.radius[result.edge, labels[result.edge]] + ball.radius[result.edge, result.rival]
    assert (result.gap >= right - ball.centre[result.edge, result.rival] - apart).all()
    assert (result.gap <= result.centre).all()
    with torch.no_grad():
        words = torch.randint(0, 2, (64, 100), generator=torch.Generator().manual_seed(0))
        logits, edges = model(words).numpy(), edges_of(words)
    for edge, rival, gap in zip(result.edge, result.rival, result.gap, strict=True):
        shown = logits[edges == edge]
        assert (shown[:, labels[edge]] - shown[:, rival]).min() >= gap


def test_edges_without_a_label_count_only_as_values():
    model = random_model(1, values=1e-2)
    labels = shown_on_short_words(model)
    all_of_them = attended_logits(stream_of(model), labels)
    labels[3:] = IGNORED
    some = attended_logits(stream_of(model), labels)
    assert set(some.edge) == {0, 1, 2}
    np.testing.assert_array_equal(some.gap, all_of_them.gap[:6])
    nothing = attended_logits(stream_of(model), np.full(6, IGNORED))
    assert nothing.holds
    assert str(nothing) == "no edge has a label"


def test_the_float_length_falls_as_values_grow_and_gaps_fall_with_the_length():
    lengths = []
    for offset in (1.0, 1e2, 1e3):
        model = random_model(1, values=1e-2)
        with torch.no_grad():
            for block in model.backbone.blocks:
                # The function stays: attention's weights sum to one.
                middle = torch.full_like(block.attention.value.bias, offset)
                block.attention.value.bias += middle
                block.attention.output.bias -= block.attention.output.weight @ middle
        labels = shown_on_short_words(model)
        stream = stream_of(model)
        result = attended_logits(stream, labels)
        assert result.holds
        assert 0 < result.float_gap <= result.worst
        lengths.append(result.float_length)
        right, rivals = labels, (labels[:, None] + np.arange(1, 3)) % 3
        gaps = [stream.gaps(right, rivals, length)[0].min() for length in (1, result.float_length, 10 * lengths[-1])]
        assert gaps[0] > gaps[1] > 0 >= gaps[2]
        assert attended_logits(stream, labels, longest=lengths[-1] // 2).float_length == lengths[-1] // 2
    assert lengths[0] > 10 * lengths[1] > 50 * lengths[2] > 0


def test_a_window_is_proved_at_all_lengths():
    model = random_model(1, values=1e-2, attention=SlidingWindow(16), positions=RotaryPositions())
    labels = shown_on_short_words(model)
    result = attended_logits(stream_of(model), labels)
    assert result.proved
    assert result.float_length is None
    assert "all lengths, rounding included" in str(result)
    full = attended_logits(stream_of(random_model(1, values=1e-2)), labels)
    assert full.holds
    assert not full.proved


def test_a_window_whose_sums_round_too_much_is_not_proved():
    model = random_model(1, values=1e-2)  # with full attention: what is shown on short words is the same
    with torch.no_grad():
        for block in model.backbone.blocks:
            block.attention.value.bias += 30.0
            block.attention.output.bias -= 30.0 * block.attention.output.weight.sum(1)
    result = attended_logits(replace(stream_of(model), window=4000), shown_on_short_words(model))
    assert result.holds
    assert not result.proved
    assert 0 < result.float_length < 8000


@pytest.mark.parametrize(
    ("part", "factor"),
    [
        ("backbone.embedding.weight", 1e20),
        ("backbone.blocks.0.attention.query.weight", 1e32),
        ("backbone.blocks.1.attention.value.weight", 1e32),
        ("backbone.readout.weight", 1e36),
        ("injection.projections.weight", 1e25),
    ],
)
def test_numbers_that_may_leave_the_range_are_not_certified(part, factor):
    model = random_model(1, values=1e-2)
    labels = shown_on_short_words(model)
    assert attended_logits(stream_of(model), labels, longest=10).holds
    with torch.no_grad():
        model.get_parameter(part).mul_(factor)
    result = attended_logits(stream_of(model), labels, longest=10)
    assert not result.holds
    assert result.worst == -np.inf


def test_underflow_is_counted():
    model = random_model(1, values=1e-2)
    labels = shown_on_short_words(model)
    with torch.no_grad():
        model.backbone.readout.weight.mul_(2.0**-130)
        model.backbone.readout.bias.mul_(2.0**-130)
    assert not attended_logits(stream_of(model), labels, longest=10).holds


def test_many_pairs_are_put_together_in_boxes():
    model = random_model(4, modulus=90, values=0.02, classes=3)
    ball = stream_of(model, 90).logits(300)
    words = torch.randint(0, 2, (8, 300), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        logits, edges = model(words).double().numpy(), edges_of(words, 90)
    apart = np.abs(logits - ball.centre[edges])
    assert (apart <= ball.radius[edges]).all()
    assert (apart / ball.radius[edges]).max() > 0.05


def test_edges_that_cannot_come_before_make_the_hull_smaller():
    # Node 0 is left for ever with the first letter 1.
    source, letter, target = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]), np.array([0, 1, 1, 1])
    sight = edges_in_sight(source, target, None)
    np.testing.assert_array_equal(sight, [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1], [1, 1, 1, 1]])
    np.testing.assert_array_equal(edges_in_sight(source, target, 1), np.eye(4))
    near = edges_in_sight(source, target, 2)
    assert not near[2, 0]
    assert near[2, 1]
    model = random_model(5, modulus=2)
    streams = [
        AttendedStream(attention_tensors(model), 2, None, "float32", letter, np.eye(2)[target], sees)
        for sees in (None, sight)
    ]
    every, seen = (stream.logits() for stream in streams)
    assert (seen.radius[:2] < every.radius[:2]).all()
    assert (seen.radius <= every.radius * 1.001).all()


def test_edges_in_sight_are_those_that_some_word_takes():
    rng = np.random.default_rng(0)
    for window in (1, 2, 3, None):
        transitions = rng.integers(0, 4, (4, 2))
        source, letter = np.repeat(np.arange(4), 2), np.tile([0, 1], 4)
        sight = edges_in_sight(source, transitions[source, letter], window)
        for _ in range(200):
            state, taken = int(rng.integers(0, 4)), []
            for token in rng.integers(0, 2, 12):
                taken.append(2 * state + token)
                state = transitions[state, token]
            for place, edge in enumerate(taken):
                first = 0 if window is None else max(0, place - window + 1)
                assert sight[edge, taken[first : place + 1]].all()


def test_the_error_of_an_average_covers_sums_in_float32():
    """One pass with a running maximum and rescaled sums, one key at a time: the most roundings a kernel makes."""
    rng = np.random.default_rng(0)
    for keys in (1, 10, 1000):
        scores = np.sort(rng.normal(0, 3, keys)).astype(np.float32)  # rising: every key rescales
        values = rng.uniform(0.9, 1.0, keys).astype(np.float32)
        top, weight, total = np.float32(-np.inf), np.float32(0), np.float32(0)
        exact_weight, exact_total = 0.0, 0.0
        for score, value in zip(scores, values, strict=True):
            higher = max(top, score)
            factor, own = np.exp(top - higher), np.exp(score - higher)
            weight, total = weight * factor + own, total * factor + own * value
            exact_weight = exact_weight * float(factor) + float(own)
            exact_total = exact_total * float(factor) + float(own) * float(value)
            top = higher
        error = abs(float(total / weight) - exact_total / exact_weight)
        assert error <= average_error(keys, 2.0**-24)
    assert average_error(10**9, 2.0**-24) == np.inf


@pytest.mark.parametrize("positions", [LearnedPositions(64), SinusoidalPositions()])
def test_positions_that_are_added_to_the_stream_are_refused(positions):
    with pytest.raises(NotAnalysed, match=type(positions).__name__):
        attention_tensors(random_model(positions=positions))


def test_other_parts_than_those_analysed_are_refused():
    class Doubled(torch.nn.Linear):
        def forward(self, values):
            return 2 * super().forward(values)

    model = random_model()
    model.backbone.blocks[1].attention.value = Doubled(8, 8)
    with pytest.raises(NotAnalysed, match=r"block1\.value must be a Linear"):
        attention_tensors(model)
    model = random_model()
    model.backbone.blocks[0].feedforward[1] = torch.nn.GELU(approximate="tanh")
    with pytest.raises(NotAnalysed, match="exact GELU"):
        attention_tensors(model)
    model = random_model()
    model.backbone.blocks[0].feedforward[0].double()
    with pytest.raises(NotAnalysed, match="one dtype"):
        attention_tensors(model)
    with pytest.raises(NotAnalysed, match="evaluation mode"):
        attention_tensors(random_model(dropout=0.1).train())
    config = BackboneConfig(vocab_size=2, width=8, attention=NoAttention())
    with pytest.raises(NotAnalysed, match="SlidingWindow"):
        attention_tensors(RationalTransductor(machine_head(counter(2)), config).eval())


def test_arguments_are_checked():
    model = random_model()
    letters, counts = pairs_of(3)
    tensors, outputs = attention_tensors(model), np.eye(3)[counts]
    with pytest.raises(ValueError, match="letters must be"):
        AttendedStream(tensors, 2, None, "float32", letters, outputs[:2])
    with pytest.raises(ValueError, match="sees must be"):
        AttendedStream(tensors, 2, None, "float32", letters, outputs, np.zeros((6, 6), bool))
    with pytest.raises(ValueError, match="attention_heads must divide"):
        AttendedStream(tensors, 3, None, "float32", letters, outputs)
    with pytest.raises(ValueError, match="precision must be one of"):
        AttendedStream(tensors, 2, None, "float16", letters, outputs).logits()
    with pytest.raises(ValueError, match="finite"):
        AttendedStream({**tensors, "norm.bias": np.full(8, np.nan)}, 2, None, "float32", letters, outputs)
    with pytest.raises(ValueError, match="labels must be"):
        attended_logits(stream_of(model), np.full(6, 3))


def test_a_model_is_compared_with_a_machine():
    model = random_model(1, values=1e-2)
    labels = shown_on_short_words(model)
    letters, counts = pairs_of(3)
    # A state remembers the letter by which it was reached: labels belong to pairs.
    label = {(int(a), int(q)): int(shown) for a, q, shown in zip(letters, counts, labels, strict=True)}
    shown = MooreMachine.explored(
        (0, 0), 2, lambda state, letter: (letter, (state[1] + letter) % 3), lambda state: label[state]
    )
    result = attention_agreement(model, against=shown)
    assert result.worst == pytest.approx(attended_logits(stream_of(model), labels).worst, rel=1e-6)
    assert result.holds
    wrong = MooreMachine(shown.transitions, (shown.outputs + (np.arange(shown.states) == 1)) % 3, shown.start)
    assert not attention_agreement(model, against=wrong).holds
    # Only the letter 0 can come: one pair enters the stream, and attention has nothing to choose.
    only_zeros = MooreMachine(np.array([[0, 1], [1, 1]]), np.array([1, 0]))
    alone = attention_agreement(model, against=shown, domain=only_zeros)
    assert len(set(alone.edge)) == 1
    assert alone.worst > result.worst
    soft = RationalTransductor(RationalHead(DenseTransitions(state_dim=3, vocab_size=2)), model.backbone.config)
    with pytest.raises(NotAnalysed, match="harden"):
        attention_agreement(soft.eval(), against=shown)


def test_pairs_that_occur_on_several_edges_are_followed_once():
    # Letter 1 leads to state 1 and letter 0 to state 0, from both.
    machine = MooreMachine(np.array([[0, 1], [0, 1]]), np.array([0, 1]))
    torch.manual_seed(0)
    config = BackboneConfig(vocab_size=2, output_size=2, width=8, layers=1, attention_heads=2)
    result = attention_agreement(RationalTransductor(machine_head(machine), config).eval(), against=machine)
    assert len(result.edge) == 2
