"""The weights of an automaton: rationals, floats, truth values, costs or log-probabilities; each kind is a semiring."""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable
from fractions import Fraction
from numbers import Rational
from typing import Any, Final, final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class Weights(ABC):
    """A semiring over numpy arrays.  Subclasses are final and have no state: each is used through one object."""

    name: str
    zero: Any
    one: Any
    plus: Callable[[Any, Any], Any]
    """The sum of two arrays or weights, elementwise."""
    times: Callable[[Any, Any], Any]
    """The product of two arrays or weights, elementwise."""
    exact: bool
    """Whether results are free of rounding."""
    field: bool = False
    """Whether there is subtraction and division: minimal representations and equivalence need both."""

    @abstractmethod
    def number(self, value: object) -> Any:
        """Return one weight, or raise a ValueError that says what is wrong with it."""

    @abstractmethod
    def array(self, values: object) -> Array:
        """Return weights of any shape, checked one by one, in the dtype of this semiring."""

    @abstractmethod
    def product(self, left: Array, right: Array) -> Array:
        """Return the matrix product of ``(..., N, K)`` and ``(K, M)`` or ``(K)``."""

    @abstractmethod
    def parse(self, text: str) -> Any:
        """Read a weight as it is written in a file."""

    def written(self, weight: Any) -> str:
        """Write the weight as text that :meth:`parse` reads back to the same weight."""
        return repr(float(weight))

    def zeros(self, *shape: int) -> Array:
        """Return an array of zeros."""
        return np.full(shape, self.zero, dtype=self.array([]).dtype)

    def eye(self, dim: int) -> Array:
        """Return the identity matrix."""
        eye = self.zeros(dim, dim)
        for i in range(dim):
            eye[i, i] = self.one
        return eye

    def is_zero(self, values: Array) -> npt.NDArray[np.bool_]:
        """Return where an array is zero."""
        return np.asarray(values == self.zero, dtype=bool)

    def kronecker(self, left: Array, right: Array) -> Array:
        """Return the Kronecker product of two vectors or of two matrices."""
        if left.ndim == 1:
            return np.asarray(self.times(left[:, None], right[None, :])).reshape(-1)
        blocks = self.times(left[:, None, :, None], right[None, :, None, :])
        return np.asarray(blocks).reshape(left.shape[0] * right.shape[0], left.shape[1] * right.shape[1])

    def __repr__(self) -> str:
        return f"<weights {self.name!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return weights_named, (self.name,)


_SMALL: Final = 200  # the product of the sizes of two arrays, up to which looking for zeros takes longer


def _refused(name: str, value: object, wanted: str) -> ValueError:
    return ValueError(f"a weight of {name!r} must be {wanted}; got {value!r}")


@final
class _Rationals(Weights):
    name, zero, one, exact, field = "rational", Fraction(0), Fraction(1), True, True
    plus, times = staticmethod(operator.add), staticmethod(operator.mul)

    def number(self, value: object) -> Fraction:
        if isinstance(value, Fraction):
            return value
        if isinstance(value, (int, np.integer, np.bool_)):
            return Fraction(int(value))
        if isinstance(value, Rational):
            return Fraction(value)
        if isinstance(value, (float, np.floating)) and math.isfinite(value):
            return Fraction(float(value))  # the float itself, not what its shortest decimal says
        if isinstance(value, str):
            return self.parse(value)
        raise _refused(self.name, value, "a rational number: an integer, a Fraction, a finite float or text like '2/3'")

    def array(self, values: object) -> Array:
        objects = np.asarray(values, dtype=object)
        listed = objects.reshape(-1).tolist()
        # Most weights of a large machine are the integers 0 and 1: each is made once.
        integers = {value: Fraction(value) for value in {value for value in listed if type(value) is int}}
        array = np.empty(len(listed), dtype=object)
        array[:] = [integers[value] if type(value) is int else self.number(value) for value in listed]
        return array.reshape(objects.shape)

    def is_zero(self, values: Array) -> npt.NDArray[np.bool_]:
        return ~np.asarray(values).astype(bool)

    def product(self, left: Array, right: Array) -> Array:
        if 0 < left.size * right.size <= _SMALL:
            return np.asarray(left @ right, dtype=object)
        # Most entries of a large machine are zero, and numpy would multiply and add every one of these fractions.
        rows = left.reshape(math.prod(left.shape[:-1]), left.shape[-1])
        columns = right[:, None] if right.ndim == 1 else right
        entries: list[list[tuple[int, Fraction]]] = [[] for _ in columns]
        for place, column in np.argwhere(columns).tolist():
            entries[place].append((column, columns[place, column]))
        result = self.zeros(len(rows), columns.shape[1])
        for row, place in np.argwhere(rows).tolist():
            for column, entry in entries[place]:
                result[row, column] += rows[row, place] * entry
        return result.reshape(*left.shape[:-1], *right.shape[1:])

    def parse(self, text: str) -> Fraction:
        try:
            return Fraction(text.strip())
        except (ValueError, ZeroDivisionError):
            raise _refused(self.name, text, "a rational number such as 3, -2/5 or 0.25") from None

    def written(self, weight: Any) -> str:
        return str(weight)


