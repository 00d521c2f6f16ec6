"""Training moves parameters, repeatably; evaluation counts every position."""

from __future__ import annotations

import pytest
import torch

from transductor.heads import RationalHead
from transductor.model import BackboneConfig, RationalTransductor
from transductor.tasks import ModularCounting
from transductor.training import TrainingError, TrainingSettings, evaluate, evaluate_on, train
from transductor.transitions import OrthogonalTransitions

TASK = ModularCounting(3)


def model(seed=0):
    torch.manual_seed(seed)
    backbone = BackboneConfig(vocab_size=2, output_size=3, width=16, layers=1, attention_heads=2)
    return RationalTransductor(RationalHead(OrthogonalTransitions(vocab_size=2, state_dim=8)), backbone)


def test_it_learns_mod_3():
    net = model()
    points = train(net, TASK, TrainingSettings(steps=250, length=20, batch_size=32, learning_rate=1e-2))
    assert [point.step for point in points] == list(range(1, 251))
    assert points[-1].accuracy > 0.99 > points[0].accuracy
    assert evaluate(net, TASK, length=20, trained_length=20).every_position > 0.99


def test_two_equal_runs_give_identical_numbers():
    settings = TrainingSettings(steps=8, length=9, batch_size=4)
    first, second = (train(model(), TASK, settings) for _ in range(2))
    assert first == second
    assert train(model(), TASK, TrainingSettings(steps=8, length=9, batch_size=4, seed=1)) != first


def test_progress_is_reported_as_it_happens():
    seen = []
    points = train(model(), TASK, TrainingSettings(steps=5, length=4, batch_size=2), seen.append)
    assert seen == points


def test_a_loss_that_is_no_number_stops_with_the_step():
    net = model()
    with torch.no_grad():
        net.backbone.readout.bias.fill_(float("nan"))
    with pytest.raises(TrainingError, match="the loss is nan at step 1"):
        train(net, TASK, TrainingSettings(steps=3))


class Constant(torch.nn.Module):
    """Says 0 everywhere."""

    def __init__(self):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.tensor([1.0, 0.0, 0.0]))

    def forward(self, tokens):
        return self.bias.expand(*tokens.shape, 3)


def test_every_position_counts():
    tokens = torch.tensor([[0, 0, 1, 0]])  # truth 0 0 1 1
    accuracy = evaluate_on(Constant(), TASK, tokens, trained_length=1)
    assert accuracy.every_position == 0.5
    assert accuracy.beyond == pytest.approx(1 / 3)
    assert accuracy.last_position == 0
    assert accuracy.by_position == (1, 1, 0, 0)
    assert evaluate_on(Constant(), TASK, tokens, trained_length=4).beyond == 0.5


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ("steps must be a positive integer", {"steps": 0}),
        ("learning_rate must be a positive number", {"learning_rate": -1.0}),
        ("learning_rate must be a positive number", {"learning_rate": float("nan")}),
        ("label_smoothing must lie in", {"label_smoothing": 1.0}),
    ],
)
def test_bad_settings_are_refused_by_name(words, arguments):
    with pytest.raises(ValueError, match=words):
        TrainingSettings(**arguments)
