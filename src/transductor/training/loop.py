"""Training in one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transductor.model import SequenceModel
from transductor.tasks import Task
from transductor.training.settings import TrainingSettings
from transductor.training.trainer import Trainer, TrainingPoint


def train(
    model: SequenceModel[Any],
    task: Task,
    settings: TrainingSettings,
    on_step: Callable[[TrainingPoint], None] | None = None,
) -> list[TrainingPoint]:
    """Train ``model`` in place; returns one point per step.  To be able to resume, use :class:`Trainer`."""
    return Trainer(model, task, settings).run(on_step)
