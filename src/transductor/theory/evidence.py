"""What the statements share: checks that are counted, generic integers, and words."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from transductor.automata import WeightedAutomaton
from transductor.automata.weights import Array


@dataclass
class Checks:
    """Equations that a statement asks for: how many were checked, and which of them do not hold.

    A certificate has a number that speaks for all of them, through :meth:`unless_failed`, or counts what failed.
    """

    made: int = 0
    failed: list[str] = field(default_factory=list)

    def equal(self, what: str, measured: Any, expected: Any) -> None:
        """Ask two values to be equal, exactly."""
        self.true(f"{what} is {measured}, not {expected}", bool(measured == expected))

    def true(self, failure: str, holds: bool) -> None:
        """Ask for a truth; ``failure`` says what is wrong where it does not hold."""
        self.made += 1
        if not holds:
            self.failed.append(failure)

    def unless_failed(self, value: Any) -> Any:
        """Return a value if every check holds, and NaN, to which nothing stands in any relation, if one does not."""
        return math.nan if self.failed else value

    def witness(self, example: str) -> str:
        """Return the example, or the first failure if there is one."""
        return self.failed[0] if self.failed else f"{example} ({self.made} checks)"


def generic(seed: int, *shape: int) -> Array:
    """Return random integers of absolute value 1 to 40, as exact numbers; the same for the same seed and shape."""
    draw = np.random.default_rng([seed, *shape])
    return np.asarray(draw.integers(1, 41, shape) * draw.choice((-1, 1), shape), dtype=object)


def generic_automaton(seed: int, dim: int, letters: int) -> WeightedAutomaton:
    """Return an automaton with random integers over the letters a, b and so on."""
    return WeightedAutomaton(
        generic(seed, dim, 1)[:, 0], generic(seed, letters, dim, dim), generic(seed, dim, 2)[:, 0], alphabet(letters)
    )


def alphabet(letters: int) -> tuple[str, ...]:
    """Return so many letters, beginning with a."""
    if not 1 <= letters <= 26:
        raise ValueError(f"letters must lie in [1, 26]; got {letters!r}")
    return tuple("abcdefghijklmnopqrstuvwxyz"[:letters])


def words(letters: Sequence[Any], longest: int) -> Iterator[tuple[Any, ...]]:
    """Yield all words up to a length, shortest first."""
    for length in range(longest + 1):
        yield from itertools.product(letters, repeat=length)


def at_least(argument: str, value: int, least: int) -> None:
    """Refuse an integer below what a construction needs."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{argument} must be an integer of at least {least}; got {value!r}")


def integers(argument: str, values: Sequence[int], *, least: int = 1, count: int = 1) -> tuple[int, ...]:
    """Return several integers, each of at least ``least``, of which there are at least ``count``."""
    for value in values:
        at_least(argument, value, least)
    if len(values) < count:
        raise ValueError(f"{argument} must hold {count} or more integers; got {len(values)}")
    return tuple(values)
