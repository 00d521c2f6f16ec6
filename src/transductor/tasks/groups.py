"""Finite groups by name, as permutations: ``Z5``, ``S4``, ``A5``, ``D6`` and products such as ``Z2xS3``."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from math import factorial, prod
from typing import final

from transductor.automata.decomposition.permutation_groups import Permutation, PermutationGroup

GROUP_NAMES = "Z<n> (n from 2), S<n> (2 to 6), A<n> (3 to 6), D<n> (n from 3), joined by x for products"
LARGEST_ORDER = 720
ATTEMPTS = 1000


@final
@dataclass(frozen=True)
class NamedGroup:
    """A group, its customary generators, and all its elements in lexicographic order, the identity first."""

    name: str
    generators: tuple[Permutation, ...]
    elements: tuple[Permutation, ...]


@cache
def named_group(name: str) -> NamedGroup:
    """Return the group called ``name``; a product acts on the points of its factors side by side.

    Customary generators: for Zₙ a turn and its inverse; for Sₙ a swap and the full cycle; for Aₙ two even cycles; for
    Dₙ, which has 2n elements, a turn and a reflection; for a product those of its factors.
    """
    factors = [_factor(name, part) for part in name.split("x")] if isinstance(name, str) else []
    if not factors:
        raise ValueError(f"group must be a name: {GROUP_NAMES}; got {name!r}")
    order = prod(order for order, _, _ in factors)
    if order > LARGEST_ORDER:
        raise ValueError(f"group must have at most {LARGEST_ORDER} elements; {name} has {order}")
    degree, before = sum(degree for _, degree, _ in factors), 0
    generators: list[Permutation] = []
    for _, points, made_by in factors:
        after = range(before + points, degree)
        generators += [(*range(before), *(before + point for point in each), *after) for each in made_by]
        before += points
    distinct = tuple(dict.fromkeys(generators))
    return NamedGroup(name, distinct, tuple(sorted(PermutationGroup(degree, distinct).elements())))


def _factor(name: str, part: str) -> tuple[int, int, list[Permutation]]:
    """Return order, degree and customary generators of one factor."""
    match = re.fullmatch(r"([ZSAD])([1-9][0-9]{0,3})", part)
    kind, n = (match[1], int(match[2])) if match else ("", 0)
    lowest, highest = {"Z": (2, 720), "S": (2, 6), "A": (3, 6), "D": (3, 360)}.get(kind, (1, 0))
    if not lowest <= n <= highest:
        raise ValueError(f"group must be {GROUP_NAMES}, of at most {LARGEST_ORDER} elements; got {name!r}")
    turn, identity = (*range(1, n), 0), tuple(range(n))
    if kind == "Z":
        return n, n, [turn, (n - 1, *range(n - 1))]
    if kind == "S":
        return factorial(n), n, [(1, 0, *identity[2:]), turn]
    if kind == "A":
        return factorial(n) // 2, n, [(1, 2, 0, *identity[3:]), turn if n % 2 else (0, *range(2, n), 1)]
    return 2 * n, n, [turn, identity[::-1]]


def all_swaps(group: str) -> tuple[Permutation, ...]:
    """Return every transposition of the points of a symmetric group."""
    if not re.fullmatch("S[2-6]", group):
        raise ValueError(f"generators must not be 'swaps' unless group is S<n>; got the group {group!r}")
    swaps = []
    for low, high in combinations(range(int(group[1:])), 2):
        points = list(range(int(group[1:])))
        points[low], points[high] = high, low
        swaps.append(tuple(points))
    return tuple(swaps)


@cache
def random_generators(group: str, count: int, seed: int) -> tuple[Permutation, ...]:
    """Draw ``count`` different elements other than the identity that generate the group ``group``."""
    elements = named_group(group).elements
    if count >= len(elements):
        raise ValueError(
            f"generators must be at most {len(elements) - 1} elements of {group}, the identity aside; got {count}"
        )
    chance = random.Random(seed)
    for _ in range(ATTEMPTS):
        drawn = tuple(chance.sample(elements[1:], count))
        if PermutationGroup(len(drawn[0]), drawn).order == len(elements):
            return drawn
    raise ValueError(f"generators must generate all of {group}; {count} random elements never did in {ATTEMPTS} draws")
