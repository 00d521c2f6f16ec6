"""Hidden swaps: things change places in pairs, some of the names are hidden, and now and then a place is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import ClassVar, final

import torch
from torch import Tensor

from transductor.configuration import configuration
from transductor.tasks.hidden_process import HiddenProcess
from transductor.tasks.sampling import check_probability

MOST_THINGS = 5  # the belief is over all orders, 120 of them


@final
@configuration
@dataclass(frozen=True)
class HiddenSwaps(HiddenProcess):
    """As many things as places; the label is the likeliest order of the things, one of ``things!``.

    At first thing i is at place i.  At every step a place is shown with probability ``shown``: a thing that is there
    (or, with probability ``noise``, any); else the things at two places are swapped, all pairs being equally likely,
    and each of the two names is hidden with probability ``hidden``.

    Tokens: the pairs of places in order, then the single names (of the other place nothing is known), then a swap of
    which nothing is known, then ``places·place + thing`` for what is shown.  State s is the s-th permutation in
    lexicographic order, the thing at each place.

    Args:
        things: Number of things and of places, 2 to 5.
        shown: Probability that a place is shown.
        hidden: Probability that a name in a swap is hidden, above 0 and below 1.
        noise: Probability that what is shown is any thing.
    """

    things: int = 5
    shown: float = 0.2
    hidden: float = 0.1
    noise: float = 0.02
    title: ClassVar[str] = "hidden swaps of {things} things, shown {shown:g}, hidden {hidden:g}, noise {noise:g}"

    def __post_init__(self) -> None:
        if not isinstance(self.things, int) or not 2 <= self.things <= MOST_THINGS:
            raise ValueError(f"things must be an integer from 2 to {MOST_THINGS}; got {self.things!r}")
        for name in ("shown", "hidden", "noise"):
            check_probability(name, getattr(self, name))
        if not (0 < self.shown < 1 and 0 < self.hidden < 1 and self.noise > 0):
            raise ValueError("shown, hidden and noise must be positive: every word must be possible")

    @property
    def _pairs(self) -> list[tuple[int, int]]:
        return list(combinations(range(self.things), 2))

    @property
    def _swaps(self) -> int:
        """How many tokens are swaps."""
        return len(self._pairs) + self.things + 1

    @property
    def vocab_size(self) -> int:
        """Swaps with both, one or none of their names, and what may be shown."""
        return self._swaps + self.things**2

    @property
    def output_size(self) -> int:
        """The number of orders."""
        return len(self.orders())

    def orders(self) -> Tensor:
        """Return the thing at each place in every order, ``(orders, places)``."""
        return torch.tensor(list(permutations(range(self.things))))

    def _process(self) -> tuple[Tensor, Tensor]:
        orders, pairs, count = self.orders().tolist(), self._pairs, self.things
        number = {tuple(order): place for place, order in enumerate(orders)}
        exchanged = torch.zeros(len(pairs), len(orders), len(orders), dtype=torch.float64)
        for pair, (x, y) in enumerate(pairs):
            for place, order in enumerate(orders):
                after = list(order)
                after[x], after[y] = after[y], after[x]
                exchanged[pair, number[tuple(after)], place] = 1
        exchanged *= (1 - self.shown) / len(pairs)
        holding = torch.tensor([[x in pair for pair in pairs] for x in range(count)], dtype=torch.float64)
        one_name = torch.einsum("xp,pij->xij", holding, exchanged)
        seen = (1 - self.noise) * torch.nn.functional.one_hot(self.orders(), count).double() + self.noise / count
        shown = torch.diag_embed(self.shown / count * seen.permute(1, 2, 0).flatten(0, 1))
        kept, lost = 1 - self.hidden, self.hidden
        matrices = torch.cat(
            (kept**2 * exchanged, kept * lost * one_name, lost**2 * exchanged.sum(0, keepdim=True), shown)
        )
        start = torch.zeros(len(orders), dtype=torch.float64)
        start[0] = 1
        return start, matrices

    def drawn(self, batch_size: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return tokens ``(B, T)`` and the numbers of the orders after them ``(B, T)``."""
        shape, count, pairs = (batch_size, length), self.things, torch.tensor(self._pairs)

        def happens(probability: float) -> Tensor:
            return torch.rand(shape, generator=generator) < probability

        def any_of(number: int) -> Tensor:
            return torch.randint(0, number, shape, generator=generator)

        which, places, anything = any_of(len(pairs)), any_of(count), any_of(count)
        shows, wrong = happens(self.shown), happens(self.noise)
        hides_first, hides_second = happens(self.hidden), happens(self.hidden)
        things = torch.arange(count).repeat(batch_size, 1)
        every = torch.empty(batch_size, length, count, dtype=torch.long)
        for t in range(length):
            pair = pairs[which[:, t]]
            swapped = things.scatter(1, pair, things.gather(1, pair.flip(1)))
            things = torch.where(shows[:, t, None], things, swapped)
            every[:, t] = things
        named = pairs[which]
        swap = torch.where(hides_first, len(pairs) + named[..., 1], which)
        swap = torch.where(hides_second, len(pairs) + named[..., 0], swap)
        swap = torch.where(hides_first & hides_second, self._swaps - 1, swap)
        there = torch.where(wrong, anything, every.gather(2, places[..., None])[..., 0])
        return torch.where(shows, self._swaps + count * places + there, swap), self._numbers(every)

    def _numbers(self, things: Tensor) -> Tensor:
        """Return the numbers of orders ``(..., places)``, by the factorial number system."""
        count, number = self.things, torch.zeros_like(things[..., 0])
        for place in range(count):
            smaller = (things[..., place + 1 :] < things[..., place, None]).sum(-1)
            number = number * (count - place) + smaller
        return number

    def _input_kinds(self, length: int) -> dict[str, Sequence[int]]:
        pairs, nothing, shown = len(self._pairs), self._swaps - 1, self._swaps
        return {
            "never a place shown": [place % pairs for place in range(length)],
            "every swap half hidden": [pairs + place % self.things for place in range(length)],
            "every swap hidden, one place shown": [(nothing, shown)[place % 2] for place in range(length)],
            "one swap hidden, then all in sight": [nothing, *(place % pairs for place in range(length - 1))][:length],
            "a place that shows two things in turn": [shown + place % 2 for place in range(length)],
        }
