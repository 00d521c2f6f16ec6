"""Exact real numbers: sums of cosines of rational angles, with the four operations and a test for equality.

A number lies in the field of ``c = 2 cos(2π/n)``: it is a polynomial in c with rational coefficients, reduced by the
minimal polynomial of c.  Characters of real representations lie there, and so do the matrices built from them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from typing import Any, Final, TypeAlias, final

import numpy as np
import numpy.typing as npt

Exact: TypeAlias = npt.NDArray[Any]  # of exact numbers, dtype object
Coefficients: TypeAlias = tuple[Fraction, ...]

_NONE: Final = Fraction(0)


def _trimmed(coefficients: Sequence[Fraction]) -> Coefficients:
    end = len(coefficients)
    while end and not coefficients[end - 1]:
        end -= 1
    return tuple(coefficients[:end])


def _multiplied(left: Coefficients, right: Coefficients) -> list[Fraction]:
    out = [_NONE] * max(0, len(left) + len(right) - 1)
    for i, a in enumerate(left):
        if a:
            for j, b in enumerate(right):
                out[i + j] += a * b
    return out


def _divided(dividend: Sequence[Fraction], divisor: Coefficients) -> tuple[Coefficients, Coefficients]:
    """Return quotient and remainder of polynomials, lowest coefficient first."""
    rest, size = list(dividend), len(divisor)
    quotient = [_NONE] * max(0, len(rest) - size + 1)
    for place in range(len(rest) - size, -1, -1):
        factor = rest[place + size - 1] / divisor[-1]
        if factor:
            quotient[place] = factor
            for i, coefficient in enumerate(divisor):
                rest[place + i] -= factor * coefficient
    return _trimmed(quotient), _trimmed(rest)


@cache
def _cyclotomic(n: int) -> Coefficients:
    """Return the n-th cyclotomic polynomial: what is left of xⁿ − 1 by those of the divisors of n."""
    polynomial: Coefficients = (Fraction(-1), *[_NONE] * (n - 1), Fraction(1))
    for divisor in range(1, n):
        if n % divisor == 0:
            polynomial, _ = _divided(polynomial, _cyclotomic(divisor))
    return polynomial


@cache
def minimal_polynomial(n: int) -> Coefficients:
    """Return the minimal polynomial of 2 cos(2π/n) over the rationals, lowest coefficient first."""
    if n <= 2:
        return (Fraction(-2 if n == 1 else 2), Fraction(1))
    palindrome = _cyclotomic(n)
    degree = len(palindrome) // 2
    # x^m + x^-m is a polynomial in x + 1/x, by the recursion of the cosines.
    powers: list[Coefficients] = [(Fraction(2),), (_NONE, Fraction(1))]
    while len(powers) <= degree:
        shifted = (_NONE, *powers[-1])
        older = (*powers[-2], *[_NONE] * (len(shifted) - len(powers[-2])))
        powers.append(tuple(a - b for a, b in zip(shifted, older, strict=True)))
    out = [_NONE] * (degree + 1)
    for m in range(degree + 1):
        coefficient = palindrome[degree + m] / (2 if m == 0 else 1)
        for place, part in enumerate(powers[m]):
            out[place] += coefficient * part
    return tuple(out)


@final
class RealCyclotomic:
    """A real number of the field of ``2 cos(2π/n)``, exact; it mixes with integers and fractions."""

    __slots__ = ("coefficients", "n")

    def __init__(self, n: int, coefficients: Sequence[int | Fraction]) -> None:
        self.n = n
        polynomial = [Fraction(each) for each in coefficients]
        self.coefficients = _divided(polynomial, minimal_polynomial(n))[1]

    @classmethod
    def cosine(cls, n: int, turns: int) -> RealCyclotomic:
        """Return 2 cos(2π turns / n)."""
        before, now = cls(n, (2,)), cls(n, (0, 1))
        for _ in range(turns % n):
            before, now = now, now * cls(n, (0, 1)) - before
        return before

    def _same(self, other: object) -> RealCyclotomic | None:
        if isinstance(other, RealCyclotomic):
            if other.n != self.n:
                raise ValueError(f"numbers must be of one field; got 2 cos(2π/{self.n}) and 2 cos(2π/{other.n})")
            return other
        return RealCyclotomic(self.n, (Fraction(other),)) if isinstance(other, int | Fraction) else None

    def __add__(self, other: object) -> RealCyclotomic:
        number = self._same(other)
        if number is None:
            return NotImplemented
        short, long = sorted((self.coefficients, number.coefficients), key=len)
        return _of(self.n, _trimmed([a + b for a, b in zip(short, long, strict=False)] + list(long[len(short) :])))

    def __neg__(self) -> RealCyclotomic:
        return _of(self.n, tuple(-each for each in self.coefficients))

    def __sub__(self, other: object) -> RealCyclotomic:
        number = self._same(other)
        return NotImplemented if number is None else self + -number

    def __rsub__(self, other: object) -> RealCyclotomic:
        number = self._same(other)
        return NotImplemented if number is None else number + -self

    def __mul__(self, other: object) -> RealCyclotomic:
        number = self._same(other)
        if number is None:
            return NotImplemented
        product = _multiplied(self.coefficients, number.coefficients)
        if len(product) < len(minimal_polynomial(self.n)):
            return _of(self.n, _trimmed(product))
        return _of(self.n, _divided(product, minimal_polynomial(self.n))[1])

    __radd__, __rmul__ = __add__, __mul__

    def __truediv__(self, other: object) -> RealCyclotomic:
        number = self._same(other)
        return NotImplemented if number is None else self * number._inverse()

    def __rtruediv__(self, other: object) -> RealCyclotomic:
        number = self._same(other)
        return NotImplemented if number is None else number * self._inverse()

    def _inverse(self) -> RealCyclotomic:
        """Return the reciprocal by Euclid's algorithm: the minimal polynomial has no factor in common."""
        if not self:
            raise ZeroDivisionError("a reciprocal of 0 was asked for")
        older, now = minimal_polynomial(self.n), self.coefficients
        factor_older: Coefficients = ()
        factor_now: Coefficients = (Fraction(1),)
        while len(now) > 1:
            quotient, rest = _divided(older, now)
            product = _multiplied(quotient, factor_now)
            size = max(len(product), len(factor_older))
            left = (*factor_older, *[_NONE] * (size - len(factor_older)))
            right = (*product, *[_NONE] * (size - len(product)))
            older, now = now, rest
            factor_older, factor_now = factor_now, _trimmed([a - b for a, b in zip(left, right, strict=True)])
        return RealCyclotomic(self.n, [each / now[0] for each in factor_now])

    def __eq__(self, other: object) -> bool:
        number = self._same(other)
        return NotImplemented if number is None else self.coefficients == number.coefficients

    def __hash__(self) -> int:
        return hash(self.coefficients[0] if len(self.coefficients) == 1 else self.coefficients or 0)

    def __bool__(self) -> bool:
        return bool(self.coefficients)

    def __float__(self) -> float:
        root = 2 * math.cos(2 * math.pi / self.n)
        return float(sum(float(each) * root**power for power, each in enumerate(self.coefficients)))

    def __repr__(self) -> str:
        if len(self.coefficients) <= 1:
            return str(self.coefficients[0] if self.coefficients else 0)
        return f"≈{float(self):.6g}"


