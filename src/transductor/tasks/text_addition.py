"""Addition as plain text, one character at a time: ``123+456=579``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from transductor.automata.moore import IGNORED
from transductor.checks import one_of
from transductor.configuration import configuration
from transductor.tasks.base import Task
from transductor.tasks.sampling import first_position, latest

CHARACTERS = "0123456789$+="
END, PLUS, EQUALS = 10, 11, 12


@final
@configuration
@dataclass(frozen=True)
class TextAddition(Task):
    """Next characters: from ``=`` on, the label is the character that must follow, finally the end ``$``.

    The answer has as many digits as the longer operand, and one more where a carry is left; for numerals without
    leading zeros that is the sum as people write it.  Labels depend on the text before ``=`` alone; where that is not
    a sum of two numerals there are none.  In a sampled text of length T both operands have (T − 3) // 3 digits, and
    the rest is filled with ``$``.  No finite machine gives the truth: the digits to be added are far apart, at a
    distance that grows.

    Args:
        reversed_digits: Write all three numbers from their last digit.
    """

    reversed_digits: bool = False
    vocab_size: ClassVar[int] = len(CHARACTERS)
    output_size: ClassVar[int] = END + 1  # ten digits and the end
    shortest: ClassVar[int] = 6  # 8+8=16

    def __post_init__(self) -> None:
        one_of("reversed_digits", self.reversed_digits, (False, True))

    @property
    def title(self) -> str:
        """``text addition``, and whether digits are reversed."""
        return "text addition" + (", reversed" if self.reversed_digits else "")

    def encoded(self, text: str) -> Tensor:
        """Return the tokens ``(1, T)`` of a text over the characters ``0123456789$+=``."""
        for character in text:
            if character not in CHARACTERS:
                raise ValueError(f"text must be made of the characters {CHARACTERS}; got {character!r}")
        return torch.tensor([[CHARACTERS.index(character) for character in text]], dtype=torch.long)

    def decoded(self, tokens: Tensor) -> str:
        """Return the text of one row of tokens ``(T,)``."""
        return "".join(CHARACTERS[token] for token in tokens.tolist())

    def _sample(self, batch_size: int, length: int, generator: torch.Generator, bias: float | None) -> Tensor:
        digits = (length - 3) // 3
        operands = torch.randint(0, 10, (batch_size, 2, digits), generator=generator)
        if digits > 1:  # no leading zeros
            operands[:, :, 0] = torch.randint(1, 10, (batch_size, 2), generator=generator)
        if self.reversed_digits:
            operands = operands.flip(-1)
        tokens = torch.full((batch_size, length), END)
        tokens[:, :digits] = operands[:, 0]
        tokens[:, digits] = PLUS
        tokens[:, digits + 1 : 2 * digits + 1] = operands[:, 1]
        tokens[:, 2 * digits + 1] = EQUALS
        return self._answered(tokens)

    def _answered(self, tokens: Tensor) -> Tensor:
        """Return the tokens with the right answer written after ``=``."""
        labels = self._labels(tokens)[:, :-1]
        return torch.cat([tokens[:, :1], torch.where(labels == IGNORED, tokens[:, 1:], labels)], dim=1)

    def _labels(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        positions = torch.arange(length)
        plus, equals = (first_position(tokens == sign)[:, None] for sign in (PLUS, EQUALS))
        signs = ((tokens >= END) & (positions < equals)).sum(1, keepdim=True)
        is_sum = (plus > 0) & (plus + 1 < equals) & (equals < length) & (signs == 1)

        totals = self._columns(tokens, torch.zeros_like(plus), plus) + self._columns(tokens, plus + 1, equals)
        carries = latest(totals != 9, (totals > 9).long(), 0)
        carries = torch.cat([torch.zeros_like(carries[:, :1]), carries[:, :-1]], dim=1)
        digits = (totals + carries) % 10

        widest = torch.maximum(plus, equals - plus - 1).clamp(0, length - 1)
        answer_length = widest + digits.gather(1, widest)
        answered = positions - equals
        column = answered if self.reversed_digits else answer_length - 1 - answered
        labels = digits.gather(1, column.clamp(0, length - 1))
        labels = torch.where(answered == answer_length, END, labels)
        return torch.where(is_sum & (answered >= 0) & (answered <= answer_length), labels, IGNORED)

    def _columns(self, tokens: Tensor, start: Tensor, end: Tensor) -> Tensor:
        """Return the digits in ``[start, end)`` by their place value, units first, ``(B, T)``; zeros beyond."""
        columns = torch.arange(tokens.shape[1])
        positions = start + columns if self.reversed_digits else end - 1 - columns
        digits = tokens.gather(1, positions.clamp(0, tokens.shape[1] - 1))
        return torch.where((positions >= start) & (positions < end) & (digits < END), digits, 0)

    def _input_kinds(self, length: int) -> dict[str, Sequence[int]]:
        digits = (length - 3) // 3
        pairs = {
            "nines plus one": ("9" * digits, "1"),
            "one plus nines": ("1", "9" * digits),
            "nines plus nines": ("9" * digits, "9" * digits),
            "longest chain, carry 0": ("5" * digits, "4" * digits),
            "longest chain, carry 1": ("5" * digits, "4" * (digits - 1) + "5"),
            "no carry": ("1" * digits, "2" * digits),
        }
        return {kind: self._written(left, right, length) for kind, (left, right) in pairs.items()}

    def _written(self, left: str, right: str, length: int) -> list[int]:
        if self.reversed_digits:
            left, right = left[::-1], right[::-1]
        row = self._answered(self.encoded(f"{left}+{right}=".ljust(length, "$")))[0]
        return [int(token) for token in row]
