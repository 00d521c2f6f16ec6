"""How right a model is: every position counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from transductor.model import SequenceModel
from transductor.tasks import Task

__all__ = ["Accuracy", "evaluate", "evaluate_on"]


@dataclass(frozen=True)
class Accuracy:
    """Fractions of right labels: over all positions, beyond the trained length, at the last, and at each."""

    every_position: float
    beyond: float
    last_position: float
    by_position: tuple[float, ...]


@torch.no_grad()
def evaluate_on(model: SequenceModel[Any], task: Task, tokens: Tensor, trained_length: int) -> Accuracy:
    """Accuracy on given tokens ``(B, T)``; ``beyond`` counts positions after ``trained_length``.

    Where no position lies beyond, ``beyond`` is the accuracy over all positions.
    """
    device = next(model.parameters()).device
    training = model.training
    model.eval()
    right = (model(tokens.to(device)).argmax(-1).cpu() == task.truth(tokens)).double()
    model.train(training)
    later = right[:, trained_length:] if right.shape[1] > trained_length else right
    each = right.mean(0)
    return Accuracy(right.mean().item(), later.mean().item(), each[-1].item(), tuple(each.tolist()))


def evaluate(
    model: SequenceModel[Any], task: Task, *, length: int, trained_length: int, batch_size: int = 64, seed: int = 10_000
) -> Accuracy:
    """Accuracy on a fresh random batch; keep ``seed`` away from the seeds of training."""
    tokens = task.sample(batch_size, length, torch.Generator().manual_seed(seed))
    return evaluate_on(model, task, tokens, trained_length)