def _of(n: int, coefficients: Coefficients) -> RealCyclotomic:
    """Return a number whose coefficients are reduced already."""
    number = object.__new__(RealCyclotomic)
    number.n, number.coefficients = n, coefficients
    return number


def exact_matrix(values: Any) -> Exact:
    """Return an array of exact numbers; anything but integers, fractions and sums of cosines is refused."""
    array = np.array(values, dtype=object)
    for entry in array.flat:
        if isinstance(entry, bool) or not isinstance(entry, int | Fraction | RealCyclotomic):
            raise ValueError(f"entries must be exact numbers; got {entry!r}")
    return array


def echelon(matrix: Exact) -> tuple[Exact, tuple[int, ...]]:
    """Return the reduced echelon form of a matrix of exact numbers, and its pivot columns."""
    rows, pivots, place = matrix.copy(), list[int](), 0
    for column in range(rows.shape[1]):
        chosen = next((row for row in range(place, len(rows)) if rows[row, column]), None)
        if chosen is None:
            continue
        rows[[place, chosen]] = rows[[chosen, place]]
        pivot = rows[place, column]
        rows[place] = [entry * Fraction(1) / pivot for entry in rows[place]]
        for other in range(len(rows)):
            if other != place and rows[other, column]:
                rows[other] = rows[other] - rows[other, column] * rows[place]
        pivots.append(column)
        place += 1
        if place == len(rows):
            break
    return rows, tuple(pivots)


def rank(matrix: Exact) -> int:
    """Return the rank of a matrix of exact numbers."""
    return len(echelon(matrix)[1])
