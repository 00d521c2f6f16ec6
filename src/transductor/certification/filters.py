"""How far a filter's beliefs can be from those of a hidden Markov model, whatever the word.

Hilbert's projective distance ``d(x, y) = log max_i (x_i / y_i) − log min_i (x_i / y_i)`` knows no scale, so dividing by
the sum changes nothing.  By Birkhoff, a positive matrix contracts it by ``τ = tanh(Δ / 4)``, Δ the largest distance of
two of its columns.  If every entry of the filter's matrices is that of the model's up to a factor, a step adds at most
``δ = log (largest factor / smallest factor)``, and so does rounding, because sums of products without a minus lose only
relative precision.  Hence ``e ← τ e + δ``, which stays below ``e_0 + δ / (1 − τ)`` for ever; and a distance of e means
beliefs that differ by at most ``2 tanh(e / 4)`` in the l1 norm.

Where the model has entries 0 the distance may be infinite.  There errors are followed in the l1 norm, in which a step
multiplies them by at most ``2 ‖M‖₁ / (least probability of the letter)``: true up to a length.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, final

import numpy as np
import torch

from transductor.automata import HiddenMarkovModel
from transductor.certification.ball_arithmetic import UNIT, Array, gamma, sum_above, upper
from transductor.checks import check_positive
from transductor.heads import FilterHead

_UNITS: Final = {torch.float32: (2.0**-24, 2.0**-126), torch.float64: (2.0**-53, 2.0**-1022)}
_LONGEST: Final = 10**6  # steps that a horizon is followed for
# The compiled loops divide by the norm only when it leaves this window.
_WINDOW: Final = 2.0**-16


@final
@dataclass(frozen=True)
class FilterCertificate:
    """Beliefs of a filter and of a hidden Markov model, compared over all words.

    Attributes:
        tolerance: What was asked: how far beliefs may differ in the l1 norm.
        horizon: Up to this many letters they differ by at most ``bound``, whatever the letters; None for any number.
        bound: An upper bound, at most ``tolerance`` unless it is for all lengths.
        settled: For all lengths: the bound when the start is forgotten.
        contraction: ``1 − τ``, below; 0 where some letter does not mix.
        step_error: What a step adds: in Hilbert's distance, or in the l1 norm where letters do not mix.
        witness: The letter that adds most, or that stands in the way.
    """

    tolerance: float
    horizon: int | None
    bound: float
    settled: float
    contraction: float
    step_error: float
    witness: int

    @property
    def holds(self) -> bool:
        """Whether beliefs are within the tolerance at every length."""
        return self.horizon is None and self.bound <= self.tolerance

    def __str__(self) -> str:
        where = "at every length" if self.horizon is None else f"up to {self.horizon} letters"
        verdict = "holds" if self.holds else "does not hold for all lengths"
        return f"beliefs differ by at most {self.bound:.2e} {where}; {self.tolerance:.1e} {verdict}"


def certify_filter(head: FilterHead, *, against: HiddenMarkovModel, tolerance: float = 1e-3) -> FilterCertificate:
    """Bound the l1 distance between beliefs of a filter and of a hidden Markov model, over all words it can show.

    State i of the filter is state i of the model, and token v its letter v.  The model's numbers are exact; the
    filter's are those of its table, and its steps round in its own precision, one step after the other: in a stream,
    and in the compiled loops of a CPU.  (Scans in chunks round their products too, which the statement leaves out.)

    Args:
        head: A filter driven by tokens, in float32 or float64.
        against: The model.
        tolerance: The largest distance that is of use, between 0 and 2.
    """
    if not isinstance(head, FilterHead) or head.transitions.vocab_size is None:
        raise ValueError("head must be a FilterHead driven by tokens")
    if not 0 < tolerance < 2:
        raise ValueError(f"tolerance must lie between 0 and 2; got {tolerance!r}")
    with torch.no_grad():
        table, start = head.transitions.table(), head.initial_state()[:-1]
    if table.dtype not in _UNITS:
        raise ValueError(f"head must be in float32 or float64; got {table.dtype}")
    mine, begun = (values.double().cpu().numpy() for values in (table, start))
    theirs = against.matrices()
    if mine.shape != theirs.shape:
        raise ValueError(f"head must have a table of shape {theirs.shape}, like the model; got {mine.shape}")
    if not (np.isfinite(mine).all() and (mine >= 0).all() and mine.max() < 2.0**100):
        raise ValueError("head must have matrices of numbers that are at least 0 and below 2¹⁰⁰")
    unit, smallest = _UNITS[table.dtype]
    if (theirs > 0).all() and (mine > 0).all() and (against.start > 0).all() and (begun > 0).all():
        certificate = _at_every_length(mine, begun, theirs, against.start, unit, smallest, tolerance)
        if certificate is not None:
            return certificate
    return _up_to_a_length(mine, begun, theirs, against.start, unit, smallest, tolerance)


def _log_above(values: Array) -> Array:
    """Return upper bounds of logs of positive numbers that were computed with at most four roundings."""
    logs = np.log(values)
    return np.asarray(logs + 16 * UNIT * (1 + np.abs(logs)))


def _log_below(values: Array) -> Array:
    logs = np.log(values)
    return np.asarray(logs - 16 * UNIT * (1 + np.abs(logs)))


def _spread(ratios: Array, axes: tuple[int, ...]) -> Array:
    """Bound ``log max − log min`` of positive numbers along axes."""
    return np.asarray(upper(_log_above(ratios.max(axes)) - _log_below(ratios.min(axes)), 2))


def _projective_diameters(matrices: Array) -> Array:
    """Bound the largest Hilbert distance of two columns of positive matrices ``(V, D, D)``."""
    logs = np.log(matrices)
    gaps = logs[:, :, :, None] - logs[:, :, None, :]  # (V, to, from, from')
    widths = (gaps.max(1) - gaps.min(1)).max((1, 2))
    return np.asarray(widths + 64 * UNIT * (1 + np.abs(logs).max((1, 2))))


def _at_every_length(
    mine: Array, begun: Array, theirs: Array, start: Array, unit: float, smallest: float, tolerance: float
) -> FilterCertificate | None:
    dim = len(start)
    # What underflows loses at most `smallest`: in a sum, which is at least the least entry times the scale, or in a
    # quotient, which is at least the least entry over D times the largest.
    lost = upper(4 * dim * smallest / mine.min() * (1 / _WINDOW + float(mine.max())), 8)
    relative = gamma(dim + 4, unit) + lost
    if not relative < 0.5:
        return None
    rounding = upper(float(_log_above(np.array(1 + relative)) - _log_below(np.array(1 - relative))), 2)
    steps = upper(_spread(mine / theirs, (1, 2)) + rounding, 1)
    began = upper(float(_spread(begun / start, (0,))) + rounding, 1)
    widths = np.minimum(_projective_diameters(theirs), _projective_diameters(mine))
    # 1 − tanh(Δ/4) = 2 / (exp(Δ/2) + 1), without cancellation.
    with np.errstate(over="ignore"):
        gaps = 2 / (np.exp(widths / 2) * (1 + 32 * UNIT * (1 + widths)) + 1) * (1 - 8 * UNIT)
    gap, step = float(gaps.min()), float(steps.max())
    if gap < 2.0**-900:
        return None
    settled = upper(step / gap, 2)
    bound = min(_l1(upper(began + settled, 1)), 2.0)
    return FilterCertificate(tolerance, None, bound, min(_l1(settled), 2.0), gap, step, int(steps.argmax()))


def _l1(distance: float) -> float:
    """Bound the l1 distance of two distributions by Hilbert's."""
    return upper(2 * math.tanh(distance / 4), 8) if distance < 1e300 else 2.0


