"""A trained model before its probes: every position counts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

import torch
from torch import Tensor

from transductor.model import SequenceModel
from transductor.studies.study import EVERY_FAMILY, Probe
from transductor.tasks import IGNORED, Task

_TOKENS_AT_ONCE: Final = 1 << 19
_BINS: Final = 32


def judge(
    model: SequenceModel[Any], task: Task, probe: Probe, *, trained_length: int, seed: int
) -> list[dict[str, Any]]:
    """How right the model is on the inputs of a probe: plain data, one entry per input.

    Of classes: fractions of right labels over all positions, beyond the trained length, at the last label, and of
    sequences without any mistake; the number of mistakes and where the first is.  Of numbers: squared errors in units
    of the task over all positions and at the last, and the relative error there.  Both by position, in bins that widen;
    where there is no mistake one bin holds all.
    """
    asked = probe.task or task
    entries = []
    model.eval()
    for name, batches in _inputs(asked, probe, seed):
        tally = _Numbers() if asked.output_kind == "real" else _Classes(trained_length)
        for tokens in batches:
            tally.add(asked, tokens, _outputs(model, tokens))
        entries.append({"input": name, "task": asked.name, "length": probe.length, **tally.entry()})
    return entries


def _inputs(task: Task, probe: Probe, seed: int) -> Iterator[tuple[str, Iterator[Tensor]]]:
    """Names, and batches of tokens that are never all in memory."""
    if probe.family is None:
        yield ("random" if probe.bias is None else f"p = {probe.bias:g}"), _drawn(task, probe, seed)
        return
    families = task.adversarial(probe.length)
    if probe.family != EVERY_FAMILY and probe.family not in families:
        raise ValueError(f"family must be one of {', '.join(families)} or {EVERY_FAMILY}; got {probe.family!r}")
    for name, tokens in families.items():
        if probe.family in (name, EVERY_FAMILY):
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
        self.right = self.counted = torch.zeros((), dtype=torch.long)  # exact, however many

    def add(self, task: Task, tokens: Tensor, outputs: Tensor) -> None:
        labels = task.truth(tokens)
        counted = labels != IGNORED
        # argmax takes NaN for the largest, but it is no answer
        right = (outputs.argmax(-1).cpu() == labels) & counted & ~outputs.isnan().any(-1).cpu()
        self.right, self.counted = self.right + right.sum(0), self.counted + counted.sum(0)
        self.sequences += len(tokens)
        self.exact += int((right == counted).all(1).sum())
        at_last = torch.where(counted, torch.arange(labels.shape[1]), -1).max(1).values
        rows = at_last >= 0
        self.with_last += int(rows.sum())
        self.last += int(right[rows].gather(1, at_last[rows, None]).sum())

    def entry(self) -> dict[str, Any]:
        wrong = (self.counted - self.right).nonzero().flatten()
        beyond = slice(self.trained_length, None)
        if not self.counted[beyond].any():
            beyond = slice(None)
        return {
            "sequences": self.sequences,
            "labels": int(self.counted.sum()),
            "positions": self._share(slice(None)),
            "beyond": self._share(beyond),
            "last": self.last / max(1, self.with_last),
            "exact": self.exact / self.sequences,
            "mistakes": int((self.counted - self.right).sum()),
            "first_mistake": int(wrong[0]) + 1 if len(wrong) else None,
            "curve": [
                [end, self._share(slice(begin, end))]
                for begin, end in (_bins(len(self.counted)) if len(wrong) else [(0, len(self.counted))])
                if self.counted[begin:end].any()
            ],
        }

    def _share(self, places: slice) -> float:
        return int(self.right[places].sum()) / max(1, int(self.counted[places].sum()))


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


def _finite(value: Tensor) -> float:
    """Records hold numbers; what overflowed is the largest of them."""
    number = float(value)
    return 1e308 if math.isnan(number) else min(number, 1e308)


def _bins(length: int) -> Iterator[tuple[int, int]]:
    """Single positions first, then bins whose ends grow by a constant factor."""
    begin = 0
    for place in range(1, _BINS + 1):
        if begin >= length:
            return
        end = min(length, max(begin + 1, round(length ** (place / _BINS))))
        yield begin, end
        begin = end
