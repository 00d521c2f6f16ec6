"""Sets of vectors of a residual stream: a centre, and a linear map of what is not known.

For each of E pairs of a token and a head's output, the stream is ``x = c + Σ G_a ξ_a + ρ``: ``ξ_a`` is a point of the
convex hull that an attention head can return, or a number in [−1, 1] that stands for a remainder, and ``ρ`` is any
vector within ``radius``.  The same ξ occurs in everything that one position computes, so that what attention adds to
the stream and what later layers make of it are not counted apart.  Linear maps keep the form; LayerNorm and GELU are
replaced by linear maps and a remainder that is proved.

All bounds are float64 and hold with their own rounding: an exact sum differs from ours by at most γ times the sum of
the absolute values, and that is added to the radius.  The rounding of the model is added in the same way, and so is
what underflow can take.  Where a number may leave the range of the format, the radius is infinite.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import torch

from transductor.certification.ball_arithmetic import UNIT, Array, gamma, ordered_product, ordered_sum, sum_above, upper
from transductor.certification.bounds.attention_hull import Hull
from transductor.certification.formats import FORMATS
from transductor.certification.subjects import SAFE_RANGE

# What a result in the range of denormal numbers may lose, flushed or not, times 64.
_UNDERFLOW: Final = {"float64": 2.0**-1016, "float32": 2.0**-120}
_PIECES: Final = 16  # of an interval on which GELU is bounded by its second derivative
_CURVATURE: Final = (0.108, 0.798)  # GELU'' = φ(x)(2 − x²) lies between −0.10799 and 0.79789
_FUNCTION_ERROR: Final = 2.0**-40  # of a library's erf and exp in float64, which are good to 2⁻⁵⁰


@dataclass(frozen=True)
class Arithmetic:
    """How a format rounds: ``unit`` relative to a result, ``tiny`` where it underflows, up to ``largest``."""

    unit: float
    tiny: float
    largest: float

    @classmethod
    def of(cls, precision: str) -> Arithmetic:
        """Return the arithmetic of a format, with the float64 of these bounds added to its rounding."""
        if precision not in _UNDERFLOW:
            raise ValueError(
                f"precision must be one of {', '.join(_UNDERFLOW)}; got {precision!r}, whose rounding leaves no bound: "
                "convert the model with model.float(), which changes no weight"
            )
        return cls(FORMATS[precision].unit + 4 * UNIT, _UNDERFLOW[precision], SAFE_RANGE[precision])

    def checked(self, radius: Array, sizes: Array) -> Array:
        """Return the radius, infinite where a size may leave the range."""
        return np.where(sizes <= self.largest, radius, np.inf)


@dataclass(frozen=True, eq=False)
class Rows:
    """One set for each of E pairs: vectors ``centre (E, W)`` + ``columns (E, W, C)`` times symbols, within ``radius``.

    Attributes:
        symbols: What the columns are multiplied with, in their order: a hull and its dimension, or None and a number of
            symbols in [−1, 1].
    """

    centre: Array
    columns: Array
    radius: Array
    symbols: tuple[tuple[Hull | None, int], ...] = ()

    @classmethod
    def exactly(cls, values: Array, radius: Array | None = None) -> Rows:
        """Return the sets that hold these vectors ``(E, W)``, up to a radius."""
        return cls(values, np.zeros((*values.shape, 0)), np.zeros(values.shape) if radius is None else radius)

    def parts(self) -> list[tuple[Hull | None, Array]]:
        """Return each hull with its columns, and None with the columns of free symbols."""
        ends = np.cumsum([count for _, count in self.symbols])
        return [
            (hull, self.columns[..., end - count : end]) for (hull, count), end in zip(self.symbols, ends, strict=True)
        ]

    def reach(self) -> Array:
        """Bound how far a coordinate lies from its centre, with symbols at their largest size."""
        total = self.radius
        for hull, columns in self.parts():
            sizes = np.abs(columns)
            total = total + sum_above(sizes if hull is None else sizes * hull.size, -1)
        return np.asarray(upper(total, len(self.symbols) + 2))

    def largest(self) -> Array:
        """Bound the absolute value of a coordinate."""
        return np.asarray(upper(np.abs(self.centre) + self.reach(), 2))

    def deviations(self) -> tuple[Array, Array]:
        """Bound how far a coordinate can lie below its centre, and above it; tighter than :meth:`reach`."""
        below, above, sizes = self.radius, self.radius, np.abs(self.radius)
        for hull, columns in self.parts():
            if hull is None:
                most = sum_above(np.abs(columns), -1)
                least = -most
            else:
                least, most = hull.range_of(columns)
            below, above = below - least, above + most
            sizes = sizes + np.abs(least) + np.abs(most)
        slack = upper(gamma(len(self.symbols) + 2) * sizes, len(self.symbols) + 4)
        return below + slack, above + slack

    def from_attention(self) -> Array:
        """Bound the part of the deviation below the centre that attention's symbols make directly."""
        below = np.zeros(self.centre.shape)
        for hull, columns in self.parts():
            if hull is not None:
                below = below - hull.range_of(columns)[0]
        return below

    def widened(self, by: Array) -> Rows:
        """Return the sets with ``by (E, W)`` added to their radii."""
        return replace(self, radius=np.asarray(upper(self.radius + by, 2)))

    def absorbed(self) -> Rows:
        """Return the same sets with no radius: each coordinate's becomes a symbol, which later layers share."""
        count = self.centre.shape[1]
        own = np.zeros((*self.centre.shape, count))
        own[:, np.arange(count), np.arange(count)] = self.radius
        columns = np.concatenate((self.columns, own), -1)
        return Rows(self.centre, columns, np.zeros(self.centre.shape), (*self.symbols, (None, count)))

    def reduced(self, most: int) -> Rows:
        """Return larger sets with at most ``most`` free symbols: the smallest columns become a radius."""
        free = [columns for hull, columns in self.parts() if hull is None]
        if sum(columns.shape[-1] for columns in free) <= most:
            return self
        noise = np.concatenate(free, -1)
        order = np.argsort(-np.abs(noise).sum(1), 1, kind="stable")
        noise = np.take_along_axis(noise, order[:, None, :], 2)
        hulls = [(hull, columns) for hull, columns in self.parts() if hull is not None]
        return Rows(
            self.centre,
            np.concatenate([*(columns for _, columns in hulls), noise[..., :most]], -1),
            np.asarray(upper(self.radius + sum_above(np.abs(noise[..., most:]), -1), 2)),
            (*((hull, columns.shape[-1]) for hull, columns in hulls), (None, most)),
        )

    def joined(self, other: Rows, arithmetic: Arithmetic) -> Rows:
        """Add sets that share no symbol."""
        columns = np.concatenate((self.columns, other.columns), -1)
        both = Rows(self.centre + other.centre, columns, self.radius, self.symbols + other.symbols)
        return _rounded(both.widened(other.radius), arithmetic)

    def followed_by(self, later: Rows, arithmetic: Arithmetic) -> Rows:
        """Add sets whose symbols are these and more."""
        columns = later.columns.copy()
        columns[..., : self.columns.shape[-1]] += self.columns
        both = Rows(self.centre + later.centre, columns, self.radius, later.symbols)
        # A column may have cancelled; what its rounding was relative to are the columns before.
        own = 2 * UNIT * (self.largest() + later.largest())
        return _rounded(both.widened(later.radius).widened(own), arithmetic)


