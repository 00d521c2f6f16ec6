"""Finite monoids as their words multiply: elements, idempotents, subgroups, and what commutes.

A monoid is given by its letters, which move points.  Its elements are what words do, numbered breadth-first from the
identity; two words are the same element if they do the same to every point.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Final, final

import numpy as np

from transductor.automata.decomposition.permutation_groups import Permutation
from transductor.automata.graphs import Integers, explored
from transductor.tasks.groups import GROUP_NAMES, named_group

LARGEST: Final = 720
# The letter that does nothing: every alphabet here has it, so that what was read must also be kept.
WAIT: Final = "wait"

_QUATERNIONS: Final[dict[str, Permutation]] = {"i": (1, 2, 3, 0, 5, 6, 7, 4), "j": (4, 7, 6, 5, 2, 1, 0, 3)}


@final
@dataclass(frozen=True, eq=False)
class FiniteMonoid:
    """All words over some letters, where words are equal that do the same; element 0 is the identity.

    Attributes:
        name: How it is called.
        letters: The names of the letters.
        elements: Where each element takes every point.
        after: ``after[x, letter]`` is the element of x followed by a letter, ``(S, V)``.
    """

    name: str
    letters: tuple[str, ...]
    elements: tuple[Permutation, ...]
    after: Integers

    @classmethod
    def generated(cls, name: str, letters: Mapping[str, Sequence[int]]) -> FiniteMonoid:
        """Return the monoid of all products of letters, ``letters[name][point]`` being where the point goes."""
        if not letters:
            raise ValueError("letters must hold at least one letter")
        moves = {letter: tuple(int(to) for to in images) for letter, images in letters.items()}
        points = len(next(iter(moves.values())))
        for letter, images in moves.items():
            if len(images) != points or not all(0 <= to < points for to in images):
                raise ValueError(f"letters must move the points 0 … {points - 1} to such; {letter!r} is {images}")
        elements, rows = explored(
            [tuple(range(points))],
            lambda element: (tuple(images[to] for to in element) for images in moves.values()),
            limit=LARGEST,
            refusal=f"letters must generate at most {LARGEST} elements; {name} has more",
        )
        return cls(name, tuple(moves), tuple(elements), np.array(rows, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.elements)

    def __repr__(self) -> str:
        return f"FiniteMonoid({self.name}, {len(self)} elements, letters {', '.join(self.letters)})"

    @cached_property
    def times(self) -> Integers:
        """The multiplication table: ``times[x, y]`` is x followed by y, ``(S, S)``."""
        maps = np.array(self.elements, dtype=np.int64)
        number = {element: place for place, element in enumerate(self.elements)}
        rows = [[number[tuple(row)] for row in maps[:, element].tolist()] for element in maps]
        # maps[:, element] takes each later map at the points where the earlier element leads.
        return np.array(rows, dtype=np.int64)

    @cached_property
    def of_letter(self) -> tuple[int, ...]:
        """The element of each letter."""
        return tuple(self.after[0].tolist())

    @cached_property
    def idempotents(self) -> tuple[int, ...]:
        """The elements that equal their squares, the identity among them."""
        return tuple(np.flatnonzero(self.times.diagonal() == np.arange(len(self))).tolist())

    @property
    def is_group(self) -> bool:
        """Whether every element has an inverse: then, and only then, the identity is the only idempotent."""
        return self.idempotents == (0,)

    @cached_property
    def zero(self) -> int | None:
        """The element that swallows all others from both sides, if there is one."""
        every = range(len(self))
        return next((z for z in every if (self.times[z] == z).all() and (self.times[:, z] == z).all()), None)

    @cached_property
    def not_commuting(self) -> tuple[str, str] | None:
        """Two letters whose order matters; None where all commute, and hence all elements."""
        for first, x in zip(self.letters, self.of_letter, strict=True):
            for second, y in zip(self.letters, self.of_letter, strict=True):
                if self.times[x, y] != self.times[y, x]:
                    return first, second
        return None

    @cached_property
    def chain(self) -> tuple[int, ...]:
        """A longest chain ``1 = e₁ > e₂ > …`` of idempotents, each of which absorbs the one before from both sides."""
        times, longest = self.times, dict[int, tuple[int, ...]]()

        def below(e: int) -> tuple[int, ...]:
            if e not in longest:
                lower = [f for f in self.idempotents if f != e and times[e, f] == f == times[f, e]]
                longest[e] = (e, *max(map(below, lower), key=len, default=()))
            return longest[e]

        return below(0)

    def subgroup_at(self, idempotent: int) -> tuple[int, ...]:
        """Return the elements of the largest group whose identity is this idempotent."""
        if idempotent not in self.idempotents:
            raise ValueError(f"idempotent must be one of {self.idempotents}; got {idempotent!r}")
        times = self.times
        local = sorted(set(times[times[idempotent], idempotent].tolist()))
        return tuple(x for x in local if any(times[x, y] == idempotent == times[y, x] for y in local))

    def group_at(self, idempotent: int) -> FiniteMonoid:
        """Return the largest group with this identity, generated by all its elements."""
        members = self.subgroup_at(idempotent)
        place = {element: number for number, element in enumerate(members)}
        moved = {str(x): [place[int(self.times[y, x])] for y in members] for x in members}
        return FiniteMonoid.generated(f"the group at element {idempotent} of {self.name}", moved)

    @cached_property
    def order_of(self) -> tuple[int, ...]:
        """The order of every element of a group."""
        orders = []
        for element in range(len(self)):
            power, order = element, 1
            while power != 0:
                power, order = int(self.times[power, element]), order + 1
                if order > len(self):
                    raise ValueError(f"{self.name} must be a group; element {element} has no power that is 1")
            orders.append(order)
        return tuple(orders)

    @cached_property
    def inverse_of(self) -> tuple[int, ...]:
        """The inverse of every element of a group."""
        if not self.is_group:
            raise ValueError(f"{self.name} must be a group; it has the idempotents {self.idempotents}")
        return tuple((self.times == 0).argmax(1).tolist())


@cache
def finite_monoid(name: str) -> FiniteMonoid:
    """Return a monoid by its name, with its customary letters and one that does nothing.

    Args:
        name: A group (``Z5``, ``S4``, ``A5``, ``D4``, ``Q8``, a product ``Z2xS3``); ``seen``, which of two letters have
            come; ``flip-flop``, the letter written last; ``staircase``, up and down on three steps, the last of which
            are walls; ``T2`` to ``T4``, all maps of so many points.
    """
    if name in _MONOIDS:
        letters = _MONOIDS[name]
    elif re.fullmatch("T[2-4]", name):
        points = int(name[1])
        turn, still = (*range(1, points), 0), tuple(range(points))
        cycle = {} if points == 2 else {"turn": turn}
        letters = {"swap": (1, 0, *still[2:]), **cycle, "merge": (0, 0, *still[2:])}
    elif re.fullmatch(r"[ZSAD]\d+(x[ZSAD]\d+)*", name):
        letters = {f"g{place}": images for place, images in enumerate(named_group(name).generators, 1)}
    else:
        known = ", ".join(_MONOIDS)
        raise ValueError(f"name must be {known}, T2 to T4, or a group: {GROUP_NAMES}; got {name!r}")
    points = len(next(iter(letters.values())))
    return FiniteMonoid.generated(name, {WAIT: tuple(range(points)), **letters})


_MONOIDS: Final[dict[str, dict[str, Permutation]]] = {
    "Q8": _QUATERNIONS,
    "seen": {"a": (2, 1, 2), "b": (0, 2, 2)},
    "flip-flop": {"set": (1, 1), "reset": (0, 0)},
    "staircase": {"up": (1, 2, 2), "down": (0, 0, 1)},
}
