"""The formats of floating-point numbers, and how far a computed sum of products may be from the true one.

Every operation rounds to nearest.  Numbers below the smallest normal one may be kept (gradual underflow) or taken for
zero (flush to zero), as results and as operands: an absolute term covers both.  Where a number could leave the range of
its format, the bound is infinite.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from transductor.certification.ball_arithmetic import Array, gamma, ordered_product, upper


@dataclass(frozen=True)
class Format:
    """A format of floating-point numbers.

    Attributes:
        name: As torch calls it.
        bits: How many bits a mantissa has.
        lost: The most that underflow can take from one result or operand: the smallest normal number; for float16,
            which hardware never flushes to zero, its smallest number.
        largest: The largest finite number.
    """

    name: str
    bits: int
    lost: float
    largest: float

    @property
    def unit(self) -> float:
        """Half the distance from 1 to the next number: the relative error of one operation."""
        return 2.0**-self.bits

    @property
    def statistics(self) -> Format:
        """The format in which layer norms compute mean and variance: at least float32."""
        return self if self.name == "float64" else FORMATS["float32"]


FORMATS: Final = {
    each.name: each
    for each in (
        Format("float64", 53, 2.0**-1022, (2 - 2.0**-52) * 2.0**1023),
        Format("float32", 24, 2.0**-126, (2 - 2.0**-23) * 2.0**127),
        Format("bfloat16", 8, 2.0**-126, (2 - 2.0**-7) * 2.0**127),
        Format("float16", 11, 2.0**-24, 65504.0),
    )
}


def cast_errors(values: Array, source: Format, target: Format) -> Array:
    """Bound what a cast adds to values of at most these sizes; infinite where they may leave the range."""
    if target.bits >= source.bits and target.largest >= source.largest:
        return np.zeros(values.shape)
    errors = upper(target.unit * values + 2 * target.lost, 3)
    return np.where(values <= target.largest / 4, errors, np.inf)


def linear_errors(
    sizes: Array, weight: Array, bias: Array, form: Format, *, unit: float | None = None, occurs: Array | None = None
) -> Array:
    """Bound the error ``(E, M)`` of ``x @ weight + bias``, computed in any order, fused or not.

    Args:
        sizes: ``(E, K)``: the largest absolute values of x.
        weight: ``(K, M)``.
        bias: ``(M)``.
        form: The format of the computation.
        unit: Replaces the format's relative error of one operation.
        occurs: ``(E, K)``: False where x is exactly 0, so that its products are too and no sum with them rounds.
    """
    finite = np.where(np.isfinite(sizes), sizes, 0.0)
    occurs = np.isfinite(sizes) & (sizes > 0) if occurs is None else occurs
    present, entries = occurs.astype(np.float64), (weight != 0).astype(np.float64)
    large, width = np.abs(weight.astype(np.float64)), weight.shape[0]
    with np.errstate(over="ignore", invalid="ignore"):
        counts = ordered_product(present, entries).astype(np.int64)
        terms = upper(ordered_product(finite, large) + np.abs(bias.astype(np.float64)), width + 2)
        around = ordered_product(present, large) + ordered_product(finite, entries)
        lost = upper(16 * form.lost * (1 + counts + around), 2 * width + 4)
        relative = np.array([gamma(count + 2, form.unit if unit is None else unit) for count in range(width + 1)])
        errors = upper(relative[counts] * terms + lost, 4)
    known = np.isfinite(sizes).all(axis=1, keepdims=True)
    in_range = (terms + lost <= form.largest / 4) & (relative[counts] <= 0.34) & known
    return np.where(in_range, errors, np.inf)
