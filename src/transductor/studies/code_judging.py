"""Judging a model of source code: bits a byte by position and by file, forced choices, and what its state is for."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transductor.model import GuidedTransformer, RationalTransductor, SequenceModel
from transductor.model.token_positions import TokenPositions
from transductor.recurrence import Layout
from transductor.studies.code_choices import Choice, choices_in, test_files
from transductor.studies.study import Arm, Probe
from transductor.tasks import SourceCode
from transductor.training.steps import labelled_loss, working_precision

DISTANCES: Final = (16, 64, 256, 1024)
"""Where the bins of distances end, in bytes; the last one is open."""

_FIRST_BIN: Final = 64
_TOKENS_AT_ONCE: Final = 1 << 17
_DECODED: Final = 24
_TIMED: Final = 3


def judge_code(model: SequenceModel[Any], arm: Arm) -> list[dict[str, Any]]:
    """Judge a model on files of the test part, read from their first byte; return an entry for each probe.

    An entry has the mean bits a byte, the same by position (bins that double) and by file; how many forced choices are
    right, by kind and by distance of what decides them; and, for a model with a state, the bits a byte when it is
    replaced by zeros, or by that of another file.
    """
    assert isinstance(arm.task, SourceCode)
    model.eval()
    return [_judged(model, arm, arm.task, probe) for probe in arm.probes]


def _judged(model: SequenceModel[Any], arm: Arm, task: SourceCode, probe: Probe) -> dict[str, Any]:
    chosen = _chosen(task, probe.length, probe.sequences)
    bits: list[NDArray[np.float32]] = []
    tallies: dict[str, NDArray[np.int64]] = {}
    replaced: dict[str, list[float]] = {}
    rows = max(2, _TOKENS_AT_ONCE // probe.length)
    for begin in range(0, len(chosen), rows):
        places = chosen[begin : begin + rows]
        tokens = torch.tensor(np.stack([_head_of(task, place, probe.length) for place in places]))
        tokens = tokens.to(next(model.parameters()).device).long()
        logits = _logits(model, arm, tokens)
        bits.append(_bits(logits, tokens).cpu().numpy())
        if task.opened().language == "python":
            for row, place in enumerate(places):
                _count(tallies, choices_in(task, place, probe.length), logits[row])
        del logits
        if probe is arm.probes[0] and len(places) > 1:
            for name, change in _CHANGES.items():
                if (other := _logits(model, arm, tokens, change)) is not None:
                    replaced.setdefault(name, []).append(float(_bits(other, tokens).mean()) * len(places))
    every = np.concatenate(bits)
    return {
        "input": "files",
        "task": task.name,
        "length": probe.length,
        "sequences": len(chosen),
        "bits": round(float(every.mean()), 6),
        "curve": [
            [end, round(float(every[:, first:end].mean()), 6)] for first, end in _bins(every.shape[1]) if end > first
        ],
        "files": [[int(place), round(float(row.mean()), 6)] for place, row in zip(chosen, every, strict=True)],
        "choices": {kind: tally.tolist() for kind, tally in sorted(tallies.items())},
        "replaced": {name: round(sum(parts) / len(chosen), 6) for name, parts in replaced.items()},
    }


def _bins(length: int) -> list[tuple[int, int]]:
    ends = [_FIRST_BIN]
    while ends[-1] < length:
        ends.append(2 * ends[-1])
    ends[-1] = length
    return list(zip([0, *ends[:-1]], ends, strict=True))


@cache
def _chosen(task: SourceCode, length: int, count: int) -> tuple[int, ...]:
    """Return the places of test files that are long enough, evenly spaced over packages; at least one."""
    files = test_files(task)
    long = [place for place, file in enumerate(files) if len(file) >= length]
    if not long:
        raise ValueError(f"length must be at most {max(map(len, files))}, that of the longest test file; got {length}")
    count = min(count, len(long))
    return tuple(long[place * len(long) // count] for place in range(count))


def _head_of(task: SourceCode, place: int, length: int) -> NDArray[np.uint8]:
    return np.frombuffer(test_files(task)[place][:length], np.uint8)


# What a state (B, T, D) is replaced with.
_CHANGES: Final[dict[str, Callable[[Tensor], Tensor]]] = {
    "zeros": torch.zeros_like,
    "another file's": lambda states: states.roll(1, 0),
}


@torch.no_grad()
def _logits(
    model: SequenceModel[Any], arm: Arm, tokens: Tensor, change: Callable[[Tensor], Tensor] | None = None
) -> Any:
    """Return the logits of tokens ``(B, T)``; with a ``change``, None for a model without a state of its own."""
    with working_precision(tokens.device, arm.training):
        if change is None:
            return model(tokens)
        layout = Layout()
        if isinstance(model, RationalTransductor):
            states = model.rational_head(tokens, layout=layout)
        elif isinstance(model, GuidedTransformer):
            states = model.states(tokens, layout)
        else:
            return None
        return model.backbone(tokens, TokenPositions.of(tokens, layout), model.injection.into(change(states)))[0]


def _bits(logits: Tensor, tokens: Tensor) -> Tensor:
    """Return the bits ``(B, T − 1)`` that each byte but the first costs."""
    rows = [
        torch.nn.functional.cross_entropy(row[:-1].float(), own[1:], reduction="none")
        for row, own in zip(logits, tokens, strict=True)
    ]
    return torch.stack(rows) / math.log(2)


def _count(tallies: dict[str, NDArray[np.int64]], choices: dict[str, Choice], logits: Tensor) -> None:
    """Add up the choices of one file, ``(bins, 2)`` for each kind: how many, and how many right."""
    for kind, choice in choices.items():
        if not len(choice.places):
            continue
        scores = logits[torch.as_tensor(choice.places - 1, device=logits.device)].float().cpu()
        right = choice.right(scores).numpy()
        tally = tallies.setdefault(kind, np.zeros((len(DISTANCES) + 1, 2), dtype=np.int64))
        np.add.at(tally[:, 0], np.searchsorted(DISTANCES, choice.distances), 1)
        np.add.at(tally[:, 1], np.searchsorted(DISTANCES, choice.distances[right]), 1)


def costs(model: SequenceModel[Any], arm: Arm) -> dict[str, Any]:
    """Measure a training step on the arm's own batch, its memory on a GPU, and the time to write one byte."""
    device, settings = next(model.parameters()).device, arm.training
    tokens, labels = (
        part.to(device) for part in arm.task.drawn(settings.batch_size, settings.length, torch.Generator())
    )
    on_gpu = device.type == "cuda"

    def step() -> None:
        with working_precision(device, settings):
            logits = model(tokens)
        labelled_loss(logits, labels, 0.0).backward()
        model.zero_grad(set_to_none=True)

    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    step_seconds = _least_seconds(step, on_gpu)
    memory = torch.cuda.max_memory_allocated() if on_gpu else None
    with torch.no_grad(), working_precision(device, settings):
        _, state = model.advance(tokens[:1, : min(256, settings.length)], model.start(1))

        def written() -> None:
            later = state
            for place in range(_DECODED):
                _, later = model.advance(tokens[:1, place : place + 1], later)

        decode_seconds = _least_seconds(written, on_gpu) / _DECODED
    return {
        "step_seconds": round(step_seconds, 6),
        "tokens_per_second": round(tokens.numel() / step_seconds),
        "memory_bytes": memory,
        "decode_seconds": round(decode_seconds, 7),
    }


def _least_seconds(call: Callable[[], None], on_gpu: bool) -> float:
    times: Sequence[float] = []
    for _ in range(_TIMED):
        if on_gpu:
            torch.cuda.synchronize()
        began = time.perf_counter()
        call()
        if on_gpu:
            torch.cuda.synchronize()
        times = [*times, time.perf_counter() - began]
    return min(times)
