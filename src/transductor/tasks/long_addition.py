"""Long addition of aligned pairs of digits, the last digits first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from transductor.automata.moore import IGNORED, MooreMachine
from transductor.checks import one_of
from transductor.configuration import configuration
from transductor.tasks.base import Task
from transductor.tasks.sampling import check_at_least_two, coins, latest, repeated


@final
@configuration
@dataclass(frozen=True)
class LongAddition(Task):
    """Tokens are pairs of digits ``left * base + right``, least significant first; the label is the sum's digit.

    Args:
        base: Number of digits, at least two.
        carry_in: The carry into the first pair, 0 or 1; or ``"letter"``: two more letters, ``base²`` and
            ``base² + 1``, set the carry to 0 or 1 and have no label themselves.  A sampled sequence then begins with
            one of them.
    """

    base: int = 10
    carry_in: int | str = 0
    coin: ClassVar[str] = "a pair that passes the carry on, its digits having the sum base − 1"

    def __post_init__(self) -> None:
        check_at_least_two("base", self.base)
        one_of("carry_in", self.carry_in, (0, 1, "letter"))

    @property
    def title(self) -> str:
        """``base-b long addition``, and the first carry where it is not zero."""
        carry = {0: "", 1: ", carry in", "letter": ", carry letter"}[self.carry_in]
        return f"base-{self.base} long addition{carry}"

    @property
    def vocab_size(self) -> int:
        """The number of pairs of digits, and two for the carries where they are letters."""
        return self.base**2 + (2 if self.carry_in == "letter" else 0)

    @property
    def output_size(self) -> int:
        """The number of digits."""
        return self.base

    @property
    def shortest(self) -> int:
        """The smallest length: a pair, after a carry where that is a letter."""
        return 2 if self.carry_in == "letter" else 1

    def _machine(self) -> MooreMachine:
        """Build the machine whose state is the carry and the last digit of the sum."""

        def step(state: tuple[int, int], letter: int) -> tuple[int, int]:
            if letter >= self.base**2:
                return letter - self.base**2, IGNORED
            return divmod(letter // self.base + letter % self.base + state[0], self.base)

        return MooreMachine.explored((self._first_carry, IGNORED), self.vocab_size, step, lambda state: state[1])

    @property
    def _first_carry(self) -> int:
        return self.carry_in if isinstance(self.carry_in, int) else 0

    def _sample(self, batch_size: int, length: int, generator: torch.Generator, bias: float | None) -> Tensor:
        pairs = torch.randint(0, self.base**2, (batch_size, length), generator=generator)
        if bias is not None:
            left = pairs // self.base
            passing = left * self.base + (self.base - 1 - left)
            # Shifting the right digit by 1 … base − 1 places reaches every pair that does not pass the carry on.
            shift = torch.randint(1, self.base, (batch_size, length), generator=generator)
            other = left * self.base + (self.base - 1 - left + shift) % self.base
            pairs = torch.where(coins(batch_size, length, generator, bias).bool(), passing, other)
        if self.carry_in == "letter":
            pairs[:, 0] = self.base**2 + torch.randint(0, 2, (batch_size,), generator=generator)
        return pairs

    def _labels(self, tokens: Tensor) -> Tensor:
        pairs = self.base**2
        totals = tokens // self.base + tokens % self.base
        is_letter = tokens >= pairs
        decides = is_letter | (totals != self.base - 1)
        decided = torch.where(is_letter, tokens - pairs, (totals >= self.base).long())
        carries = latest(decides, decided, self._first_carry)
        carries = torch.cat([torch.full_like(carries[:, :1], self._first_carry), carries[:, :-1]], dim=1)
        return torch.where(is_letter, IGNORED, (totals + carries) % self.base)

    def _input_kinds(self, length: int) -> dict[str, Sequence[int]]:
        top = self.base - 1
        kill, passing, generate = 0, top * self.base, top * self.base + top
        half = length // 2
        chain_0, chain_1 = self._chain(0, length), self._chain(1, length)
        tail = [passing] * (length - half - 1)
        zero, one = self._start(0), self._start(1)
        return {
            "longest chain, carry 0": chain_0,
            "longest chain, carry 1": chain_1,
            "nines plus one": [*zero, top * self.base + 1, *[passing] * length][:length],
            "chain of ones killed once": [*chain_1[:half], kill, *tail] if half else chain_1,
            "chain of zeros broken by a carry": [*chain_0[:half], generate, *tail] if half else chain_0,
            "a carry at every other pair": [*zero, *repeated((generate, kill), length)][:length],
            "a carry at every pair": [*one, *[generate] * length][:length],
            "no carry": [*zero, *[kill] * length][:length],
        }

    def _start(self, carry: int) -> list[int]:
        """Return the row that sets the carry: one letter where carries are letters, else empty."""
        return [self.base**2 + carry] if self.carry_in == "letter" else []

    def _chain(self, carry: int, length: int) -> list[int]:
        """Return a carry passed on to the end, made by the first pair where nothing else makes it."""
        first = self._start(carry)
        if self.carry_in == 1 - carry:
            first = [self.base**2 - 1 if carry else 0]
        return [*first, *[(self.base - 1) * self.base] * length][:length]
