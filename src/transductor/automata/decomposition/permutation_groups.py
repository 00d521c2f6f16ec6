"""Small permutation groups: order, membership and a name.

A permutation is the tuple of its values: ``p[point]`` is where the point goes.  A group is kept as a chain of
stabilisers (Schreier and Sims), so that its order and its members are known without listing them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count, product
from math import factorial, lcm, prod
from typing import TypeAlias, final

Permutation: TypeAlias = tuple[int, ...]

# Beyond this order the elements are not listed to find a name; large enough for S6.
LISTED_ORDER = 720

# Their order and the orders of their elements determine these groups.
CHARACTERISED = {
    (6, frozenset({1, 2, 3})): "S3",
    (12, frozenset({1, 2, 3})): "A4",
    (20, frozenset({1, 2, 4, 5})): "F20",
    (21, frozenset({1, 3, 7})): "F21",
    (24, frozenset({1, 2, 3, 4})): "S4",
    (60, frozenset({1, 2, 3, 5})): "A5",
    (120, frozenset({1, 2, 3, 4, 5, 6})): "S5",
    (168, frozenset({1, 2, 3, 4, 7})): "PSL(2,7)",
    (360, frozenset({1, 2, 3, 4, 5})): "A6",
    (720, frozenset({1, 2, 3, 4, 5, 6})): "S6",
}


def composed(earlier: Sequence[int], later: Sequence[int]) -> Permutation:
    """Return the permutation that applies first ``earlier``, then ``later``."""
    return tuple(later[point] for point in earlier)


def inverse(permutation: Permutation) -> Permutation:
    """Return the permutation that undoes this one."""
    undone = [0] * len(permutation)
    for point, target in enumerate(permutation):
        undone[target] = point
    return tuple(undone)


def element_order(permutation: Permutation) -> int:
    """Return the least power that is the identity: the common multiple of the cycles' lengths."""
    order, seen = 1, [False] * len(permutation)
    for point in range(len(permutation)):
        length = 0
        while not seen[point]:
            seen[point] = True
            point, length = permutation[point], length + 1
        order = lcm(order, max(length, 1))
    return order


@dataclass
class _Stabiliser:
    """One link of the chain: how its group moves one point; the next link is of the elements that fix that point."""

    point: int
    generators: list[Permutation]
    # Where the point can go, and for each place one element that takes it there and one that brings it back.
    there: dict[int, Permutation]
    back: dict[int, Permutation]


@final
@dataclass(frozen=True)
class PermutationGroup:
    """The group that ``generators`` generate on the points ``0 … degree − 1``."""

    degree: int
    generators: tuple[Permutation, ...]
    _chain: list[_Stabiliser] = field(init=False, repr=False, compare=False, default_factory=list)

    def __post_init__(self) -> None:
        for generator in self.generators:
            if sorted(generator) != list(range(self.degree)):
                raise ValueError(
                    f"generators must be permutations of the points 0 … {self.degree - 1}; got {generator!r}"
                )
        for generator in self.generators:
            self._admit(0, generator)

    def __contains__(self, permutation: object) -> bool:
        if not isinstance(permutation, tuple) or sorted(permutation) != list(range(self.degree)):
            return False
        return self._is_known(0, permutation)

    @cached_property
    def order(self) -> int:
        """How many elements there are."""
        return prod(len(link.there) for link in self._chain)

    @cached_property
    def name(self) -> str:
        """The isomorphism type where it is known (``Z6``, ``V4``, ``D4``, ``A5``), else order and points.

        ``Zn`` is cyclic of order n, ``Dn`` dihedral of order 2n, ``Fn`` the Frobenius group of order n.
        """
        return _abelian_name(self) or _natural_name(self) or _listed_name(self) or self._described

    @property
    def _described(self) -> str:
        return f"order {self.order} on {self.degree} points"

    def elements(self) -> Iterator[Permutation]:
        """Yield every element once."""
        for choice in product(*(link.there.values() for link in reversed(self._chain))):
            element = tuple(range(self.degree))
            for factor in choice:
                element = composed(element, factor)
            yield element

    def _is_known(self, depth: int, permutation: Permutation) -> bool:
        for link in self._chain[depth:]:
            back = link.back.get(permutation[link.point])
            if back is None:
                return False
            permutation = composed(permutation, back)
        return all(point == target for point, target in enumerate(permutation))

    def _admit(self, depth: int, permutation: Permutation) -> None:
        """Enlarge the group at ``depth``, whose members fix the points of all earlier links, by one element."""
        if self._is_known(depth, permutation):
            return
        if depth == len(self._chain):
            moved = next(point for point, target in enumerate(permutation) if point != target)
            still = tuple(range(self.degree))
            self._chain.append(_Stabiliser(moved, [], {moved: still}, {moved: still}))
        link = self._chain[depth]
        link.generators.append(permutation)
        pending = [composed(element, permutation) for element in link.there.values()]
        while pending:
            element = pending.pop()
            target = element[link.point]
            if target in link.there:
                self._admit(depth + 1, composed(element, link.back[target]))
            else:
                link.there[target], link.back[target] = element, inverse(element)
                pending += [composed(element, generator) for generator in link.generators]