def _rounded(rows: Rows, arithmetic: Arithmetic) -> Rows:
    sizes = rows.largest()
    added = 2 * arithmetic.unit * sizes + arithmetic.tiny
    return replace(rows, radius=arithmetic.checked(upper(rows.radius + added, 4), sizes))


def linear(
    rows: Rows, weight: Array, bias: Array, arithmetic: Arithmetic, sizes: tuple[Array, Array] | None = None
) -> Rows:
    """Apply ``weight (K, W)`` or ``(E, K, W)`` and a bias; ``sizes`` bounds what each is computed from, if given."""
    terms = weight.shape[-1]
    centre = ordered_product(weight, rows.centre[..., None])[..., 0] + bias
    inside = rows.largest()
    of_weights, of_bias = (np.abs(weight), np.abs(bias)) if sizes is None else sizes
    total = upper(ordered_product(of_weights, inside[..., None])[..., 0] + of_bias, terms + 4)
    lost = upper(gamma(terms + 4, arithmetic.unit) * total, 4)
    underflow = 2 * (terms + 2) * arithmetic.tiny * (1 + inside.max(-1, keepdims=True) + of_weights.max(-1))
    radius = arithmetic.checked(upper(lost + underflow, 4), total)
    columns, symbols = ordered_product(weight, rows.columns), rows.symbols
    if rows.radius.any():  # as if it had been absorbed before, without the products with zeros
        columns = np.concatenate((columns, weight * rows.radius[..., None, :]), -1)
        symbols = (*symbols, (None, terms))
    return Rows(centre, columns, radius, symbols)


