"""Levenberg–Marquardt: exact where gradient descent only comes near."""

from __future__ import annotations

import pytest
import torch

from transductor.heads import RationalHead
from transductor.model import RationalReadout
from transductor.tasks import BaseValue, Parity
from transductor.training import Curriculum, TrainingSettings, fit_least_squares, train
from transductor.transitions import AffineTransitions

TASK = BaseValue(normalised=False)


def readout(seed=0, backend="auto"):
    torch.manual_seed(seed)
    return RationalReadout(RationalHead(AffineTransitions(vocab_size=2, state_dim=4), backend=backend), 1).double()


@pytest.mark.parametrize("first", [True, False])
def test_horner_to_the_last_bit(first):
    task = BaseValue(most_significant_first=first, normalised=False)
    model = readout()
    settings = TrainingSettings(
        steps=400,
        length=8,
        batch_size=32,
        learning_rate=1e-2,
        optimiser="adam",
        clipping="per_tensor",
        curriculum=Curriculum(4),
        double=True,
    )
    descended = train(model, task, settings)[-1].loss
    fit = fit_least_squares(model, task, length=8)
    assert 1e-9 < descended < 1e-2
    assert fit.after < 1e-25 < fit.before
    assert model.rational_head.backend == "auto"
    tokens = task.sample(64, 128, torch.Generator().manual_seed(9))
    errors = (model(tokens)[..., 0] - task.truth(tokens)) / task.unit(128)
    assert errors.abs().max() < 1e-12


def test_a_fit_never_gets_worse_and_stops():
    model = readout(3)
    before = fit_least_squares(model, TASK, length=4, steps=1)
    after = fit_least_squares(model, TASK, length=4, steps=3)
    assert after.after <= before.after == pytest.approx(after.before)
    assert fit_least_squares(model, TASK, length=4, steps=3, tolerance=1e9).steps == 0


def test_what_cannot_be_fitted_is_refused():
    with pytest.raises(ValueError, match="task must have numbers as labels"):
        fit_least_squares(readout(), Parity(), length=4)
    with pytest.raises(ValueError, match="in float64; got"):
        fit_least_squares(readout().float(), TASK, length=4)
    with pytest.raises(ValueError, match="model must have 1 to 2000 trainable numbers"):
        fit_least_squares(readout().requires_grad_(False), TASK, length=4)
