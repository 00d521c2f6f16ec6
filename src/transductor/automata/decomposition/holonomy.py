"""The skeleton of a machine: its image sets, their classes and heights, their tiles and holonomy groups.

An *image set* is all states, a single state, or what a word leaves of either.  A set P is *subdued* to Q if some word
makes of Q a set that holds P; sets subdued to each other form a class, and the longest chain of classes below a class
is its height.  The *tiles* of a set are the largest image sets properly inside it.  The words that return a set to
itself permute its tiles: its *holonomy group*.
"""

from __future__ import annotations

from collections.abc import Iterator

import networkx

from transductor.automata.decomposition.permutation_groups import Permutation, PermutationGroup
from transductor.automata.graphs import Integers, explored, graph_of


def members(mask: int) -> tuple[int, ...]:
    """Return the states of a bit mask."""
    return tuple(state for state in range(mask.bit_length()) if mask >> state & 1)


class Skeleton:
    """The image sets of a machine as bit masks, numbered; set 0 holds all states.

    ``moves[number][letter]`` is the set that a letter makes of a set.  ``classes`` lists the members of each class, its
    representative first.  ``tiles[number]`` lists tiles in the order in which a word brings them from the
    representative, so that the same place means the same tile throughout a class.
    """

    def __init__(self, table: Integers, limit: int) -> None:
        self.sets, self.moves = _image_sets(table, limit)
        # A class comes after those that its letters lead to.
        components = networkx.kosaraju_strongly_connected_components(graph_of(self.moves))
        self.classes = [sorted(component) for component in components]
        self.class_of = {number: which for which, equals in enumerate(self.classes) for number in equals}
        self.tiles: list[tuple[int, ...]] = [()] * len(self.sets)
        self.heights = [0] * len(self.sets)
        large_first = sorted(range(len(self.sets)), key=lambda number: -self.sets[number].bit_count())
        # Among sets of one size, a class already comes after the classes that its letters lead to.
        for equals in sorted(self.classes, key=lambda equals: self.sets[equals[0]].bit_count()):
            if self.sets[equals[0]].bit_count() > 1:
                self._settle(equals, large_first)

    def carried(self, number: int, letter: int) -> Permutation:
        """Return how a letter that keeps the class of a set permutes its tiles, seen from the representative."""
        place = {tile: i for i, tile in enumerate(self.tiles[self.moves[number][letter]])}
        return tuple(place[self.moves[tile][letter]] for tile in self.tiles[number])

    def group(self, which: int) -> PermutationGroup:
        """Return the holonomy group of a class, on the tiles of its representative.

        A word that returns to the representative never leaves the class, so its single moves generate the group.
        """
        equals = self.classes[which]
        generators = {
            self.carried(number, letter)
            for number in equals
            for letter, reached in enumerate(self.moves[number])
            if self.class_of[reached] == which
        }
        degree = len(self.tiles[equals[0]])
        return PermutationGroup(degree, tuple(sorted(generators - {tuple(range(degree))})))

    def _settle(self, equals: list[int], large_first: list[int]) -> None:
        """Set the tiles and the height of one class, when all classes below have theirs."""
        representative = equals[0]
        which = self.class_of[representative]
        self.tiles[representative] = self._largest_inside(representative, large_first)
        below = {self.heights[tile] for tile in self.tiles[representative]}
        pending = [representative]
        for number in pending:
            for letter, reached in enumerate(self.moves[number]):
                if self.class_of[reached] != which:
                    below.add(self.heights[reached])
                elif not self.tiles[reached]:
                    self.tiles[reached] = tuple(self.moves[tile][letter] for tile in self.tiles[number])
                    pending.append(reached)
        for number in equals:
            self.heights[number] = 1 + max(below)

    def _largest_inside(self, number: int, large_first: list[int]) -> tuple[int, ...]:
        outside = ~self.sets[number]
        tiles: list[int] = []
        for other in large_first:
            mask = self.sets[other]
            if not mask & outside and other != number and all(mask & ~self.sets[tile] for tile in tiles):
                tiles.append(other)
        return tuple(sorted(tiles, key=lambda tile: members(self.sets[tile])))


def _image_sets(table: Integers, limit: int) -> tuple[list[int], list[list[int]]]:
    """Return all states, single states, and what letters make of them; with the number that each letter leads to."""
    columns = table.T.tolist()
    states = len(table)

    def images(mask: int) -> Iterator[int]:
        for column in columns:
            image = 0
            for state in members(mask):
                image |= 1 << column[state]
            yield image

    roots = [(1 << states) - 1, *(1 << state for state in range(states))]
    refusal = f"limit allows {limit} image sets and this machine has more; raise limit or decompose a smaller machine"
    return explored(roots, images, limit=limit, refusal=refusal)