def normed(rows: Rows, weight: Array, bias: Array, eps: float, arithmetic: Arithmetic) -> Rows:
    """Apply a layer norm to sets without a radius.

    With ``y`` the vector less its mean, ``y = y₀ + η`` and ``t = y₀·η/n``, the variance (with eps) is
    ``s = s₀ + 2t + |η|²/n``, and ``y/√s`` is wanted.  For every s* > 0 and ``β = s*^(−3/2)``, convexity gives

    - ``1/√s + βt ≥ 3/(2√s*) − β(s₀ + |η|²/n)/2``: the tangent at s*;
    - ``1/√s + βt ≤ 1/√(s₀ + 2t + t²/v₀) + βt`` with ``v₀ = |y₀|²/n``, because η has at least its part along y₀; this is
      convex in t as long as that part does not reach zero, hence at most its value at one end of the range of t.

    So ``1/√s = μ − βt ± h`` and ``y/√s = μ y₀ + (μ η − β t y₀) ± (|η| β |t| + |y| h)``: a linear map and a remainder.
    """
    if rows.radius.any():
        raise ValueError("rows must have no radius; take rows.absorbed()")
    width, unit = rows.centre.shape[1], arithmetic.unit
    sizes = rows.largest()
    lost = upper(gamma(width + 4) * (sizes + sum_above(sizes, 1)[:, None] / width), 6)  # by taking the mean away
    centre, columns = _without_mean(rows.centre), _without_mean(rows.columns)
    around = Rows(np.zeros(centre.shape), columns, lost, rows.symbols)
    reach, side = around.reach(), np.maximum(*around.deviations())
    share = centre / width
    along = ordered_product(share[:, None, :], columns)
    lost_along = sum_above(np.abs(share) * lost, 1) + gamma(width + 4) * sum_above(np.abs(share) * reach, 1)
    form = Rows(np.zeros((len(centre), 1)), along, np.asarray(upper(lost_along, 4))[:, None], rows.symbols)
    below, above = (part[:, 0] for part in form.deviations())
    variance = ordered_sum(centre**2, 1) / width
    square = upper(sum_above(side**2, 1) / width, 4)
    beta, middle, half, least = _reciprocal_root(variance, eps, below, above, square, width)

    linear_columns = middle[:, None, None] * columns - (beta[:, None] * centre)[..., None] * along
    moved = (beta[:, None] * np.abs(centre)) * np.asarray(upper(sum_above(np.abs(share) * reach, 1), 2))[:, None]
    own = gamma(width + 10) * (np.abs(middle)[:, None] * reach + moved) + np.abs(middle)[:, None] * lost
    own = own + beta[:, None] * np.abs(centre) * upper(sum_above(np.abs(share) * lost, 1), 2)[:, None]
    size = np.abs(centre) + side
    remainder = side * (beta * np.maximum(np.abs(below), np.abs(above)))[:, None] + size * half[:, None]
    # The model's own rounding: of the mean, of the variance by any of the usual ways, of the reciprocal root, and of
    # what follows.  Two passes, Welford's updates and the mean of squares less the squared mean all stay within this.
    root = upper(1 / np.sqrt(least), 4)
    normal = np.minimum(upper(size * root[:, None], 4), upper(np.sqrt(width), 4))
    several = gamma(width + 6, unit)
    of_variance = upper((4 * several * sum_above(sizes**2, 1) / width + width * arithmetic.tiny) / least, 8)
    of_variance = np.where(of_variance < 0.25, of_variance, np.inf)
    of_mean = 2 * several * sum_above(sizes, 1) / width + width * arithmetic.tiny
    rounding = (of_mean[:, None] + 8 * unit * sizes) * root[:, None]
    rounding = rounding + (normal + rounding) * (of_variance[:, None] + 8 * unit)
    scale = np.abs(weight)
    radius = scale * (remainder + own + rounding) + 4 * arithmetic.tiny * (1 + scale) * (1 + root[:, None])
    after = Rows(middle[:, None] * centre, linear_columns, np.zeros(centre.shape), rows.symbols).largest()
    radius = radius + 4 * unit * (scale * (normal + after) + np.abs(bias))
    out = Rows(
        middle[:, None] * centre * weight + bias,
        linear_columns * weight[:, None],
        np.asarray(upper(radius, 64)),
        rows.symbols,
    )
    largest = np.maximum(sum_above(sizes**2, 1)[:, None], scale * (normal + rounding) + np.abs(bias))
    return replace(out, radius=arithmetic.checked(out.radius, largest))


def _without_mean(values: Array) -> Array:
    return np.asarray(values - np.expand_dims(ordered_sum(values, 1) / values.shape[1], 1))