def _abelian_name(group: PermutationGroup) -> str | None:
    generators = group.generators
    if any(composed(a, b) != composed(b, a) for a in generators for b in generators):
        return None
    if lcm(*map(element_order, generators)) == group.order:
        return f"Z{group.order}"
    if group.order == 4:
        return "V4"
    if group.order > LISTED_ORDER:
        return None
    return "×".join(f"Z{factor}" for factor in _invariant_factors(map(element_order, group.elements())))


def _invariant_factors(element_orders: Iterable[int]) -> list[int]:
    """Return the sizes d₁ | d₂ | … of the cyclic factors of an abelian group, from the orders of all its elements."""
    counts = Counter(element_orders)
    factors: list[int] = []
    for prime in (p for p in counts if p > 1 and all(p % q for q in range(2, p))):
        # p^k ends as many elements as p^(k−1) times p for every cyclic factor whose exponent of p is at least k.
        ended, power, reaching = 1, prime, list[int]()
        while (now := sum(n for order, n in counts.items() if power % order == 0)) > ended:
            reaching.append(next(exponent for exponent in count(1) if ended * prime**exponent == now))
            ended, power = now, power * prime
        factors += [1] * (reaching[0] - len(factors))
        for i in range(reaching[0]):
            factors[i] *= prime ** sum(number > i for number in reaching)
    return factors[::-1]


def _natural_name(group: PermutationGroup) -> str | None:
    """Return all permutations of the points that move, or the even ones."""
    moved = sum(any(generator[point] != point for generator in group.generators) for point in range(group.degree))
    if group.order == factorial(moved):
        return f"S{moved}"
    # A_n is the only subgroup of S_n that holds half of its elements.
    return f"A{moved}" if 2 * group.order == factorial(moved) else None


def _listed_name(group: PermutationGroup) -> str | None:
    if group.order > LISTED_ORDER:
        return None
    elements = list(group.elements())
    orders = list(map(element_order, elements))
    if name := CHARACTERISED.get((group.order, frozenset(orders))):
        return name
    if group.order == 8 and orders.count(2) == 1:
        return "Q8"
    half = group.order // 2
    return f"D{half}" if half in orders and _is_dihedral(elements, elements[orders.index(half)]) else None


def _is_dihedral(elements: list[Permutation], rotation: Permutation) -> bool:
    """Whether everything but the powers of ``rotation``, which are half of all, is a reflection that reverses it."""
    power, powers = rotation, {rotation}
    while (power := composed(power, rotation)) not in powers:
        powers.add(power)
    flip = next(element for element in elements if element not in powers)
    return inverse(flip) == flip and composed(composed(flip, rotation), flip) == inverse(rotation)
