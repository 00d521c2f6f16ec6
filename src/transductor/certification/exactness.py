"""Whether the scan of a head never rounds, in whatever order its products are taken."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from transductor.certification.ball_arithmetic import Array
from transductor.certification.subjects import Subject

_MOST_PRODUCTS: Final = 4_000_000  # entries of all elements of a semigroup of matrices
_LARGEST_ENTRY: Final = 1024


@dataclass(frozen=True)
class Exactness:
    """Why a scan never rounds, and the largest entry of any product of its letters."""

    reason: str
    largest: int


def exactness(subject: Subject) -> Exactness | None:
    """Return why the scan of a head never rounds, whatever the order of its products; None where it does or may."""
    table, initial = subject.table, subject.initial
    sizes = np.abs(initial.astype(np.float64))
    if ((sizes < 2.0**-100) & (initial != 0)).any() or sizes.sum() > subject.range:
        return None  # may be flushed to zero, or sums may overflow
    if not subject.streamed:
        return None  # single steps multiply factors of the table, which may round
    if np.isin(table, (-1, 0, 1)).all():
        entries = np.abs(table)
        if (entries.sum(2) <= 1).all():
            reason = "every row of every matrix has at most one entry, 1 or -1: numbers are moved, never added"
            return Exactness(reason, 1)
        if (entries.sum(1) <= 1).all() and _sum_in_units(initial) <= 2**subject.mantissa:
            reason = "every column of every matrix has at most one entry, 1 or -1: sums of the initial state are exact"
            return Exactness(reason, 1)
    largest = _largest_of_semigroup(subject)
    if largest is not None and subject.dim * largest**2 * max(1, _sum_in_units(initial)) <= 2**subject.mantissa:
        reason = f"the letters generate finitely many integer matrices, with entries up to {largest}: sums are exact"
        return Exactness(reason, largest)
    return None


def analysed(subject: Subject) -> Subject:
    """Return what a statement can be about: of a stream with attention only the head, unless the head is exact."""
    if subject.attention is None or exactness(subject) is not None:
        return subject
    return head_alone(subject)


def head_alone(subject: Subject) -> Subject:
    """Return the numbers of the head without the stream that reads it."""
    return replace(subject, stream={}, attention=None)


def dyadic_integers(values: Array) -> tuple[Array, int]:
    """Return floats as integers over one power of two: ``values = integers / 2^k``, and k ≥ 0."""
    ratios = [float(value).as_integer_ratio() for value in values.reshape(-1)]
    scale = max((bottom for _, bottom in ratios), default=1)
    # Made with a None that is dropped again, so that numpy keeps integers of any size as objects.
    out = np.array([top * (scale // bottom) for top, bottom in ratios] + [None], dtype=object)[:-1]
    return out.reshape(values.shape), scale.bit_length() - 1


def _sum_in_units(values: Array) -> int:
    """Sum absolute values in units of the largest power of two that divides them all."""
    integers = dyadic_integers(np.abs(values))[0]
    common = int(np.bitwise_or.reduce(integers))
    return int(integers.sum()) // (common & -common) if common else 0


def _largest_of_semigroup(subject: Subject) -> int | None:
    """Return the largest entry of all products of letters, if they are integers and few; None otherwise."""
    if not (np.abs(subject.table) <= _LARGEST_ENTRY).all() or (subject.table != np.rint(subject.table)).any():
        return None
    letters = subject.table.astype(np.int64)
    most = max(1, _MOST_PRODUCTS // subject.dim**2)
    known = {matrix.tobytes() for matrix in letters}
    level = list(letters)
    largest = int(np.abs(letters).max())
    while level:
        longer = []
        for matrix in level:
            for product in letters @ matrix:
                key = product.tobytes()
                if key not in known:
                    known.add(key)
                    longer.append(product)
                    largest = max(largest, int(np.abs(product).max()))
            if len(known) > most or largest > _LARGEST_ENTRY:
                return None
        level = longer
    return largest
