"""How parameters move: AdamW on a label at every position."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from transductor.configuration import configuration
from transductor.model import SequenceModel
from transductor.notation import check_positive
from transductor.tasks import Task

__all__ = ["TrainingError", "TrainingPoint", "TrainingSettings", "train"]


class TrainingError(RuntimeError):
    """Training that cannot go on; the message says at which step and why."""


@configuration
@dataclass(frozen=True)
class TrainingSettings:
    """One training run.

    Args:
        steps: Optimiser steps.
        length: Tokens per sequence.
        batch_size: Sequences per step.
        learning_rate: Peak of AdamW; decays to zero along a cosine.
        weight_decay: Of weight matrices outside the rational head; an automaton has no reason to be small.
        gradient_clip: Largest gradient norm, of all parameters together.
        label_smoothing: Keeps the loss alive after every label is right, so that angles go on improving:
            without it a saturated softmax leaves the phase of a rotation where it first sufficed.
        seed: Of the data.  Seed the model before building it.
    """

    steps: int = 1500
    length: int = 50
    batch_size: int = 64
    learning_rate: float = 5e-3
    weight_decay: float = 1e-2
    gradient_clip: float = 1.0
    label_smoothing: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("steps", "length", "batch_size"):
            check_positive(name, getattr(self, name))
        if not 0 < self.learning_rate < math.inf:
            raise ValueError(f"learning_rate must be a positive number; got {self.learning_rate!r}")
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"label_smoothing must lie in [0, 1); got {self.label_smoothing!r}")


@dataclass(frozen=True)
class TrainingPoint:
    """Loss and accuracy on the batch of one step."""

    step: int
    loss: float
    accuracy: float


def train(
    model: SequenceModel[Any],
    task: Task,
    settings: TrainingSettings,
    on_step: Callable[[TrainingPoint], None] | None = None,
) -> list[TrainingPoint]:
    """Train ``model`` in place; returns one point per step.  Equal seeds give equal numbers on a CPU."""
    device = next(model.parameters()).device
    generator = torch.Generator().manual_seed(settings.seed)
    optimiser = torch.optim.AdamW(_groups(model, settings.weight_decay), lr=settings.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, settings.steps)
    points = []
    model.train()
    for step in range(1, settings.steps + 1):
        tokens = task.sample(settings.batch_size, settings.length, generator)
        labels = task.truth(tokens).to(device)
        logits = model(tokens.to(device))
        loss = nn.functional.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), label_smoothing=settings.label_smoothing
        )
        if not math.isfinite(loss.item()):
            raise TrainingError(f"the loss is {loss.item()} at step {step}; try a smaller learning_rate")
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), settings.gradient_clip)
        optimiser.step()
        schedule.step()
        accuracy = (logits.argmax(-1) == labels).float().mean().item()
        points.append(TrainingPoint(step, loss.item(), accuracy))
        if on_step is not None:
            on_step(points[-1])
    model.eval()
    return points


def _groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    decayed: list[nn.Parameter] = []
    kept: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            (decayed if parameter.ndim >= 2 and "rational_head" not in name else kept).append(parameter)
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": kept, "weight_decay": 0.0}]
