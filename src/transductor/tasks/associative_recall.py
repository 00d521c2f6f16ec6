"""Associative recall, the value that went with a key: a Transformer can do this already and must not unlearn it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from transductor.automata.moore import IGNORED
from transductor.checks import check_positive
from transductor.configuration import configuration
from transductor.tasks.base import Task
from transductor.tasks.sampling import first_position, repeated


@final
@configuration
@dataclass(frozen=True)
class AssociativeRecall(Task):
    """Pairs of key and value, a marker, then keys: the label of each key is the value that it last went with.

    Tokens are the keys ``0 … keys − 1``, the values ``keys … keys + values − 1`` and the marker; a label is the number
    of a value, from 0.  A key after the marker that had no value has no label.  A sampled sequence of length T has
    (T − 1) // 3 pairs with different keys, ``keys`` at most, and asks for them repeatedly.

    No finite machine of reasonable size gives the truth: it would remember a value for every key.
    """

    keys: int = 16
    values: int = 16
    title: ClassVar[str] = "associative recall, {keys} keys and {values} values"
    shortest: ClassVar[int] = 4  # a key, its value, the marker, the key

    def __post_init__(self) -> None:
        check_positive("keys", self.keys)
        check_positive("values", self.values)

    @property
    def vocab_size(self) -> int:
        """The number of keys and values, and one for the marker."""
        return self.keys + self.values + 1

    @property
    def output_size(self) -> int:
        """The number of values."""
        return self.values

    def _pairs(self, length: int) -> int:
        return min(self.keys, (length - 1) // 3)

    def _sample(self, batch_size: int, length: int, generator: torch.Generator, bias: float | None) -> Tensor:
        pairs = self._pairs(length)
        keys = torch.rand(batch_size, self.keys, generator=generator).argsort(1)[:, :pairs]
        values = torch.randint(0, self.values, (batch_size, pairs), generator=generator)
        asked = torch.randint(0, pairs, (batch_size, length - 2 * pairs - 1), generator=generator)
        tokens = torch.full((batch_size, length), self.keys + self.values)
        tokens[:, 0 : 2 * pairs : 2] = keys
        tokens[:, 1 : 2 * pairs : 2] = self.keys + values
        tokens[:, 2 * pairs + 1 :] = keys.gather(1, asked)
        return tokens

    def _labels(self, tokens: Tensor) -> Tensor:
        batch_size, length = tokens.shape
        positions = torch.arange(length)
        marker = first_position(tokens == self.keys + self.values)[:, None]
        is_key = tokens < self.keys
        is_value = ~is_key & (tokens < self.keys + self.values)
        stored = torch.full((batch_size, self.keys + 1), IGNORED)
        for time in range(1, length):
            bound = is_key[:, time - 1] & is_value[:, time] & (time < marker[:, 0])
            # What is not a pair is stored in an extra column that belongs to no key.
            column = torch.where(bound, tokens[:, time - 1], self.keys)
            stored.scatter_(1, column[:, None], tokens[:, time, None] - self.keys)
        values = stored.gather(1, torch.where(is_key, tokens, self.keys))
        return torch.where(is_key & (positions > marker), values, IGNORED)

    def _input_kinds(self, length: int) -> dict[str, Sequence[int]]:
        pairs = self._pairs(length)
        asked = length - 2 * pairs - 1
        marker, last = self.keys + self.values, self.keys + self.values - 1

        def written(values: Sequence[int], queries: Sequence[int]) -> list[int]:
            bound = [token for key, value in enumerate(values) for token in (key, value)]
            return [*bound, marker, *queries]

        return {
            "one value": written([last] * pairs, repeated(range(pairs), asked)),
            "one odd value at the start": written([last, *[self.keys] * (pairs - 1)], repeated(range(pairs), asked)),
            "always the first key": written([self.keys + key % self.values for key in range(pairs)], [0] * asked),
            "always the last key": written(
                [self.keys + key % self.values for key in range(pairs)], [pairs - 1] * asked
            ),
            "a key bound anew each time": [*repeated((0, self.keys, 0, last), 2 * pairs), marker, *[0] * asked],
        }
