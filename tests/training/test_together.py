"""Several seeds as one job end where each would have ended alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.training.test_training import TASK, model
from transductor.heads import RationalHead
from transductor.model import RationalReadout
from transductor.tasks import BaseValue
from transductor.training import Annealing, Curriculum, TrainingError, TrainingSettings, train, train_together
from transductor.transitions import AffineTransitions, ColumnChoiceTransitions, StochasticTransitions

SETTINGS = TrainingSettings(steps=6, length=9, batch_size=4, double=True)


def compared(task, settings, seeds, build):
    """Both ways of training; every point and every weight is compared."""
    together = [build(seed) for seed in seeds]
    points = train_together(together, task, settings, seeds)
    for place, seed in enumerate(seeds):
        alone = build(seed)
        expected = train(alone, task, replace(settings, seed=seed))
        for point, wanted in zip(points[place], expected, strict=True):
            assert point.step == wanted.step
            assert point.loss == pytest.approx(wanted.loss, rel=1e-9)
            assert point.accuracy == pytest.approx(wanted.accuracy, nan_ok=True)
        for (name, point), wanted in zip(together[place].named_parameters(), alone.parameters(), strict=True):
            assert torch.allclose(point, wanted, rtol=1e-7, atol=1e-10), name
        assert not together[place].training
    return points


@pytest.mark.parametrize("clipping", ["global", "per_tensor", "none"])
@pytest.mark.parametrize("optimiser", ["adamw", "adam"])
def test_together_is_one_after_another(clipping, optimiser):
    settings = replace(SETTINGS, clipping=clipping, optimiser=optimiser, head_learning_rate=1e-3, gradient_clip=0.1)
    compared(TASK, settings, [3, 5, 8], model)


def stochastic(seed):
    torch.manual_seed(seed)
    return RationalReadout(RationalHead(StochasticTransitions(vocab_size=2, state_dim=3)), TASK.output_size)


def test_each_has_its_own_lengths():
    """With a threshold in the middle of what chance gives, the curricula part company."""
    settings = replace(SETTINGS, steps=12, curriculum=Curriculum(2, threshold=0.5), shortest=1, annealing=Annealing())
    points = compared(TASK, settings, [1, 2, 3, 4], stochastic)
    passed = {tuple(point.accuracy >= 0.5 for point in each) for each in points}
    assert len(passed) > 1


def test_choices_get_their_gradient_together_too():
    """Straight through the argmax, also inside vmap."""

    def build(seed):
        torch.manual_seed(seed)
        return RationalReadout(RationalHead(ColumnChoiceTransitions(vocab_size=2, state_dim=3)), TASK.output_size)

    compared(TASK, replace(SETTINGS, head_learning_rate=0.1), [1, 2], build)


@pytest.mark.parametrize("labels", ["every", "last"])
def test_numbers_in_their_unit(labels):
    def build(seed):
        torch.manual_seed(seed)
        return RationalReadout(RationalHead(AffineTransitions(vocab_size=2, state_dim=4)), 1)

    settings = replace(SETTINGS, labels=labels, curriculum=Curriculum(3, loss=10.0))
    compared(BaseValue(normalised=False), settings, [1, 2], build)


def test_what_cannot_go_together_is_refused():
    models = [model(0), model(1)]
    for words, act in (
        ("one number per model", lambda: train_together(models, TASK, SETTINGS, [1])),
        ("one number per model", lambda: train_together([], TASK, SETTINGS, [])),
        ("one configuration", lambda: train_together([models[0], stochastic(0)], TASK, SETTINGS, [1, 2])),
    ):
        with pytest.raises(ValueError, match=words):
            act()
    with torch.no_grad():
        models[1].backbone.readout.bias.fill_(float("nan"))
    with pytest.raises(TrainingError, match="the loss of seed 2 is nan at step 1"):
        train_together(models, TASK, SETTINGS, [1, 2])
