"""Training several seeds as one job: their weights are stacked, their batches lie side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from transductor.model import SequenceModel
from transductor.tasks import Task
from transductor.training.settings import TrainingSettings
from transductor.training.steps import (
    build_optimiser,
    draw_batch,
    label_accuracy,
    labelled_loss,
    no_label,
    right_labels,
    set_schedule,
    set_temperature,
)
from transductor.training.trainer import TrainingError, TrainingPoint


def train_together(
    models: Sequence[SequenceModel[Any]],
    task: Task,
    settings: TrainingSettings,
    seeds: Sequence[int],
    on_step: Callable[[int], None] | None = None,
) -> list[list[TrainingPoint]]:
    """Train models of one configuration in place, each on the data of its own seed; return a list of points for each.

    Each model ends where it would have ended alone, up to rounding.  On a GPU many small models cost little more than
    one.  Each model has its own curriculum: shorter sequences are padded, and padding has no label.

    Args:
        models: Models of one configuration with different weights.
        task: The task they learn.
        settings: How each is trained.
        seeds: One seed per model, in place of ``settings.seed``.
        on_step: Called with the number of steps done.

    Raises:
        TrainingError: If the loss of one model is not finite; the others are then lost too.
    """
    _check(models, settings, seeds)
    base = models[0].double() if settings.double else models[0]
    weights, buffers = stack_module_state([model.to(next(base.parameters()).dtype).train() for model in models])
    device = next(base.parameters()).device
    named = [(name, weight, weight.ndim >= 3) for name, weight in weights.items()]
    optimiser = build_optimiser(named, settings)
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    histories: list[list[TrainingPoint]] = [[] for _ in models]
    lengths = [settings.first_length for _ in models]

    def measured(
        parameters: dict[str, Tensor], held: dict[str, Tensor], tokens: Tensor, labels: Tensor, unit: Tensor | None
    ) -> Any:
        logits = functional_call(base, (parameters, held), (tokens,))
        loss = labelled_loss(logits, labels, settings.label_smoothing, unit)
        return loss, label_accuracy(right_labels(logits, labels), labels)

    for step in range(settings.steps):
        set_schedule(optimiser, base, settings, step)
        tokens, labels = draw_batches(task, settings, lengths, generators)
        unit = task.unit(tokens.shape[-1])
        with sdpa_kernel(SDPBackend.MATH):  # fused attention has no batching rule, or a wrong one
            losses, accuracies = vmap(measured, in_dims=(0, 0, 0, 0, None), randomness="different")(
                weights, buffers, tokens.to(device), labels.to(device), None if unit is None else unit.to(device)
            )
        values = losses.tolist()
        if not all(map(math.isfinite, values)):
            bad = next(place for place, value in enumerate(values) if not math.isfinite(value))
            raise TrainingError(f"the loss of seed {seeds[bad]} is {values[bad]} at step {step + 1}")
        optimiser.zero_grad(set_to_none=True)
        losses.sum().backward()
        clip_each(list(weights.values()), settings)
        optimiser.step()
        for place, point in enumerate(zip(values, accuracies.tolist(), strict=True)):
            histories[place].append(TrainingPoint(step + 1, *point))
            lengths[place] = settings.next_length(lengths[place], *point)
        if on_step is not None:
            on_step(step + 1)
    with torch.no_grad():
        for place, model in enumerate(models):
            for name, parameter in model.named_parameters():
                parameter.copy_(weights[name][place])
            if settings.annealing is not None:
                set_temperature(model, settings.annealing.end)
            model.eval()
    return histories


def draw_batches(
    task: Task, settings: TrainingSettings, lengths: Sequence[int], generators: Sequence[torch.Generator]
) -> tuple[Tensor, Tensor]:
    """Draw tokens and labels ``(models, B, T)``, each model's as if it trained alone, padded to the longest."""
    batches = [draw_batch(task, settings, *each) for each in zip(lengths, generators, strict=True)]
    longest = max(tokens.shape[1] for tokens, _ in batches)

    def padded(values: Tensor, filler: float) -> Tensor:
        return functional.pad(values, (0, longest - values.shape[1]), value=filler)

    return (
        torch.stack([padded(tokens, 0) for tokens, _ in batches]),
        torch.stack([padded(labels, no_label(labels)) for _, labels in batches]),
    )


def _check(models: Sequence[SequenceModel[Any]], settings: TrainingSettings, seeds: Sequence[int]) -> None:
    if not models or len(models) != len(seeds):
        raise ValueError(f"seeds must hold one number per model, at least one; got {len(seeds)} for {len(models)}")
    if any(model.config != models[0].config for model in models):
        raise ValueError("models must have one configuration")


def clip_each(weights: Sequence[Tensor], settings: TrainingSettings) -> None:
    """Clip each model's gradients by its own norm."""
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    if settings.clipping == "none" or not gradients:
        return
    norms = [gradient.flatten(1).norm(dim=1) for gradient in gradients]
    if settings.clipping == "global":
        norms = [torch.stack(norms).norm(dim=0)] * len(gradients)
    for gradient, norm in zip(gradients, norms, strict=True):
        factor = (settings.gradient_clip / (norm + 1e-6)).clamp_max(1.0)
        gradient.mul_(factor.view(-1, *[1] * (gradient.ndim - 1)))
