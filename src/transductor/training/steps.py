"""What every training loop shares: the batch that is drawn, the loss on it, the optimiser and its schedule."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from transductor.automata.moore import IGNORED
from transductor.checks import working_dtype
from transductor.tasks import Task
from transductor.training.settings import TrainingSettings


def working_precision(device: torch.device, settings: TrainingSettings) -> torch.autocast:
    """Return the context in which a model of these settings computes on ``device``."""
    return torch.autocast(device.type, torch.bfloat16, enabled=settings.precision == "bfloat16")


def no_label(labels: Tensor) -> float:
    """Return what marks a position without a label among such labels: NaN among numbers, ``IGNORED`` among classes."""
    return math.nan if labels.is_floating_point() else IGNORED


def draw_batch(
    task: Task, settings: TrainingSettings, length: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Draw tokens and labels ``(B, T)``, where the curriculum has reached ``length``."""
    if settings.shortest is not None:
        length = int(torch.randint(settings.shortest, length + 1, (), generator=generator))
    tokens, labels = task.drawn(settings.batch_size, length, generator)
    if settings.labels == "every":
        return tokens, labels
    last = torch.full_like(labels, no_label(labels))
    last[:, -1] = labels[:, -1]
    return tokens, last


def labelled_loss(
    logits: Tensor, labels: Tensor, label_smoothing: float, unit: Tensor | None = None, *, count: int | None = None
) -> Tensor:
    """Return the cross-entropy of classes, or the squared error of numbers, over the positions that have a label.

    Args:
        unit: What errors of numbers are divided by, ``(T,)``.
        count: The sum is divided by this in place of the number of these labels; for a part of a larger batch.
    """
    if labels.is_floating_point():
        labelled = ~labels.isnan()
        errors = torch.where(labelled, logits[..., 0] - labels.nan_to_num().to(logits.dtype), 0.0)
        if unit is not None:
            errors = errors / unit
        return errors.square().sum() / (labelled.sum().clamp_min(1) if count is None else count)
    loss = nn.functional.cross_entropy(
        logits.flatten(0, 1).to(working_dtype(logits.dtype)),
        labels.flatten(),
        label_smoothing=label_smoothing,
        ignore_index=IGNORED,
        reduction="mean" if count is None else "sum",
    )
    return loss if count is None else loss / count


def label_count(labels: Tensor) -> Tensor:
    """Return how many positions have a label."""
    return (~labels.isnan() if labels.is_floating_point() else labels != IGNORED).sum()


def right_labels(logits: Tensor, labels: Tensor) -> Tensor:
    """Return how many labels the largest logit names; meaningless where labels are numbers."""
    return ((logits.detach().argmax(-1) == labels) & (labels != IGNORED)).sum()


def label_accuracy(right: Tensor, labels: Tensor) -> Tensor:
    """Return the fraction of labels that are right, given their number; NaN where labels are numbers."""
    return right * math.nan if labels.is_floating_point() else right / label_count(labels).clamp_min(1)


def build_optimiser(
    named: Iterable[tuple[str, Tensor, bool]], settings: TrainingSettings
) -> torch.optim.AdamW | torch.optim.Adam:
    """Build the optimiser of parameters given by name, tensor, and whether one model's part of it is a matrix."""
    kind = torch.optim.AdamW if settings.optimiser == "adamw" else torch.optim.Adam
    optimiser = kind(_parameter_groups(named, settings), lr=settings.learning_rate, betas=settings.betas, fused=True)
    for group in optimiser.param_groups:
        group["initial_lr"] = float(group["lr"])
    return optimiser


def set_schedule(optimiser: torch.optim.Optimizer, model: nn.Module, settings: TrainingSettings, step: int) -> None:
    """Set learning rates, and temperatures if they are annealed, to those of ``step``, counted from 0."""
    for group in optimiser.param_groups:
        group["lr"] = group["initial_lr"] * settings.rate_factor(step)
    if settings.annealing is not None:
        set_temperature(model, settings.annealing.at(step / max(1, settings.steps - 1)))


def set_temperature(model: nn.Module, temperature: float) -> None:
    """Set the temperature of every family that has one."""
    for module in model.modules():
        if isinstance(getattr(module, "temperature", None), float | int):
            module.temperature = temperature  # type: ignore[assignment]


def _parameter_groups(named: Iterable[tuple[str, Tensor, bool]], settings: TrainingSettings) -> list[dict[str, Any]]:
    """Return decayed weights, other weights, and the rational head's own group where it has its own learning rate."""
    decayed: list[Tensor] = []
    kept: list[Tensor] = []
    head: list[Tensor] = []
    for name, parameter, matrix in named:
        if not parameter.requires_grad:
            continue
        if "rational_head" in name:
            (kept if settings.head_learning_rate is None else head).append(parameter)
        else:
            (decayed if matrix else kept).append(parameter)
    groups: list[dict[str, Any]] = [
        {"params": decayed, "weight_decay": settings.weight_decay if settings.optimiser == "adamw" else 0.0},
        {"params": kept, "weight_decay": 0.0},
    ]
    if head:
        groups.append({"params": head, "weight_decay": 0.0, "lr": settings.head_learning_rate})
    return groups
