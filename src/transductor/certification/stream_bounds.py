"""A residual stream without attention, from an exact state and a token to logits with an error bound.

Without attention and positions a transductor's logits are a function of the token and what the head shows.  Where the
head is exactly a finite machine there are finitely many of those pairs, so the whole model can be followed, once: every
number that any batch shape, thread count or kernel may compute lies in the balls computed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import nn

from transductor.certification.balls import UNIT, Array, Ball, gamma, ordered_product, sum_above, upper
from transductor.certification.norms import spectral_above
from transductor.certification.subjects import UNITS, Subject, array_of
from transductor.model import RationalTransductor
from transductor.model.attention import NoAttention
from transductor.model.positions import NoPositions

STREAM_ASSUMPTIONS: Final = (
    "linear maps of the stream are sums of products in any order, fused or not, in the precision stated (no TF32)",
    "layer norms compute mean and variance to the rounding of sums of absolute values and of squares; GELU is within 8 "
    "units of its argument",
    "the model is in evaluation mode and its modules are not wrapped",
)
_STEEPEST: Final = 1.13  # the derivative of GELU is at most 1.1290


def stream_tensors(model: RationalTransductor) -> dict[str, Array] | None:
    """The arrays of a stream whose logits depend on nothing but token and state; None where they depend on more."""
    config, backbone = model.backbone.config, model.backbone
    if not isinstance(config.attention, NoAttention) or not isinstance(config.positions, NoPositions):
        return None
    if model.training and config.dropout > 0:
        raise ValueError("model_or_head must be in evaluation mode: call model.eval(), or dropout makes it random")
    out = {"embedding": array_of(backbone.embedding.weight)}
    if model.injection.projections is not None:
        out["projections"] = array_of(_plain(model.injection.projections).weight)
    for number, block in enumerate(backbone.blocks):
        out |= _norm_arrays(f"block{number}.norm", block.get_submodule("feedforward_norm"))
        feedforward = block.get_submodule("feedforward")
        assert isinstance(feedforward, nn.Sequential)
        into, gelu, back = feedforward
        if type(gelu) is not nn.GELU or gelu.approximate != "none":
            raise ValueError(f"model_or_head must have exact GELU between its linear maps; got {gelu}")
        out |= _linear_arrays(f"block{number}.into", into) | _linear_arrays(f"block{number}.back", back)
    return out | _norm_arrays("norm", backbone.final_norm) | _linear_arrays("readout", backbone.readout)


def _plain(module: nn.Module) -> nn.Linear:
    if type(module) is not nn.Linear:
        raise ValueError(f"model_or_head must have plain linear maps; got a {type(module).__name__}")
    return module


def _linear_arrays(name: str, module: nn.Module) -> dict[str, Array]:
    linear = _plain(module)
    return {f"{name}.weight": array_of(linear.weight), f"{name}.bias": array_of(linear.bias)}


def _norm_arrays(name: str, module: nn.Module) -> dict[str, Array]:
    if type(module) is not nn.LayerNorm:
        raise ValueError(f"model_or_head must have plain layer norms; got a {type(module).__name__}")
    values = {f"{name}.weight": array_of(module.weight), f"{name}.bias": array_of(module.bias)}
    return values | {f"{name}.eps": np.array([module.eps])}


@dataclass(frozen=True)
class _Rows:
    """Rows ``(E, W)`` with a bound for every number and one, ``length (E)``, for the Euclidean length of a row's error.

    Either alone would grow with the width at every layer.
    """

    ball: Ball
    length: Array

    @classmethod
    def of(cls, centre: Array, radius: Array, length: Array) -> _Rows:
        """Each bound at most what the other allows."""
        length = np.minimum(length, _length(radius))
        return cls(Ball(centre, np.minimum(radius, length[:, None])), length)

    def widened(self, by: Array) -> _Rows:
        """With ``by (E, W)`` added to the errors."""
        wider = self.ball.widened(by)
        return _Rows.of(wider.centre, wider.radius, upper(self.length + _length(by), 2))

    def __add__(self, other: _Rows) -> _Rows:
        both = self.ball + other.ball
        return _Rows.of(
            both.centre, both.radius, upper(self.length + other.length + _length(2 * UNIT * both.largest()), 3)
        )


def _length(rows: Array) -> Array:
    return np.asarray(upper(np.sqrt(sum_above(rows**2, 1)), 2))


def stream_logits(subject: Subject, letters: Array, shown: Array) -> Ball:
    """Logits ``(E, K)`` for tokens ``(E)`` and what the head shows ``(E, D)``, exact numbers."""
    stream, unit = subject.stream, UNITS[subject.precision] + 2 * UNIT  # float64, by which we bound, rounds too
    values = _exactly(stream["embedding"].astype(np.float64)[letters])
    width = values.ball.centre.shape[1]
    number = 0
    while f"block{number}.into.weight" in stream:
        block = f"block{number}"
        if "projections" in stream and len(stream["projections"]) >= (number + 1) * width:
            weight = stream["projections"][number * width : (number + 1) * width]
            values = _rounded(values + _linear(_exactly(shown), weight, np.zeros(width), unit), unit)
        hidden = _linear_named(stream, f"{block}.into", _normed(values, stream, f"{block}.norm", unit), unit)
        added = _linear_named(stream, f"{block}.back", _gelu(hidden, unit), unit)
        values = _rounded(values + added, unit)
        number += 1
    return _linear_named(stream, "readout", _normed(values, stream, "norm", unit), unit).ball


def _exactly(rows: Array) -> _Rows:
    return _Rows(Ball.exactly(rows), np.zeros(len(rows)))


def _rounded(values: _Rows, unit: float) -> _Rows:
    return values.widened(2 * unit * values.ball.largest())


def _linear_named(stream: Mapping[str, Array], name: str, values: _Rows, unit: float) -> _Rows:
    return _linear(values, stream[f"{name}.weight"], stream[f"{name}.bias"], unit)


def _linear(values: _Rows, weight: Array, bias: Array, unit: float) -> _Rows:
    matrix, sizes = weight.astype(np.float64).T, np.abs(weight.astype(np.float64).T)
    out = values.ball @ Ball.exactly(matrix) + Ball.exactly(bias)
    norm, rows = spectral_above(matrix) if values.length.any() else 0.0, upper(np.sqrt(sum_above(sizes**2, 0)), 2)
    first = np.minimum(out.radius, upper(values.length[:, None] * rows + gamma(len(matrix) + 2) * out.largest(), 4))
    moved = _Rows.of(
        out.centre, first, upper(norm * values.length + _length(gamma(len(matrix) + 2) * out.largest()), 4)
    )
    terms = upper(ordered_product(values.ball.largest(), sizes) + np.abs(bias), len(matrix) + 2)
    return moved.widened(gamma(len(matrix) + 2, unit) * terms)


def _gelu(values: _Rows, unit: float) -> _Rows:
    given = torch.from_numpy(np.ascontiguousarray(values.ball.centre))
    centre = (0.5 * given * (1 + torch.erf(given * 0.5**0.5))).numpy()
    moved = _Rows.of(centre, upper(_STEEPEST * values.ball.radius), upper(_STEEPEST * values.length))
    return moved.widened(8 * unit * values.ball.largest())


def _normed(values: _Rows, stream: Mapping[str, Array], name: str, unit: float) -> _Rows:
    """Layer norm.  The map to unit variance has slope at most 1/σ, and σ moves by at most ρ/√n."""
    weight, bias, eps = (stream[f"{name}.{part}"].astype(np.float64) for part in ("weight", "bias", "eps"))
    centre, apart = values.ball.centre, values.length
    width = centre.shape[1]
    mean, squares = _row_sums(centre) / width, _row_sums(centre**2) / width
    variance = _row_sums((centre - mean[:, None]) ** 2) / width
    least = np.maximum(np.sqrt(variance) * (1 - 1e-9) - apart / width**0.5, 0)
    sigma = np.sqrt(least**2 + eps) * (1 - 1e-9)
    normal = (centre - mean[:, None]) / np.sqrt(variance + eps)[:, None]
    moved = upper(apart / sigma, 4)
    size = values.ball.largest()
    several = gamma(width + 6, unit)
    of_variance = several * 4 * (squares + apart**2) / sigma**2
    of_variance = np.where(of_variance < 0.25, of_variance, np.inf)
    of_mean = several * (sum_above(size, 1) / width + np.abs(mean))
    rounding = (of_mean[:, None] + 8 * unit * size) / sigma[:, None]
    rounding = rounding + (np.abs(normal) + moved[:, None] + rounding) * (of_variance[:, None] + 8 * unit)
    shown = normal * weight + bias
    spread = moved[:, None] * np.abs(weight)
    out = _Rows.of(shown, upper(spread, 4), upper(moved * np.abs(weight).max(), 4))
    return out.widened(
        upper(np.abs(weight) * rounding + 4 * unit * (np.abs(normal * weight) + np.abs(bias)) + spread * unit, 64)
    )


def _row_sums(values: Array) -> Array:
    """In order."""
    total = np.zeros(len(values))
    for column in values.T:
        total = total + column
    return total