def _up_to_a_length(
    mine: Array, begun: Array, theirs: Array, start: Array, unit: float, smallest: float, tolerance: float
) -> FilterCertificate:
    dim = len(start)
    relative = gamma(dim + 4, unit)
    differences = sum_above(np.abs(mine - theirs) + 4 * UNIT * theirs, 1).max(1)
    norms, least = upper(theirs.sum(1).max(1), dim), _least_probabilities(theirs, start)
    worst = int(least.argmin())
    error = upper(float(np.abs(begun - start).sum()) + 4 * dim * unit, 2 * dim)
    floor = float((least - differences - norms * tolerance).min())  # of the filter's own sums
    if floor <= 0 or not relative < 0.5:
        return FilterCertificate(tolerance, 0, error, 2.0, 0.0, math.inf, worst)
    # ‖a/|a| − b/|b|‖ ≤ 2 ‖a − b‖ / |b|, and rounding adds its share of a.
    grown = upper(2 * norms / least, 4)
    lost = 4 * dim**2 * smallest / (floor * _WINDOW)
    added = upper(2 * differences * (1 + 2 * relative) / least + 4 * relative + lost, 8)
    worst = int(added.argmax())
    steps = 0
    while steps < _LONGEST:
        after = upper(float((grown * error + added).max()), 4)
        if not after <= tolerance:
            break
        error, steps = after, steps + 1
    horizon = steps if error <= tolerance else 0
    return FilterCertificate(tolerance, horizon, error, 2.0, 0.0, float(added[worst]), worst)


def _least_probabilities(matrices: Array, start: Array) -> Array:
    """Bound from below how likely each letter is ``(V)`` at the start and after any letters.

    A belief after a letter is a mixture of the columns of its matrix, each divided by its sum.
    """
    sums = matrices.sum(1)  # (V, from)
    columns = [matrix[:, weights > 0] / weights[weights > 0] for matrix, weights in zip(matrices, sums, strict=True)]
    beliefs = np.column_stack((start, *columns))
    least = (sums @ beliefs).min(1)
    return np.asarray(np.maximum(least * (1 - 8 * (len(start) + 2) * UNIT), 0.0))


@torch.no_grad()
def worst_word(
    head: FilterHead, model: HiddenMarkovModel, length: int, *, beam: int = 32
) -> tuple[tuple[int, ...], float]:
    """Search for a word on which beliefs differ most: the letters, and the l1 distance after them (a lower bound).

    Of all words that go on by one letter, the ``beam`` worst are kept; the model is computed in float64.
    """
    check_positive("length", length)
    table, theirs = head.transitions.table(), model.matrices()
    dim = len(model.start)
    mine, right, words = head.initial_state()[:dim][None], model.start[None], np.zeros((1, 0), np.int64)
    worst: tuple[tuple[int, ...], float] = ((), 0.0)
    for _ in range(length):
        weights = torch.einsum("vij,nj->nvi", table, mine).reshape(-1, dim)
        exact = np.einsum("vij,nj->nvi", theirs, right).reshape(-1, dim)
        letters = np.tile(np.arange(len(theirs)), len(words))
        possible = exact.sum(1) > 0
        weights, exact, letters = weights[torch.from_numpy(possible)], exact[possible], letters[possible]
        grown = np.column_stack((np.repeat(words, len(theirs), 0)[possible], letters))
        weights, exact = weights / weights.sum(1, keepdim=True), exact / exact.sum(1, keepdims=True)
        distances = np.abs(weights.double().numpy() - exact).sum(1)
        order = np.argsort(-distances)[:beam]
        mine, right, words = weights[torch.from_numpy(order)], exact[order], grown[order]
        if len(order) and distances[order[0]] > worst[1]:
            worst = tuple(words[0].tolist()), float(distances[order[0]])
    return worst