def _reciprocal_root(
    variance: Array, eps: float, below: Array, above: Array, square: Array, width: int
) -> tuple[Array, Array, Array, Array]:
    """Return β, μ and h with ``1/√s = μ − βt ± h``, and the least s; t runs from ``−below`` to ``above``."""
    slack = 4 * gamma(width + 8)
    low, high = variance * (1 - slack) + eps * (1 - 4 * UNIT), upper(variance * (1 + slack) + eps, 4)

    def along(form: Array) -> Array:
        """Bound s from below where t has this value: |η|² is at least the square of its part along y₀."""
        square_along = form**2 / upper(variance * (1 + slack), 4)
        return np.asarray(low + 2 * form + square_along - 32 * UNIT * (low + 2 * np.abs(form) + square_along))

    ends = along(-below), along(above)
    nearest = np.maximum(np.sqrt(variance * (1 - slack)) * (1 - 4 * UNIT) - upper(np.sqrt(square), 2), 0)
    # There 1/√along is convex in t, and rises towards −below.
    ahead = variance * (1 - slack) - below
    has_tangent = (ahead > 0) & (ahead**2 > 2 * eps * variance) & (ends[0] > 0)
    least = nearest**2 * (1 - 8 * UNIT) + eps * (1 - 4 * UNIT)
    least = np.where(has_tangent, np.maximum(least, ends[0]), least) * (1 - 4 * UNIT)
    most = upper(high + 2 * np.abs(above) + square, 8)
    most = np.minimum(most, high + 2 * above + square + 16 * UNIT * most)
    most = np.maximum(most, least)
    touching = np.sqrt(least) * np.sqrt(most)
    beta = 1 / (touching * np.sqrt(touching))
    # Without a tangent, the reciprocal root is bounded by its least and largest value alone.
    beta = np.where(has_tangent, beta, 0.0)
    sizes = 1.5 / np.sqrt(touching) + beta * (most + high + square + np.abs(below) + np.abs(above)) + 1 / np.sqrt(least)
    bottom = 1.5 / np.sqrt(touching) - 0.5 * beta * (high + square) - 64 * UNIT * sizes
    at_least = 1 / np.sqrt(most) - beta * below - 64 * UNIT * sizes
    bottom = np.where(has_tangent, np.maximum(bottom, at_least), at_least)
    first, last = (1 / np.sqrt(np.where(has_tangent, end, 1.0)) for end in ends)
    highest = np.maximum(first - beta * below, last + beta * above) + 64 * UNIT * (sizes + first + last)
    top = 1 / np.sqrt(least) + beta * above + 64 * UNIT * sizes
    top = np.where(has_tangent, np.minimum(top, highest), top)
    half = upper(0.5 * (top - bottom) + 8 * UNIT * (np.abs(top) + np.abs(bottom)), 4)
    return beta, 0.5 * (top + bottom), np.asarray(half), least


def gelu(rows: Rows, arithmetic: Arithmetic) -> Rows:
    """Apply GELU: a chord for every coordinate, and the largest distance from it on the interval.

    The interval is cut into pieces; on each, ``f(x) − αx`` is its value in the middle, its slope there, and a remainder
    of at most half the second derivative times the square of the half-width.
    """
    below, above = rows.deviations()
    outward = 4 * UNIT * (np.abs(rows.centre) + np.abs(below) + np.abs(above))
    low, high = rows.centre - below - outward, rows.centre + above + outward
    middle, wide = 0.5 * (low + high), high - low
    at_ends, slopes = _gelu(np.stack((low, high, middle)))
    chord = wide > 1e-3
    slope = np.where(chord, (at_ends[1] - at_ends[0]) / np.where(chord, wide, 1.0), slopes[2])
    half = upper(wide / (2 * _PIECES) + 8 * UNIT * (np.abs(low) + np.abs(high)), 4)
    steps = (np.arange(_PIECES) + 0.5) / _PIECES
    points = low + wide * steps[:, None, None]
    values, tangents = _gelu(points)
    values, tilt = values - slope * points, np.abs(tangents - slope) * half
    error = 8 * _FUNCTION_ERROR * (1 + np.abs(points)) * (1 + np.abs(slope)) * (1 + half)
    top = (values + tilt + 0.5 * _CURVATURE[1] * half**2 + error).max(0)
    bottom = (values - tilt - 0.5 * _CURVATURE[0] * half**2 - error).min(0)
    centre = slope * rows.centre + 0.5 * (top + bottom)
    sizes, largest = np.maximum(np.abs(low), np.abs(high)), rows.largest()
    radius = np.abs(slope) * rows.radius + 0.5 * (top - bottom) + 8 * UNIT * (np.abs(slope) * largest + np.abs(centre))
    radius = radius + 8 * arithmetic.unit * sizes + 2 * arithmetic.tiny
    radius = arithmetic.checked(upper(radius, 8), sizes)
    return Rows(centre, slope[..., None] * rows.columns, radius, rows.symbols)


def _gelu(values: Array) -> tuple[Array, Array]:
    """Return GELU and its derivative, as near as a library's functions are."""
    x = torch.from_numpy(np.ascontiguousarray(values))
    cumulative = 0.5 * (1 + torch.erf(x * 0.5**0.5))
    density = torch.exp(-0.5 * x * x) * (0.5 / np.pi) ** 0.5
    return (x * cumulative).numpy(), (cumulative + x * density).numpy()