class _Floats(Weights):
    """Numbers in float64; ``infinity`` is the infinite one that is allowed, if any."""

    infinity: float | None = None
    exact = False

    def number(self, value: object) -> float:
        if isinstance(value, str):
            return self.parse(value)
        try:
            number = float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError):
            raise _refused(self.name, value, "a real number") from None
        if math.isfinite(number) or number == self.infinity:
            return number
        raise _refused(self.name, value, "finite" if self.infinity is None else f"finite, or {self.infinity}")

    def array(self, values: object) -> Array:
        try:
            array = np.array(values, dtype=np.float64)
        except (TypeError, ValueError):
            array = np.vectorize(self.number, otypes=[np.float64])(np.asarray(values, dtype=object))
        bad = ~np.isfinite(array)
        if self.infinity is not None:
            bad &= array != self.infinity
        if bad.any():
            self.number(float(array[bad][0]))  # raises
        return array

    def parse(self, text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            try:
                number = float(Fraction(text.strip()))
            except (ValueError, ZeroDivisionError, OverflowError):
                raise _refused(self.name, text, "a number") from None
        return self.number(number)


@final
class _Reals(_Floats):
    name, zero, one, field = "float", 0.0, 1.0, True
    plus, times = staticmethod(operator.add), staticmethod(operator.mul)

    def product(self, left: Array, right: Array) -> Array:
        return np.asarray(left @ right)


class _Costs(_Floats):
    """Numbers that are added where others are multiplied; ``plus`` is a numpy function with a ``reduce``."""

    times = staticmethod(operator.add)

    def product(self, left: Array, right: Array) -> Array:
        columns = right[:, None] if right.ndim == 1 else right
        terms = left[..., :, :, None] + columns
        total = self.plus.reduce(terms, axis=-2, initial=self.zero)  # type: ignore[attr-defined]
        return np.asarray(total[..., 0] if right.ndim == 1 else total)


@final
class _MaxPlus(_Costs):
    name, zero, one, infinity, plus = "max_plus", -math.inf, 0.0, -math.inf, np.maximum


@final
class _MinPlus(_Costs):
    name, zero, one, infinity, plus = "min_plus", math.inf, 0.0, math.inf, np.minimum


@final
class _Logs(_Costs):
    name, zero, one, infinity, plus = "log", -math.inf, 0.0, -math.inf, np.logaddexp


@final
class _Booleans(Weights):
    name, zero, one, exact = "boolean", False, True, True
    plus, times = staticmethod(operator.or_), staticmethod(operator.and_)

    def number(self, value: object) -> bool:
        if isinstance(value, str):
            return self.parse(value)
        if isinstance(value, (bool, int, float, np.bool_, np.integer, np.floating, Fraction)) and value in (0, 1):
            return bool(value)
        raise _refused(self.name, value, "True or False (1 or 0)")

    def array(self, values: object) -> Array:
        array = np.asarray(values)
        if array.dtype == np.bool_:
            return array.copy()
        return np.vectorize(self.number, otypes=[np.bool_])(array) if array.size else np.zeros(array.shape, dtype=bool)

    def product(self, left: Array, right: Array) -> Array:
        return np.asarray(left.astype(np.float32) @ right.astype(np.float32) > 0)

    def parse(self, text: str) -> bool:
        values = {"1": True, "true": True, "0": False, "false": False}
        if text.strip().lower() not in values:
            raise _refused(self.name, text, "1, 0, true or false")
        return values[text.strip().lower()]

    def written(self, weight: Any) -> str:
        return "1" if weight else "0"


WEIGHTS: Final[dict[str, Weights]] = {
    weights.name: weights for weights in (_Rationals(), _Reals(), _Booleans(), _MaxPlus(), _MinPlus(), _Logs())
}


def weights_named(name: str | Weights) -> Weights:
    """Return the semiring of that name; a semiring is returned as it is."""
    if isinstance(name, Weights):
        return name
    if name not in WEIGHTS:
        raise ValueError(f"weights must be one of {', '.join(map(repr, WEIGHTS))}; got {name!r}")
    return WEIGHTS[name]
