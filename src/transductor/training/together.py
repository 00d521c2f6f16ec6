"""Several seeds trained as one job: their weights stacked, their batches side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap

from transductor.model import SequenceModel
from transductor.tasks import Task
from transductor.training.settings import TrainingSettings
from transductor.training.trainer import TrainingError, TrainingPoint, labelled_loss, parameter_groups

__all__ = ["train_together"]


def train_together(
    models: Sequence[SequenceModel[Any]], task: Task, settings: TrainingSettings, seeds: Sequence[int]
) -> list[list[TrainingPoint]]:
    """Train models of one configuration in place, each on the data of its own seed; one list of points for each.

    Each model ends where it would have ended alone, to rounding.  On a GPU many small models cost little more than
    one.  Curricula and annealing change with the run of a single model, and are refused.

    Args:
        models: Built alike, with different weights.
        seeds: One per model, in place of ``settings.seed``.
    """
    _check(models, settings, seeds)
    base = models[0].double() if settings.double else models[0]
    weights, buffers = stack_module_state([model.to(next(base.parameters()).dtype).train() for model in models])
    device = next(base.parameters()).device
    named = [(name, weight, weight.ndim >= 3) for name, weight in weights.items()]
    kind = torch.optim.AdamW if settings.optimiser == "adamw" else torch.optim.Adam
    optimiser = kind(parameter_groups(named, settings), lr=settings.learning_rate)
    peaks = [float(group["lr"]) for group in optimiser.param_groups]
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    histories: list[list[TrainingPoint]] = [[] for _ in models]

    def judged(parameters: dict[str, Tensor], held: dict[str, Tensor], tokens: Tensor, labels: Tensor) -> Any:
        logits = functional_call(base, (parameters, held), (tokens,))
        right = ((logits.argmax(-1) == labels) & (labels != -100)).sum() / (labels != -100).sum().clamp_min(1)
        return labelled_loss(logits, labels, settings.label_smoothing), right

    for step in range(settings.steps):
        for group, peak in zip(optimiser.param_groups, peaks, strict=True):
            group["lr"] = peak * settings.rate_factor(step)
        tokens = torch.stack([task.sample(settings.batch_size, settings.length, each) for each in generators])
        labels = task.truth(tokens.flatten(0, 1)).unflatten(0, tokens.shape[:2])
        losses, shares = vmap(judged, randomness="different")(weights, buffers, tokens.to(device), labels.to(device))
        values = losses.tolist()
        if not all(map(math.isfinite, values)):
            bad = next(place for place, value in enumerate(values) if not math.isfinite(value))
            raise TrainingError(f"the loss of seed {seeds[bad]} is {values[bad]} at step {step + 1}")
        optimiser.zero_grad(set_to_none=True)
        losses.sum().backward()
        _clip(list(weights.values()), settings)
        optimiser.step()
        for history, value, share in zip(histories, values, shares.tolist(), strict=True):
            history.append(TrainingPoint(step + 1, value, share))
    with torch.no_grad():
        for place, model in enumerate(models):
            for name, parameter in model.named_parameters():
                parameter.copy_(weights[name][place])
            model.eval()
    return histories


def _check(models: Sequence[SequenceModel[Any]], settings: TrainingSettings, seeds: Sequence[int]) -> None:
    if not models or len(models) != len(seeds):
        raise ValueError(f"seeds must hold one number per model, at least one; got {len(seeds)} for {len(models)}")
    if any(model.config != models[0].config for model in models):
        raise ValueError("models must have one configuration")
    if settings.curriculum is not None or settings.annealing is not None:
        raise ValueError("curriculum and annealing must be None: they change with the run of a single model")


def _clip(weights: Sequence[Tensor], settings: TrainingSettings) -> None:
    """Each model's gradients by its own norm."""
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    if settings.clipping == "none" or not gradients:
        return
    norms = [gradient.flatten(1).norm(dim=1) for gradient in gradients]
    if settings.clipping == "global":
        norms = [torch.stack(norms).norm(dim=0)] * len(gradients)
    for gradient, norm in zip(gradients, norms, strict=True):
        factor = (settings.gradient_clip / (norm + 1e-6)).clamp_max(1.0)
        gradient.mul_(factor.view(-1, *[1] * (gradient.ndim - 1)))
