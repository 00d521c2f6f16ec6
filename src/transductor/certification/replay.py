"""One word, computed again from stored numbers: in the precision of the scan, in an order that is always the same.

A word is written in blocks, ``((letters, times), …)``, and blocks are raised to their powers by squaring: one of the
orders in which a scan may take its products, and quick enough for words of any length.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
import torch
from torch.nn import functional as F

from transductor.certification.ball_arithmetic import Array
from transductor.certification.bounds.stream import stream_logits
from transductor.certification.subjects import Subject

Blocks = tuple[tuple[tuple[int, ...], int], ...]

_LONGEST_PERIOD = 12


def as_blocks(word: Sequence[int]) -> Blocks:
    """Return a word with its repetitions written once."""
    letters = np.array(word, dtype=np.int64)
    # For each period, where a letter differs from the one a period before it: a repetition ends there.
    breaks = [
        np.flatnonzero(letters[period:] != letters[:-period]) + period for period in range(1, _LONGEST_PERIOD + 1)
    ]
    blocks: list[tuple[tuple[int, ...], int]] = []
    plain: list[int] = []
    start = 0
    while start < len(word):
        period, times = 1, 1
        for each in range(1, min(_LONGEST_PERIOD, (len(word) - start) // 3) + 1):
            later = np.searchsorted(breaks[each - 1], start + each)
            end = int(breaks[each - 1][later]) if later < len(breaks[each - 1]) else len(word)
            repeated = (end - start) // each
            if repeated >= 3 and repeated * each > max(4, times * period):
                period, times = each, repeated
        if times == 1:
            plain.append(int(word[start]))
            start += 1
            continue
        blocks += [(tuple(plain), 1)] if plain else []
        plain = []
        blocks.append((tuple(map(int, word[start : start + period])), times))
        start += period * times
    return (*blocks, (tuple(plain), 1)) if plain else tuple(blocks)


def spelled(blocks: Blocks) -> tuple[int, ...]:
    """Return the word letter by letter."""
    return tuple(chain.from_iterable(letters * times for letters, times in blocks))


def output_after(subject: Subject, blocks: Blocks) -> Array:
    """Return what the head shows after the word, ``h_t`` or ``[h_t ; h_{t−1}]``, in the dtype of the table."""
    last, times = blocks[-1]
    before = _state(subject, (*blocks[:-1], (last, times - 1), (last[:-1], 1)))
    after = _product(subject.table[last[-1]], before[:, None])[:, 0]
    return np.concatenate((after, before)) if subject.lookback else after


def _state(subject: Subject, blocks: Blocks) -> Array:
    state = subject.initial
    for letters, times in blocks:
        if times > 1:
            state = _product(_power(_word_matrix(subject, letters), times), state[:, None])[:, 0]
            continue
        for letter in letters * times:
            state = _product(subject.table[letter], state[:, None])[:, 0]
    return state


def _word_matrix(subject: Subject, letters: tuple[int, ...]) -> Array:
    matrix = subject.table[letters[0]]
    for letter in letters[1:]:
        matrix = _product(subject.table[letter], matrix)
    return np.asarray(matrix)


def _power(matrix: Array, times: int) -> Array:
    out = None
    while times:
        if times & 1:
            out = matrix if out is None else _product(matrix, out)
        times >>= 1
        if times:
            matrix = _product(matrix, matrix)
    assert out is not None
    return out


def _product(left: Array, right: Array) -> Array:
    """Multiply in the dtype of the factors, adding in order."""
    with np.errstate(all="ignore"):  # a head may overflow, and is then wrong
        out = left[:, 0, None] * right[0]
        for k in range(1, left.shape[1]):
            out = out + left[:, k, None] * right[k]
    return np.asarray(out)


def logits_after(subject: Subject, blocks: Blocks) -> Array:
    """Return the logits ``(K)`` after a word, in the precision of the readout.

    Half precisions are added up in float32.  A stream is followed in float64 with its errors; where these leave the
    label open, as numbers may leave their range, it is computed in its own precision.
    """
    output = output_after(subject, blocks)
    if subject.stream:
        letter = blocks[-1][0][-1]
        ball = stream_logits(subject, np.array([letter]), output.astype(np.float64)[None])
        decided = _is_decided(ball.centre[0], ball.radius[0])
        return ball.centre[0] if decided else _computed_logits(subject, letter, output)
    dtype = np.float64 if subject.precision == "float64" else np.float32
    weight, bias = (part.astype(dtype) for part in subject.readout())
    seen = _stored(output, subject.precision).to(torch.from_numpy(bias).dtype).numpy()
    logits = _product(weight, seen[:, None])[:, 0] + bias
    return _stored(logits, subject.precision).double().numpy()


def _is_decided(centre: Array, radius: Array) -> bool:
    """Say whether all logits within a radius of these have the same label."""
    if len(centre) == 1:
        return bool(abs(centre[0]) > radius[0])
    best = int(np.argmax(centre))
    return bool(centre[best] - radius[best] > np.delete(centre + radius, best).max())


def _stored(values: Array, precision: str) -> torch.Tensor:
    """Return numbers as their format holds them: rounded, zero or infinite."""
    return torch.from_numpy(np.array(values)).to(getattr(torch, precision))


def _computed_logits(subject: Subject, letter: int, output: Array) -> Array:
    """Compute the logits of a stream without attention as a model does, in its format."""
    parts = {name: _stored(values, subject.precision) for name, values in subject.stream.items()}
    values, seen = parts["embedding"][letter], _stored(output, subject.precision)
    width = len(values)

    def normed(name: str) -> torch.Tensor:
        scale = parts[f"{name}.weight"], parts[f"{name}.bias"]
        return F.layer_norm(values, (width,), *scale, float(subject.stream[f"{name}.eps"][0]))

    def mapped(name: str, rows: torch.Tensor) -> torch.Tensor:
        return F.linear(rows, parts[f"{name}.weight"], parts[f"{name}.bias"])

    number = 0
    while f"block{number}.into.weight" in parts:
        projections = parts.get("projections", seen)[number * width : (number + 1) * width]
        if "projections" in parts and len(projections):
            values = values + F.linear(seen, projections)
        hidden = F.gelu(mapped(f"block{number}.into", normed(f"block{number}.norm")))
        values = values + mapped(f"block{number}.back", hidden)
        number += 1
    return mapped("readout", normed("norm")).double().numpy()


def label_of(logits: Array) -> int:
    """Return the first largest logit; where there is only one, whether it is positive."""
    return int(logits[0] > 0) if len(logits) == 1 else int(np.argmax(logits))
