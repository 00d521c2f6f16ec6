"""The settings of one training run: a frozen value."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from transductor.checks import check_positive, one_of
from transductor.configuration import LATER, configuration

OPTIMISERS: Final = ("adamw", "adam")
SCHEDULES: Final = ("cosine", "linear", "constant")
CLIPPINGS: Final = ("global", "per_tensor", "none")
PRECISIONS: Final = ("float32", "bfloat16")
LABELS: Final = ("every", "last")


@configuration
@dataclass(frozen=True)
class Curriculum:
    """Lengths that grow: from ``start``, times ``factor`` whenever a batch is good enough, up to the full length.

    Args:
        start: Length of the first batches.
        factor: What the length is multiplied by.
        threshold: The fraction of right labels that is good enough.
        loss: The loss that is good enough where labels are numbers.
    """

    start: int = 4
    factor: float = 2.0
    threshold: float = 0.98
    loss: float = 1e-4

    def __post_init__(self) -> None:
        check_positive("start", self.start)
        if not 1 < self.factor < math.inf:
            raise ValueError(f"factor must be a number above 1; got {self.factor!r}")
        if not 0 < self.threshold <= 1:
            raise ValueError(f"threshold must lie in (0, 1]; got {self.threshold!r}")
        if not 0 < self.loss < math.inf:
            raise ValueError(f"loss must be a positive number; got {self.loss!r}")

    def passed(self, loss: float, accuracy: float) -> bool:
        """Say whether a batch is good enough; the accuracy is NaN where labels are numbers."""
        return loss <= self.loss if math.isnan(accuracy) else accuracy >= self.threshold

    def longer(self, length: int, longest: int) -> int:
        """Return the next length."""
        return min(longest, max(length + 1, math.ceil(length * self.factor)))


@configuration
@dataclass(frozen=True)
class Annealing:
    """The temperature of stochastic families, which changes geometrically from ``start`` to ``end`` over the run."""

    start: float = 1.0
    end: float = 0.05

    def __post_init__(self) -> None:
        for name in ("start", "end"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be a positive number; got {getattr(self, name)!r}")

    def at(self, progress: float) -> float:
        """Return the temperature at ``progress`` in [0, 1]."""
        return float(self.start * (self.end / self.start) ** progress)


@configuration
@dataclass(frozen=True)
class TrainingSettings:
    """How one model is trained.

    Args:
        steps: Number of optimiser steps.
        length: Tokens per sequence; with a curriculum, at the end.
        shortest: If given, every batch has a length drawn between this and ``length`` (or where the curriculum is).
        labels: Which labels count in the loss: that of ``"every"`` position, or the ``"last"`` of each sequence.
        batch_size: Sequences per step.
        learning_rate: Peak learning rate.
        weight_decay: Decay of weight matrices outside the rational head (AdamW); a head's matrices need not be small.
        gradient_clip: Largest gradient norm.
        label_smoothing: Keeps the loss above zero after every label is right, so that angles go on improving:
            without it a saturated softmax leaves the phase of a rotation where it first sufficed.
        seed: Seed of the data.  Seed the model before building it.
        optimiser: ``"adamw"`` or ``"adam"``.
        schedule: ``"cosine"`` or ``"linear"`` to zero, or ``"constant"``.
        warmup: Steps over which the learning rate rises from zero.
        clipping: Whose norm is clipped: ``"global"`` (all parameters together), ``"per_tensor"``, or ``"none"``.
        head_learning_rate: Peak learning rate of the rational head; that of the rest if not given.
        curriculum: How lengths grow, if they do.
        annealing: How the temperature of stochastic families changes, if it does.
        double: Whether to train in float64.
        explosion: Training stops when the loss exceeds this many times the larger of 1 and its first value.
        betas: How long the optimiser remembers gradients and their squares.
        precision: ``"bfloat16"`` computes the model's products in bfloat16 (autocast); weights and heads stay as they
            are.
    """

    steps: int = 1500
    length: int = 50
    shortest: int | None = None
    labels: str = "every"
    batch_size: int = 64
    learning_rate: float = 5e-3
    weight_decay: float = 1e-2
    gradient_clip: float = 1.0
    label_smoothing: float = 0.1
    seed: int = 0
    optimiser: str = "adamw"
    schedule: str = "cosine"
    warmup: int = 0
    clipping: str = "global"
    head_learning_rate: float | None = None
    curriculum: Curriculum | None = None
    annealing: Annealing | None = None
    double: bool = False
    explosion: float = 1e4
    betas: tuple[float, float] = field(default=(0.9, 0.999), metadata=LATER)
    precision: str = field(default="float32", metadata=LATER)

    def __post_init__(self) -> None:
        for name in ("steps", "length", "batch_size"):
            check_positive(name, getattr(self, name))
        rates = {"learning_rate": self.learning_rate, "gradient_clip": self.gradient_clip, "explosion": self.explosion}
        if self.head_learning_rate is not None:
            rates["head_learning_rate"] = self.head_learning_rate
        for name, value in rates.items():
            if not 0 < value < math.inf:
                raise ValueError(f"{name} must be a positive number; got {value!r}")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas must be two numbers in [0, 1); got {self.betas!r}")
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"label_smoothing must lie in [0, 1); got {self.label_smoothing!r}")
        if not isinstance(self.warmup, int) or not 0 <= self.warmup <= self.steps:
            raise ValueError(f"warmup must be an integer from 0 to steps = {self.steps}; got {self.warmup!r}")
        one_of("optimiser", self.optimiser, OPTIMISERS)
        one_of("schedule", self.schedule, SCHEDULES)
        one_of("clipping", self.clipping, CLIPPINGS)
        one_of("precision", self.precision, PRECISIONS)
        if self.double and self.precision != "float32":
            raise ValueError(f"precision must be 'float32' where training is in float64; got {self.precision!r}")
        one_of("labels", self.labels, LABELS)
        if self.shortest is not None:
            check_positive("shortest", self.shortest)
            if self.shortest > self.first_length:
                raise ValueError(
                    f"shortest must not exceed the length at the start; got {self.shortest!r}, length {self.length}"
                )
        if self.curriculum is not None and self.curriculum.start > self.length:
            raise ValueError(f"curriculum must start at length = {self.length} or less; got {self.curriculum.start}")

    @property
    def first_length(self) -> int:
        """The length of the first batches."""
        return self.length if self.curriculum is None else self.curriculum.start

    def next_length(self, length: int, loss: float, accuracy: float, longest: int | None = None) -> int:
        """Return the length after a batch of ``length`` that had this loss and accuracy, up to ``longest``."""
        if self.curriculum is None or not self.curriculum.passed(loss, accuracy):
            return length
        return self.curriculum.longer(length, self.length if longest is None else longest)

    def rate_factor(self, step: int) -> float:
        """Return what the peak learning rate is multiplied with at ``step``, counted from 0."""
        if step < self.warmup:
            return (step + 1) / (self.warmup + 1)
        if self.schedule == "constant":
            return 1.0
        progress = (step - self.warmup) / max(1, self.steps - self.warmup)
        return 0.5 * (1 + math.cos(math.pi * progress)) if self.schedule == "cosine" else 1 - progress
