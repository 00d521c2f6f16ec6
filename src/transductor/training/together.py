"""Several seeds trained as one job: their weights stacked, their batches side by side."""

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
from transductor.tasks import IGNORED, Task
from transductor.training.settings import TrainingSettings
from transductor.training.trainer import (
    TrainingError,
    TrainingPoint,
    counted_labels,
    drawn_length,
    labelled_loss,
    parameter_groups,
    set_temperature,
)


def train_together(
    models: Sequence[SequenceModel[Any]],
    task: Task,
    settings: TrainingSettings,
    seeds: Sequence[int],
    on_step: Callable[[int], None] | None = None,
) -> list[list[TrainingPoint]]:
    """Train models of one configuration in place, each on the data of its own seed; one list of points for each.

    Each model ends where it would have ended alone, to rounding.  On a GPU many small models cost little more than
    one.  A curriculum is each model's own: shorter sequences are filled up, and what fills them has no label.

    Args:
        models: Built alike, with different weights.
        seeds: One per model, in place of ``settings.seed``.
        on_step: Called with the number of steps done.

    Raises:
        TrainingError: If the loss of one of them is not finite; the others are then lost too.
    """
    _check(models, settings, seeds)
    base = models[0].double() if settings.double else models[0]
    weights, buffers = stack_module_state([model.to(next(base.parameters()).dtype).train() for model in models])
    device = next(base.parameters()).device
    named = [(name, weight, weight.ndim >= 3) for name, weight in weights.items()]
    kind = torch.optim.AdamW if settings.optimiser == "adamw" else torch.optim.Adam
    optimiser = kind(parameter_groups(named, settings), lr=settings.learning_rate, fused=True)
    peaks = [float(group["lr"]) for group in optimiser.param_groups]
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    histories: list[list[TrainingPoint]] = [[] for _ in models]
    curriculum = settings.curriculum
    lengths = [curriculum.start if curriculum else settings.length for _ in models]

    def judged(
        parameters: dict[str, Tensor], held: dict[str, Tensor], tokens: Tensor, labels: Tensor, unit: Tensor | None
    ) -> Any:
        logits = functional_call(base, (parameters, held), (tokens,))
        counted = labels != IGNORED
        right = ((logits.argmax(-1) == labels) & counted).sum() / counted.sum().clamp_min(1)
        return labelled_loss(logits, labels, settings.label_smoothing, unit), right

    for step in range(settings.steps):
        for group, peak in zip(optimiser.param_groups, peaks, strict=True):
            group["lr"] = peak * settings.rate_factor(step)
        if settings.annealing is not None:
            set_temperature(base, settings.annealing.at(step / max(1, settings.steps - 1)))
        tokens, labels = _batch(task, settings, lengths, generators)
        unit = task.unit(tokens.shape[-1])
        with sdpa_kernel(SDPBackend.MATH):  # fused attention is one model's: no batching rule, or a wrong one
            losses, shares = vmap(judged, in_dims=(0, 0, 0, 0, None), randomness="different")(
                weights, buffers, tokens.to(device), labels.to(device), None if unit is None else unit.to(device)
            )
        values = losses.tolist()
        if not all(map(math.isfinite, values)):
            bad = next(place for place, value in enumerate(values) if not math.isfinite(value))
            raise TrainingError(f"the loss of seed {seeds[bad]} is {values[bad]} at step {step + 1}")
        optimiser.zero_grad(set_to_none=True)
        losses.sum().backward()
        _clip(list(weights.values()), settings)
        optimiser.step()
        for place, (value, share) in enumerate(zip(values, shares.tolist(), strict=True)):
            accuracy = math.nan if task.output_kind == "real" else share
            histories[place].append(TrainingPoint(step + 1, value, accuracy))
            if curriculum is not None and curriculum.passed(value, accuracy):
                lengths[place] = curriculum.longer(lengths[place], settings.length)
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


def _batch(
    task: Task, settings: TrainingSettings, lengths: Sequence[int], generators: Sequence[torch.Generator]
) -> tuple[Tensor, Tensor]:
    """Tokens and labels ``(models, B, T)``, each model's as if it trained alone, filled up to the longest."""
    drawn = [drawn_length(settings, *each) for each in zip(lengths, generators, strict=True)]
    samples = [task.sample(settings.batch_size, *each) for each in zip(drawn, generators, strict=True)]
    longest = max(drawn)
    tokens = torch.stack([functional.pad(sample, (0, longest - sample.shape[1])) for sample in samples])
    truths = [counted_labels(task.truth(sample), settings) for sample in samples]
    filler = math.nan if task.output_kind == "real" else IGNORED
    labels = torch.stack([functional.pad(truth, (0, longest - truth.shape[1]), value=filler) for truth in truths])
    return tokens, labels


def _check(models: Sequence[SequenceModel[Any]], settings: TrainingSettings, seeds: Sequence[int]) -> None:
    if not models or len(models) != len(seeds):
        raise ValueError(f"seeds must hold one number per model, at least one; got {len(seeds)} for {len(models)}")
    if any(model.config != models[0].config for model in models):
        raise ValueError("models must have one configuration")


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
