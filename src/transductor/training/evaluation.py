"""Measuring how right a model is, at every position."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from transductor.model import BackboneConfig, FullAttention, SequenceModel
from transductor.tasks import IGNORED, Task
from transductor.training.examples import Examples, FileData

_PIECE: Final = 4096  # tokens that a model without full attention reads at once
_PIECE_WITH_FULL_ATTENTION: Final = 1024  # the scores of a piece are a matrix: piece × all tokens so far
_MOST_WITH_FULL_ATTENTION: Final = 1 << 16  # about a minute and a few hundred MiB; time grows with the square


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


def longest_at_once(model: SequenceModel[Any]) -> int:
    """Return how many tokens a model is given at once; longer sequences go through :func:`streamed_logits`."""
    return _PIECE if _sizes_with_full_attention(model) is None else _PIECE_WITH_FULL_ATTENTION


@torch.no_grad()
def streamed_logits(model: SequenceModel[Any], tokens: Tensor) -> Iterator[Tensor]:
    """Yield the logits ``(n, output_size)`` of one sequence ``(T)`` piece by piece, on the CPU.

    Between pieces there is only the model's state, so that any length can be read.

    Raises:
        ValueError: If the state grows with the length, as that of full attention does, and the sequence is too long.
    """
    sizes = _sizes_with_full_attention(model)
    if sizes is not None and len(tokens) > _MOST_WITH_FULL_ATTENTION:
        gibibytes = 2 * sizes.layers * len(tokens) * sizes.width * 4 / 2**30
        raise ValueError(
            f"{len(tokens) - 1:,} tokens are too many for a model with full attention, which reads at most "
            f"{_MOST_WITH_FULL_ATTENTION - 1:,} here: its keys and values would take {gibibytes:.1f} GiB, and the time "
            "grows with the square of the length; a model trained with --attention none, or a window, reads any length"
        )
    device, state = next(model.parameters()).device, model.start(1)
    for piece in tokens.split(longest_at_once(model)):
        logits, state = model.advance(piece[None].to(device), state)
        yield logits[0].cpu()


def _sizes_with_full_attention(model: SequenceModel[Any]) -> BackboneConfig | None:
    """Return the sizes of a model that attends to everything before; None for every other model."""
    config = getattr(getattr(model, "backbone", None), "config", None)
    return config if isinstance(config, BackboneConfig) and isinstance(config.attention, FullAttention) else None


@torch.no_grad()
def score(model: SequenceModel[Any], data: FileData, examples: Examples, *, batch_size: int = 64) -> Score:
    """Measure a model on all examples, in batches of similar length; long sequences are streamed one by one."""
    training = model.training
    model.eval()
    total, right, flawless, count = 0.0, 0, 0, 0
    order = sorted(range(len(examples)), key=lambda row: len(examples.tokens[row]))
    for begin in range(0, len(order), batch_size):
        for logits, labels in _answers(model, examples, order[begin : begin + batch_size]):
            labelled = ~labels.isnan() if data.real else labels != IGNORED
            count += int(labelled.sum())
            if data.real:
                total += float((logits[..., 0].double()[labelled] - labels[labelled]).square().sum())
                continue
            chosen, truth = logits.double()[labelled], labels[labelled]
            total += float(torch.nn.functional.cross_entropy(chosen, truth, reduction="sum"))
            right_or_unlabelled = (logits.argmax(-1) == labels) | ~labelled
            right += int((right_or_unlabelled & labelled).sum())
            flawless += int(right_or_unlabelled.all(1).sum())
    model.train(training)
    loss = total / max(1, count)
    perplexity = math.exp(min(loss, 700.0)) if data.goal == "next_token" else math.nan
    shares = (math.nan, math.nan) if data.real else (right / max(1, count), flawless / len(examples))
    return Score(loss, *shares, perplexity, count)


def _answers(model: SequenceModel[Any], examples: Examples, rows: list[int]) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield logits ``(B, T, output_size)`` and labels ``(B, T)`` of these sequences, which stand in order of length."""
    if len(examples.tokens[rows[-1]]) > longest_at_once(model):
        for row in rows:
            logits = torch.cat(list(streamed_logits(model, examples.tokens[row])))
            yield logits[None], examples.labels[row][None]
        return
    device = next(model.parameters()).device
    tokens, labels, lengths = examples.padded(rows)
    yield model(tokens.to(device), lengths=lengths.to(device)).cpu(), labels


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
