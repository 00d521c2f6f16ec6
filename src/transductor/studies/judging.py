"""Judging a trained model on its probes, at every position."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

import torch
from torch import Tensor

from transductor.model import SequenceModel
from transductor.studies.study import EVERY_KIND, Arm, Probe
from transductor.tasks import IGNORED, HiddenProcess, Task

_TOKENS_AT_ONCE: Final = 1 << 19
_BINS: Final = 32


def judge_arm(model: SequenceModel[Any], arm: Arm, seed: int) -> list[dict[str, Any]]:
    """Judge a model, which need not be the trained one itself, on all probes of an arm; see :func:`judge`."""
    trained = arm.training.length
    return [entry for probe in arm.probes for entry in judge(model, arm.task, probe, trained_length=trained, seed=seed)]


def judge(
    model: SequenceModel[Any], task: Task, probe: Probe, *, trained_length: int, seed: int
) -> list[dict[str, Any]]:
    """Measure how right the model is on the inputs of a probe; return plain data, one entry per input.

    Where labels are classes: the fractions of right labels over all positions, beyond the trained length and at the
    last label, and of sequences without any mistake; the number of mistakes and the position of the first.  Where they
    are numbers: squared errors in units of the task over all positions and at the last, and the relative error there.
    Both also by position, in bins that widen; where there is no mistake one bin holds all.  Where the task is about
    hidden states, also by what share predictions lose more than Bayes (``excess``), and what he loses a position.
    """
    task = probe.task or task
    entries = []
    model.eval()
    for name, batches in _inputs(task, probe, seed):
        tally = _tally(task, trained_length)
        for tokens in batches:
            tally.add(task, tokens, _outputs(model, tokens))
        entries.append({"input": name, "task": task.name, "length": probe.length, **tally.entry()})
    return entries


def _inputs(task: Task, probe: Probe, seed: int) -> Iterator[tuple[str, Iterator[Tensor]]]:
    """Yield the name of each input and its batches of tokens, of which only one is in memory at a time."""
    if probe.family is None:
        yield ("random" if probe.bias is None else f"p = {probe.bias:g}"), _drawn(task, probe, seed)
        return
    kinds = task.adversarial(probe.length)
    if probe.family != EVERY_KIND and probe.family not in kinds:
        raise ValueError(f"family must be one of {', '.join(kinds)} or {EVERY_KIND}; got {probe.family!r}")
    for name, tokens in kinds.items():
        if probe.family in (name, EVERY_KIND):
            yield name, iter((tokens,))


def _drawn(task: Task, probe: Probe, seed: int) -> Iterator[Tensor]:
    generator = torch.Generator().manual_seed(1_000_003 * (seed + 1))  # far from the seeds of training
    left, rows = probe.sequences, max(1, _TOKENS_AT_ONCE // probe.length)
    while left > 0:
        yield task.sample(min(rows, left), probe.length, generator, bias=probe.bias)
        left -= rows


@torch.no_grad()
def _outputs(model: SequenceModel[Any], tokens: Tensor) -> Tensor:
    outputs: Tensor = model(tokens.to(next(model.parameters()).device))
    return outputs


class _Classes:
    """Right labels, counted position by position."""

    def __init__(self, trained_length: int) -> None:
        self.trained_length = trained_length
        self.sequences = self.exact = self.last = self.with_last = 0
        self.right = self.labelled = torch.zeros((), dtype=torch.long)  # integers, so sums are exact

    def add(self, task: Task, tokens: Tensor, outputs: Tensor) -> None:
        labels = task.truth(tokens)
        labelled = labels != IGNORED
        # argmax takes NaN for the largest, but NaN is not an answer
        right = (outputs.argmax(-1).cpu() == labels) & labelled & ~outputs.isnan().any(-1).cpu()
        self.right, self.labelled = self.right + right.sum(0), self.labelled + labelled.sum(0)
        self.sequences += len(tokens)
        self.exact += int((right == labelled).all(1).sum())
        at_last = torch.where(labelled, torch.arange(labels.shape[1]), -1).max(1).values
        rows = at_last >= 0
        self.with_last += int(rows.sum())
        self.last += int(right[rows].gather(1, at_last[rows, None]).sum())

    def entry(self) -> dict[str, Any]:
        wrong = (self.labelled - self.right).nonzero().flatten()
        beyond = slice(self.trained_length, None)
        if not self.labelled[beyond].any():
            beyond = slice(None)
        return {
            "sequences": self.sequences,
            "labels": int(self.labelled.sum()),
            "positions": self._share(slice(None)),
            "beyond": self._share(beyond),
            "last": self.last / max(1, self.with_last),
            "exact": self.exact / self.sequences,
            "mistakes": int((self.labelled - self.right).sum()),
            "first_mistake": int(wrong[0]) + 1 if len(wrong) else None,
            "curve": [
                [end, self._share(slice(begin, end))]
                for begin, end in (_bins(len(self.labelled)) if len(wrong) else [(0, len(self.labelled))])
                if self.labelled[begin:end].any()
            ],
        }

    def _share(self, places: slice) -> float:
        return int(self.right[places].sum()) / max(1, int(self.labelled[places].sum()))


class _Beliefs(_Classes):
    """Right labels, and how much worse than Bayes the predictions are."""

    def __init__(self, trained_length: int) -> None:
        super().__init__(trained_length)
        self.more = self.least = 0.0

    def add(self, task: Task, tokens: Tensor, outputs: Tensor) -> None:
        super().add(task, tokens, outputs)
        assert isinstance(task, HiddenProcess)
        more, least = task.divergence(outputs.cpu(), tokens)
        self.more, self.least = self.more + more, self.least + least

    def entry(self) -> dict[str, Any]:
        excess = max(0.0, _finite(self.more / self.least))  # rounding may fall below Bayes
        return {**super().entry(), "excess": excess, "least_loss": self.least / int(self.labelled.sum())}


class _Numbers:
    """Squared errors, summed position by position."""

    def __init__(self) -> None:
        self.sequences = 0
        self.squares = torch.zeros(())
        self.relative: list[Tensor] = []

    def add(self, task: Task, tokens: Tensor, outputs: Tensor) -> None:
        labels, unit = task.truth(tokens), task.unit(tokens.shape[1])
        errors = outputs[..., 0].double().cpu() - labels
        self.squares = self.squares + (errors / (1.0 if unit is None else unit)).square().sum(0)
        self.sequences += len(tokens)
        there = labels[:, -1] != 0
        self.relative.append((errors[there, -1] / labels[there, -1]).abs())

    def entry(self) -> dict[str, Any]:
        means, relative = self.squares / self.sequences, torch.cat(self.relative)
        return {
            "sequences": self.sequences,
            "mse_every_position": _finite(means.mean()),
            "mse": _finite(means[-1]),
            "relative_error": _finite(relative.mean()) if len(relative) else None,
            "curve": [[end, _finite(means[begin:end].mean())] for begin, end in _bins(len(means))],
        }


def _tally(task: Task, trained_length: int) -> _Classes | _Numbers:
    if task.output_kind == "real":
        return _Numbers()
    return _Beliefs(trained_length) if isinstance(task, HiddenProcess) else _Classes(trained_length)


def _finite(value: Tensor | float) -> float:
    """Return a finite number, as records need: 1e308 for what overflowed."""
    number = float(value)
    return 1e308 if math.isnan(number) else min(number, 1e308)


def _bins(length: int) -> Iterator[tuple[int, int]]:
    """Yield bins of positions: single positions first, then bins whose ends grow by a constant factor."""
    begin = 0
    for place in range(1, _BINS + 1):
        if begin >= length:
            return
        end = min(length, max(begin + 1, round(length ** (place / _BINS))))
        yield begin, end
        begin = end
