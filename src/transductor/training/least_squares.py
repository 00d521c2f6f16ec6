"""Levenberg–Marquardt: how the last digits of a model are fitted when its labels are numbers.

Gradient descent leaves a small model near the right one and then slows down, because in some directions the error
grows with the length and in others nothing changes.  With few parameters the Jacobian is cheap, and a problem that can
be solved exactly converges quadratically.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from torch.func import functional_call, jacfwd

from transductor.checks import check_positive
from transductor.heads import RationalHead
from transductor.model import SequenceModel
from transductor.tasks import Task

_MOST_PARAMETERS: Final = 2000  # the normal equations are dense


@dataclass(frozen=True)
class LeastSquares:
    """The result of a fit: mean squared errors on its batch before and after, and the number of steps."""

    before: float
    after: float
    steps: int


def fit_least_squares(
    model: SequenceModel[Any],
    task: Task,
    *,
    length: int,
    batch_size: int = 64,
    steps: int = 40,
    seed: int = 0,
    tolerance: float = 1e-30,
) -> LeastSquares:
    """Fit ``model``, in place, to one batch at every position, in units of the task.

    Args:
        model: A model in float64 with at most 2 000 trainable numbers.
        task: A task with real labels.
        length: Length of the batch; if generalisation is to be measured, no longer than what the model was trained on.
        batch_size: Number of sequences.
        steps: Largest number of steps.
        seed: Seed of the batch.
        tolerance: Mean squared error at which to stop.
    """
    check_positive("steps", steps)
    if task.output_kind != "real":
        raise ValueError(f"task must have numbers as labels; those of {task.name} are classes")
    trainable = {name: weight.detach() for name, weight in model.named_parameters() if weight.requires_grad}
    count = sum(weight.numel() for weight in trainable.values())
    if not 0 < count <= _MOST_PARAMETERS or any(weight.dtype != torch.float64 for weight in trainable.values()):
        raise ValueError(
            f"model must have 1 to {_MOST_PARAMETERS} trainable numbers in float64; got {count} in "
            f"{next(iter(model.parameters())).dtype}"
        )
    device = next(iter(trainable.values())).device
    tokens = task.sample(batch_size, length, torch.Generator().manual_seed(seed))
    labels, unit = task.truth(tokens).to(device), task.unit(length)
    scale = 1.0 if unit is None else 1 / unit.to(device)
    tokens = tokens.to(device)

    def residuals(flat: Tensor) -> Tensor:
        outputs: Tensor = functional_call(model, _parted(flat, trainable), (tokens,))
        return ((outputs[..., 0] - labels) * scale).flatten()

    with _step_by_step(model):
        flat = torch.cat([weight.flatten() for weight in trainable.values()])
        flat, result = _descended(residuals, flat, steps, tolerance)
    with torch.no_grad():
        for name, weight in _parted(flat, trainable).items():
            model.get_parameter(name).copy_(weight)
    return result


def _descended(residuals: Any, flat: Tensor, steps: int, tolerance: float) -> tuple[Tensor, LeastSquares]:
    errors = residuals(flat)
    before = after = float(errors.square().mean())
    damping, taken = 1e-3, 0
    while taken < steps and after > tolerance:
        with warnings.catch_warnings():
            # torch's own rules for forward differentiation are scripted, which torch deprecates.
            warnings.simplefilter("ignore", DeprecationWarning)
            jacobian = jacfwd(residuals)(flat)
        normal, slope = jacobian.mT @ jacobian, jacobian.mT @ errors
        taken += 1
        for _ in range(12):  # each try is damped four times as much as the one before
            # Relative to the diagonal, and a little absolute: the error is flat along changes of basis of the state.
            damped = normal + damping * torch.diag(normal.diag() + 1e-12)
            tried = flat - torch.linalg.solve(damped, slope)
            tried_errors = residuals(tried)
            if float(tried_errors.square().mean()) < after:
                break
            damping *= 4
        else:
            break
        flat, errors, after = tried, tried_errors, float(tried_errors.square().mean())
        damping = max(damping / 5, 1e-15)
    return flat, LeastSquares(before, after, taken)


def _parted(flat: Tensor, shapes: dict[str, Tensor]) -> dict[str, Tensor]:
    parts = flat.split([weight.numel() for weight in shapes.values()])
    return {name: part.view_as(weight) for part, (name, weight) in zip(parts, shapes.items(), strict=True)}


@contextmanager
def _step_by_step(model: SequenceModel[Any]) -> Iterator[None]:
    """Use the reference scan inside: forward differentiation knows its operations, but not the kernels."""
    heads = [module for module in model.modules() if isinstance(module, RationalHead)]
    backends = [head.backend for head in heads]
    try:
        for head in heads:
            head.backend = "reference"
        yield
    finally:
        for head, backend in zip(heads, backends, strict=True):
            head.backend = backend
