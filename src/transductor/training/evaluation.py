"""Measuring how right a model is, at every position."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from transductor.model import SequenceModel
from transductor.tasks import IGNORED, Task
from transductor.training.examples import Examples, FileData


@dataclass(frozen=True)
class Accuracy:
    """Fractions of right labels: at all positions, beyond the trained length, at the last position, and at each."""

    every_position: float
    beyond: float
    last_position: float
    by_position: tuple[float, ...]


@dataclass(frozen=True)
class Score:
    """How well a model does on examples: its mean loss, and what suits the kind of data.

    Attributes:
        loss: Cross-entropy or squared error, per labelled position.
        positions: Fraction of labelled positions that are right (NaN where labels are numbers).
        sequences: Fraction of sequences with every label right (NaN where labels are numbers).
        perplexity: Perplexity of next tokens, ends included; NaN for other goals.
        count: Number of labelled positions.
    """

    loss: float
    positions: float
    sequences: float
    perplexity: float
    count: int


@torch.no_grad()
def score(model: SequenceModel[Any], data: FileData, examples: Examples, *, batch_size: int = 64) -> Score:
    """Measure a model on all examples, in batches of similar length."""
    device = next(model.parameters()).device
    training = model.training
    model.eval()
    total, right, flawless, count = 0.0, 0, 0, 0
    order = sorted(range(len(examples)), key=lambda row: len(examples.tokens[row]))
    for begin in range(0, len(order), batch_size):
        tokens, labels, lengths = examples.padded(order[begin : begin + batch_size])
        logits = model(tokens.to(device), lengths=lengths.to(device)).cpu()
        labelled = ~labels.isnan() if data.real else labels != IGNORED
        count += int(labelled.sum())
        if data.real:
            total += float((logits[..., 0].double()[labelled] - labels[labelled]).square().sum())
            continue
        total += float(torch.nn.functional.cross_entropy(logits.double()[labelled], labels[labelled], reduction="sum"))
        right_or_unlabelled = (logits.argmax(-1) == labels) | ~labelled
        right += int((right_or_unlabelled & labelled).sum())
        flawless += int(right_or_unlabelled.all(1).sum())
    model.train(training)
    loss = total / max(1, count)
    perplexity = math.exp(min(loss, 700.0)) if data.goal == "next_token" else math.nan
    shares = (math.nan, math.nan) if data.real else (right / max(1, count), flawless / len(examples))
    return Score(loss, *shares, perplexity, count)


@torch.no_grad()
def evaluate_on(model: SequenceModel[Any], task: Task, tokens: Tensor, trained_length: int) -> Accuracy:
    """Return the accuracy on given tokens ``(B, T)``; ``beyond`` counts positions after ``trained_length``.

    Where no position lies beyond, ``beyond`` is the accuracy over all positions.
    """
    if task.output_kind != "class":
        raise ValueError(f"task must have classes as labels; those of {task.name} are numbers")
    device = next(model.parameters()).device
    training = model.training
    model.eval()
    labels = task.truth(tokens)
    right = (model(tokens.to(device)).argmax(-1).cpu() == labels).double()
    model.train(training)
    right[labels == IGNORED] = math.nan
    later = right[:, trained_length:] if right.shape[1] > trained_length else right
    each = right.nanmean(0)
    return Accuracy(right.nanmean().item(), later.nanmean().item(), each[-1].item(), tuple(each.tolist()))


def evaluate(
    model: SequenceModel[Any], task: Task, *, length: int, trained_length: int, batch_size: int = 64, seed: int = 10_000
) -> Accuracy:
    """Return the accuracy on a new random batch; use a ``seed`` that training does not use."""
    tokens = task.sample(batch_size, length, torch.Generator().manual_seed(seed))
    return evaluate_on(model, task, tokens, trained_length)
