"""The value of a numeral: the only task whose labels are real numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transductor.automata.weighted import WeightedAutomaton
from transductor.checks import one_of
from transductor.configuration import configuration
from transductor.tasks.base import Task
from transductor.tasks.sampling import check_at_least_two, coins, repeated


@final
@configuration
@dataclass(frozen=True)
class BaseValue(Task):
    """Tokens are digits; the label at t is the value of the first t digits divided by ``base**t``, in [0, 1).

    Float64 rounds it once, so a long row of the largest digit has the value 1, as 0.999… has.  No finite machine gives
    the truth; :meth:`series` is the weighted automaton that does.

    Args:
        base: Number of digits, at least two.
        most_significant_first: Whether the numeral is written as people do (the label is then 0.d₁d₂…dₜ), or from its
            last digit.
        normalised: Whether labels are divided by ``base**t``.  If not they are the values themselves, and errors are
            divided instead: the same measure, but the machine to be learned grows (Horner's scheme) where the other
            contracts.
    """

    base: int = 2
    most_significant_first: bool = True
    normalised: bool = True
    output_kind: ClassVar[Literal["class", "real"]] = "real"
    coin: ClassVar[str] = "a digit other than zero; those are equally likely"
    output_size: ClassVar[int] = 1

    def __post_init__(self) -> None:
        check_at_least_two("base", self.base)
        one_of("most_significant_first", self.most_significant_first, (True, False))
        one_of("normalised", self.normalised, (True, False))

    @property
    def title(self) -> str:
        """``base-b value``, and what differs from the usual order and division."""
        order = "" if self.most_significant_first else ", last digit first"
        return f"base-{self.base} value{order}" + ("" if self.normalised else ", not divided")

    @property
    def vocab_size(self) -> int:
        """The number of digits."""
        return self.base

    @property
    def chance(self) -> float:
        """The mean squared error of the best constant, one half, on long numerals of equally likely digits."""
        return 1 / 12

    def series(self) -> WeightedAutomaton:
        """Return the weighted automaton of two states whose value is the numeral's; its letters are the digits."""
        if self.most_significant_first:
            matrices = [[[1, 0], [digit, self.base]] for digit in range(self.base)]
        else:
            matrices = [[[self.base, 0], [digit, 1]] for digit in range(self.base)]
        return WeightedAutomaton([1, 0], matrices, [0, 1], tuple(range(self.base)))

    def unit(self, length: int) -> Tensor | None:
        """Return ``base**t`` where labels are not divided by it already."""
        return None if self.normalised else self._place_values(length)

    def _place_values(self, length: int) -> Tensor:
        return float(self.base) ** torch.arange(1, length + 1, dtype=torch.float64)

    def integers(self, tokens: Tensor) -> NDArray[Any]:
        """Return the values themselves, ``(B, T)`` Python integers: exact at any length."""
        digits_TB = tokens.numpy().astype(object).T
        values_TB = np.empty_like(digits_TB)
        value_B, place_value = np.zeros(digits_TB.shape[1:], dtype=object), 1
        for time, digit_B in enumerate(digits_TB):
            if self.most_significant_first:
                value_B = value_B * self.base + digit_B
            else:
                value_B = value_B + digit_B * place_value
                place_value *= self.base
            values_TB[time] = value_B
        return values_TB.T

    def _sample(self, batch_size: int, length: int, generator: torch.Generator, bias: float | None) -> Tensor:
        if bias is None:
            return torch.randint(0, self.base, (batch_size, length), generator=generator)
        digits = torch.randint(1, self.base, (batch_size, length), generator=generator)
        return digits * coins(batch_size, length, generator, bias)

    def _labels(self, tokens: Tensor) -> Tensor:
        fractions = self._fractions(tokens)
        return fractions if self.normalised else fractions * self._place_values(tokens.shape[1])

    def _fractions(self, tokens: Tensor) -> Tensor:
        digits = tokens.double()
        if self.most_significant_first:
            exponents = -torch.arange(1, tokens.shape[1] + 1, dtype=torch.float64)
            return (digits * self.base**exponents).cumsum(1)
        values, value = torch.empty_like(digits), digits.new_zeros(len(digits))
        for time in range(tokens.shape[1]):
            value = (value + digits[:, time]) / self.base  # a contraction: rounding errors die out
            values[:, time] = value
        return values

    def _input_kinds(self, length: int) -> dict[str, Sequence[int]]:
        top = self.base - 1
        return {
            "all zeros": [0] * length,
            "all largest": [top] * length,
            "largest, then zeros": [top] + [0] * (length - 1),
            "zeros, then one": [0] * (length - 1) + [1],
            "alternating": repeated((0, top), length),
        }
