"""A residual stream without attention, from an exact state and a token to logits with an error bound.

Without attention and positions a transductor's logits are a function of the token and the head's output.  Where the
head is exactly a finite machine there are finitely many of those pairs, so each is followed through the model once:
every number that any batch shape, thread count or kernel may compute lies in the balls computed here.  Where a number
may leave the range of its format, the ball is infinite.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch

from transductor.certification.ball_arithmetic import (
    UNIT,
    Array,
    Ball,
    gamma,
    ordered_sum,
    sum_above,
    upper,
)
from transductor.certification.bounds.norms import spectral_above
from transductor.certification.formats import Format, cast_errors, linear_errors
from transductor.certification.subjects import Subject

_STEEPEST: Final = 1.13  # the derivative of GELU is at most 1.1290


@dataclass(frozen=True)
class _Rows:
    """Rows ``(E, W)`` with two error bounds: one for every number, and ``length (E)`` for the length of a row's error.

    Either alone would grow with the width at every layer.
    """

    ball: Ball
    length: Array

    @classmethod
    def of(cls, centre: Array, radius: Array, length: Array) -> _Rows:
        """Make each bound at most what the other allows."""
        length = np.minimum(length, _length(radius))
        return cls(Ball(centre, np.minimum(radius, length[:, None])), length)

    def widened(self, by: Array) -> _Rows:
        """Return the rows with ``by (E, W)`` added to their errors."""
        wider = self.ball.widened(by)
        return _Rows.of(wider.centre, wider.radius, upper(self.length + _length(by), 2))

    def __add__(self, other: _Rows) -> _Rows:
        both = self.ball + other.ball
        return _Rows.of(
            both.centre, both.radius, upper(self.length + other.length + _length(2 * UNIT * both.largest()), 3)
        )


def _length(rows: Array) -> Array:
    return np.asarray(upper(np.sqrt(sum_above(rows**2, 1)), 2))


def stream_logits(subject: Subject, letters: Array, outputs: Array) -> Ball:
    """Return logits ``(E, K)`` for tokens ``(E)`` and exact outputs of the head, ``(E, D)`` or ``(E, 2D)``."""
    stream, form = subject.stream, subject.read
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite becomes an infinite ball
        sizes = np.abs(outputs)
        cast = np.where(sizes > 0, cast_errors(sizes, subject.scanned, form), 0.0)
        states = _exactly(outputs).widened(cast)
        values = _exactly(stream["embedding"].astype(np.float64)[letters])
        width = values.ball.centre.shape[1]
        number = 0
        while f"block{number}.into.weight" in stream:
            block = f"block{number}"
            if "projections" in stream and len(stream["projections"]) >= (number + 1) * width:
                weight = stream["projections"][number * width : (number + 1) * width]
                values = _sum(values, _linear(states, weight, np.zeros(width), form), form)
            hidden = _linear_named(stream, f"{block}.into", _normed(values, stream, f"{block}.norm", form), form)
            values = _sum(values, _linear_named(stream, f"{block}.back", _gelu(hidden, form), form), form)
            number += 1
        logits = _linear_named(stream, "readout", _normed(values, stream, "norm", form), form).ball
    known = np.isfinite(logits.centre) & np.isfinite(logits.radius)
    return Ball(np.where(known, logits.centre, 0.0), np.where(known, logits.radius, np.inf))


def _exactly(rows: Array) -> _Rows:
    return _Rows(Ball.exactly(rows), np.zeros(len(rows)))


def _unit(form: Format) -> float:
    return form.unit + 2 * UNIT  # the float64 of these bounds rounds too


def _sum(left: _Rows, right: _Rows, form: Format) -> _Rows:
    """Add what a layer returns to the stream."""
    both = left + right
    errors = upper(2 * _unit(form) * both.ball.largest() + 8 * form.lost, 3)
    return both.widened(np.where(left.ball.largest() + right.ball.largest() <= form.largest / 4, errors, np.inf))


def _linear_named(stream: Mapping[str, Array], name: str, values: _Rows, form: Format) -> _Rows:
    return _linear(values, stream[f"{name}.weight"], stream[f"{name}.bias"], form)


def _linear(values: _Rows, weight: Array, bias: Array, form: Format) -> _Rows:
    matrix, sizes = weight.astype(np.float64).T, np.abs(weight.astype(np.float64).T)
    out = values.ball @ Ball.exactly(matrix) + Ball.exactly(bias)
    norm, rows = spectral_above(matrix) if values.length.any() else 0.0, upper(np.sqrt(sum_above(sizes**2, 0)), 2)
    first = np.minimum(out.radius, upper(values.length[:, None] * rows + gamma(len(matrix) + 2) * out.largest(), 4))
    moved = _Rows.of(
        out.centre, first, upper(norm * values.length + _length(gamma(len(matrix) + 2) * out.largest()), 4)
    )
    occurs = (values.ball.centre != 0) | (values.ball.radius != 0)
    return moved.widened(linear_errors(values.ball.largest(), matrix, bias, form, unit=_unit(form), occurs=occurs))


def _gelu(values: _Rows, form: Format) -> _Rows:
    before = torch.from_numpy(np.ascontiguousarray(values.ball.centre))
    centre = (0.5 * before * (1 + torch.erf(before * 0.5**0.5))).numpy()
    moved = _Rows.of(centre, upper(_STEEPEST * values.ball.radius), upper(_STEEPEST * values.length))
    size = values.ball.largest()
    errors = upper(8 * _unit(form) * size + 16 * form.lost * (1 + size), 6)
    return moved.widened(np.where(size <= form.largest / 4, errors, np.inf))


def _normed(values: _Rows, stream: Mapping[str, Array], name: str, form: Format) -> _Rows:
    """Apply a layer norm: the map to unit variance has slope at most 1/σ, and σ moves by at most ρ/√n.

    Mean and variance are computed in float32 or float64, whatever the format of the stream.
    """
    weight, bias, eps = (stream[f"{name}.{part}"].astype(np.float64) for part in ("weight", "bias", "eps"))
    inside = form.statistics
    unit = _unit(inside)
    centre, apart = values.ball.centre, values.length
    width = centre.shape[1]
    mean, squares = ordered_sum(centre, 1) / width, ordered_sum(centre**2, 1) / width
    variance = ordered_sum((centre - mean[:, None]) ** 2, 1) / width
    least = np.maximum(np.sqrt(variance) * (1 - 1e-9) - apart / width**0.5, 0)
    sigma = np.sqrt(least**2 + eps) * (1 - 1e-9)
    normal = (centre - mean[:, None]) / np.sqrt(variance + eps)[:, None]
    moved = upper(apart / sigma, 4)
    size = values.ball.largest()
    several = gamma(width + 6, unit)
    lost = 32 * inside.lost * width * (1 + size.max(1))
    of_variance = (several * 4 * (squares + apart**2) + lost) / sigma**2
    of_variance = np.where(of_variance < 0.25, of_variance, np.inf)
    of_mean = several * (sum_above(size, 1) / width + np.abs(mean)) + lost
    rounding = (of_mean[:, None] + 8 * unit * size) / sigma[:, None]
    rounding = rounding + (np.abs(normal) + moved[:, None] + rounding) * (of_variance[:, None] + 8 * unit)
    scaled = normal * weight + bias
    spread = moved[:, None] * np.abs(weight)
    out = _Rows.of(scaled, upper(spread, 4), upper(moved * np.abs(weight).max(), 4))
    parts = np.abs(normal * weight) + np.abs(bias)
    steep = (1 + 1 / sigma)[:, None] * (1 + np.abs(weight)) * (1 + size)
    errors = np.abs(weight) * rounding + 4 * unit * parts + spread * unit + 16 * inside.lost * steep
    if inside is not form:  # one more rounding, to the format of the stream
        errors = errors + 2 * form.unit * (parts + spread + errors) + 2 * form.lost
    in_range = (sigma**2 >= 2.0**-60) & (width * sum_above(size**2, 1) <= inside.largest / 16)
    in_range = in_range[:, None] & (steep <= inside.largest / 16) & (parts + spread + errors <= form.largest / 4)
    return out.widened(np.where(in_range, upper(errors, 64), np.inf))
