"""How few points a group can permute faithfully, with and without signs: all its subgroups, and actions on cosets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import final

import numpy as np

from transductor.theory.finite_monoids import FiniteMonoid
from transductor.theory.real_cyclotomic import Exact

Subgroup = frozenset[int]


@final
@dataclass(frozen=True)
class CosetAction:
    """A group permutes the cosets of ``subgroup``, with a sign where an element of it is outside ``positive``.

    Attributes:
        subgroup: The elements that fix the first coset, up to sign.
        positive: Those that fix it with its sign: all of them, or half.
        kernel: The elements that fix every coset with its sign.
    """

    group: FiniteMonoid
    subgroup: Subgroup
    positive: Subgroup
    kernel: Subgroup

    @property
    def degree(self) -> int:
        """How many cosets there are."""
        return len(self.group) // len(self.subgroup)

    @property
    def signed(self) -> bool:
        """Whether some element changes a sign."""
        return self.positive != self.subgroup

    def images(self, elements: Sequence[int]) -> Iterator[list[tuple[int, int]]]:
        """Yield for each element where it takes every coset, and with which sign."""
        times, inverse = self.group.times, self.group.inverse_of
        place, first = dict[int, int](), list[int]()
        for element in range(len(self.group)):
            if element not in place:
                place.update((int(times[h, element]), len(first)) for h in self.subgroup)
                first.append(element)
        for element in elements:
            row = []
            for start in first:
                moved = int(times[start, element])
                within = int(times[moved, inverse[first[place[moved]]]])
                row.append((place[moved], 1 if within in self.positive else -1))
            yield row

    def matrices(self, elements: Sequence[int]) -> list[Exact]:
        """Return the matrix of each element, one entry ±1 in every column: that of a product is the later's first."""
        out = []
        for images in self.images(elements):
            matrix = np.zeros((self.degree, self.degree), dtype=object)
            for source, (target, sign) in enumerate(images):
                matrix[target, source] = sign
            out.append(matrix)
        return out


def subgroups(group: FiniteMonoid) -> list[list[Subgroup]]:
    """Return all subgroups in classes of conjugates, the smallest first."""
    times, inverse = group.times, np.array(group.inverse_of)
    conjugated = np.stack([times[times[inverse[g]], g] for g in range(len(group))])  # [g, x] is g⁻¹ x g
    trivial = frozenset({0})
    seen, pending, classes = {trivial}, [(1, trivial)], list[list[Subgroup]]()
    while pending:
        _, subgroup = heappop(pending)
        members = np.array(sorted(subgroup))
        conjugates = {frozenset(row) for row in conjugated[:, members].tolist()}
        classes.append(sorted(conjugates, key=sorted))
        for element in set(range(len(group))) - subgroup:
            larger = _generated(group, subgroup, element)
            if larger not in seen:
                seen |= {frozenset(row) for row in conjugated[:, np.array(sorted(larger))].tolist()}
                heappush(pending, (len(larger), larger))
    return classes


def _generated(group: FiniteMonoid, subgroup: Subgroup, element: int) -> Subgroup:
    """Return the group that a subgroup and one more element generate, by adding cosets of the subgroup."""
    times, start = group.times, np.array(sorted(subgroup))
    members, cosets = set(subgroup), [0]
    for representative in cosets:  # grows while it is read
        for factor in (element, *subgroup):
            moved = int(times[representative, factor])
            if moved not in members:
                members.update(times[start, moved].tolist())
                cosets.append(moved)
    return frozenset(members)


def coset_actions(group: FiniteMonoid, *, signed: bool) -> list[CosetAction]:
    """Return the actions on cosets, one for each class of subgroups, and with signs if asked."""
    classes = subgroups(group)
    actions = []
    for conjugates in classes:
        chosen = conjugates[0]
        halves = [chosen]
        if signed:
            halves += [half for others in classes for half in others if 2 * len(half) == len(chosen) and half < chosen]
        actions += [CosetAction(group, chosen, half, _core(group, half)) for half in halves]
    return actions


def _core(group: FiniteMonoid, subgroup: Subgroup) -> Subgroup:
    """Return the elements that are in every conjugate of a subgroup."""
    times, inverse = group.times, group.inverse_of
    core = set(subgroup)
    for g in range(len(group)):
        core &= {int(times[times[inverse[g], x], g]) for x in subgroup}
    return frozenset(core)


def least_faithful(actions: Sequence[CosetAction]) -> tuple[CosetAction, ...]:
    """Return some of the actions that are faithful side by side, with the fewest points in all.

    The trivial group needs none.  Every action of a group is a union of actions on cosets, so that no other has fewer.
    """
    if not actions:
        raise ValueError("actions must hold at least one action")
    order, tie = len(actions[0].group), count()
    queue: list[tuple[int, int, Subgroup, tuple[CosetAction, ...]]] = [(0, next(tie), frozenset(range(order)), ())]
    settled = set[Subgroup]()
    while queue:
        points, _, kernel, chosen = heappop(queue)
        if kernel == {0}:
            return chosen
        if kernel in settled:
            continue
        settled.add(kernel)
        for action in actions:
            smaller = kernel & action.kernel
            if smaller != kernel:
                heappush(queue, (points + action.degree, next(tie), smaller, (*chosen, action)))
    raise ValueError("actions must be faithful together")
