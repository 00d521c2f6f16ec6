"""Several seeds as one job end where each would have ended alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.training.test_training import TASK, model
from transductor.training import Annealing, Curriculum, TrainingError, TrainingSettings, train, train_together

SETTINGS = TrainingSettings(steps=6, length=9, batch_size=4, double=True)
pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop")


@pytest.mark.parametrize("clipping", ["global", "per_tensor", "none"])
@pytest.mark.parametrize("optimiser", ["adamw", "adam"])
def test_together_is_one_after_another(clipping, optimiser):
    settings = replace(SETTINGS, clipping=clipping, optimiser=optimiser, head_learning_rate=1e-3, gradient_clip=0.1)
    seeds = [3, 5, 8]
    together = [model(seed) for seed in seeds]
    points = train_together(together, TASK, settings, seeds)
    for place, seed in enumerate(seeds):
        alone = model(seed)
        expected = train(alone, TASK, replace(settings, seed=seed))
        for found, wanted in zip(points[place], expected, strict=True):
            assert found.step == wanted.step
            assert found.loss == pytest.approx(wanted.loss, rel=1e-9)
            assert found.accuracy == pytest.approx(wanted.accuracy)
        for (name, found), wanted in zip(together[place].named_parameters(), alone.parameters(), strict=True):
            assert torch.allclose(found, wanted, rtol=1e-7, atol=1e-10), name
        assert not together[place].training


def test_what_cannot_go_together_is_refused():
    models = [model(0), model(1)]
    for words, act in (
        ("one number per model", lambda: train_together(models, TASK, SETTINGS, [1])),
        ("one number per model", lambda: train_together([], TASK, SETTINGS, [])),
        ("must be None", lambda: train_together(models, TASK, replace(SETTINGS, curriculum=Curriculum()), [1, 2])),
        ("must be None", lambda: train_together(models, TASK, replace(SETTINGS, annealing=Annealing()), [1, 2])),
    ):
        with pytest.raises(ValueError, match=words):
            act()
    with torch.no_grad():
        models[1].backbone.readout.bias.fill_(float("nan"))
    with pytest.raises(TrainingError, match="the loss of seed 2 is nan at step 1"):
        train_together(models, TASK, SETTINGS, [1, 2])
