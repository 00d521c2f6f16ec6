"""Attention that is narrowed: the penalty, the moved middle, and what becomes certain."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.certification.attended import random_model, stream_of
from transductor.certification.bounds.attended_stream import attended_logits
from transductor.extraction.hardening import machine_head
from transductor.heads import RationalHead
from transductor.model import BackboneConfig, NoAttention, RationalReadout, RationalTransductor, SlidingWindow
from transductor.tasks import task_named
from transductor.training import TrainingSettings, narrow_attention, train
from transductor.training.narrowing import attention_spread, move_middle_value, values_kept
from transductor.transitions import PermutationTransitions

PARITY = task_named("parity")
SHORT = TrainingSettings(steps=60, length=16, batch_size=32, learning_rate=1e-2)


@pytest.fixture(scope="module")
def trained():
    """A model with an exact head, whose attention takes part in its labels."""
    torch.manual_seed(0)
    config = BackboneConfig(vocab_size=2, output_size=2, width=16, layers=2, attention_heads=2)
    model = RationalTransductor(machine_head(PARITY.automaton()), config)
    train(model, PARITY, SHORT)
    return model.eval()


def certified(model, longest=20_000):
    # Edge 2 q + a reads token a in state q; the label is the parity after it.
    return attended_logits(stream_of(model, 2), np.array([0, 1, 1, 0]), longest=longest)


def test_a_narrowed_model_is_certified_and_as_right_as_before(trained):
    before = certified(trained)
    assert not before.holds
    narrowed = narrow_attention(trained, PARITY, settings=SHORT)
    assert narrowed.accuracy == 1.0
    assert narrowed.after < 0.02 * narrowed.before
    after = certified(narrowed.model)
    assert after.holds
    assert after.float_length >= 10_000
    assert after.worst > before.worst
    assert all(narrow < wide for (narrow, _), (wide, _) in zip(after.widths, before.widths, strict=True))
    assert before.widths[0][0] > 1 > after.widths[0][0]
    for old, new in zip(trained.rational_head.parameters(), narrowed.model.rational_head.parameters(), strict=True):
        assert torch.equal(old, new)
    assert not narrowed.model.training
    long = PARITY.sample(2, 3000, torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.equal(narrowed.model(long).argmax(-1), PARITY.truth(long))


def test_moving_the_middle_changes_logits_by_rounding_alone():
    model = random_model(0, values=1.0, dtype=torch.float64)
    words = torch.randint(0, 2, (16, 40), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for block in model.backbone.blocks:
            block.attention.value.bias += 5.0
        before = model(words)
        move_middle_value(model, words)
        with values_kept(model) as values:
            torch.testing.assert_close(model(words), before, rtol=0, atol=1e-12)
    for value in values:
        flat = value.flatten(0, 1)
        torch.testing.assert_close(flat.amin(0), -flat.amax(0), rtol=0, atol=1e-12)


def test_the_penalty_is_what_values_move_the_stream_by():
    model = random_model(1, values=1.0, dtype=torch.float64)
    words = torch.randint(0, 2, (8, 20), generator=torch.Generator().manual_seed(0))
    with values_kept(model) as values:
        model(words)
    expected = 0.0
    for block, value in zip(model.backbone.blocks, values, strict=True):
        weight, apart = block.attention.output.weight, value.flatten(0, 1) - value.flatten(0, 1).mean(0)
        for head in range(2):
            part = slice(4 * head, 4 * head + 4)
            expected = expected + (apart[:, part] @ weight[:, part].T).square().sum(1).mean()
    torch.testing.assert_close(attention_spread(model, values), expected)
    assert all(not block.attention.value._forward_hooks for block in model.backbone.blocks)


def test_a_window_keeps_its_kind():
    model = random_model(1, modulus=2, attention=SlidingWindow(4), classes=2)
    narrowed = narrow_attention(model, PARITY, settings=TrainingSettings(steps=2, length=8, batch_size=4))
    assert narrowed.model.config == model.config
    assert not any(torch.isnan(parameter).any() for parameter in narrowed.model.parameters())


def test_arguments_are_checked():
    head = RationalHead(PermutationTransitions(permutations=[[0, 1], [1, 0]]))
    with pytest.raises(TypeError, match="RationalTransductor"):
        narrow_attention(RationalReadout(head, 2), PARITY)
    without = RationalTransductor(head, BackboneConfig(vocab_size=2, width=8, attention=NoAttention()))
    with pytest.raises(ValueError, match="attention"):
        narrow_attention(without, PARITY)
    with pytest.raises(ValueError, match="weight"):
        narrow_attention(random_model(), PARITY, weight=0.0)
