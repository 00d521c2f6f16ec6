"""Where words can lead: the machine, the domain and, where it is exact, the head itself, followed together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from transductor.automata.moore import MooreMachine
from transductor.certification.balls import Array
from transductor.certification.subjects import Subject

_MOST_NODES: Final = 200_000
_MOST_PRODUCTS: Final = 4_000_000  # entries of all elements of a semigroup of matrices


class TooMany(ValueError):
    """More states are reachable than are followed."""


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes in the order of their shortest words, node 0 before the first letter; edges in the order of their source.

    Attributes:
        source: ``(E)``; ``letter (E)`` leads from it to ``target (E)``.
        labels: ``(n)``: what must be shown on arriving at a node, ``IGNORED`` where anything goes.
        parents: ``(n)``: the edge by which a node was first reached, −1 for node 0.
        depths: ``(n)``: the length of a node's shortest word.
    """

    source: Array
    letter: Array
    target: Array
    labels: Array
    parents: Array
    depths: Array

    @property
    def nodes(self) -> int:
        """How many."""
        return len(self.labels)

    def targets(self, letters: int) -> Array:
        """``(n, V)``: the next node, −1 where a letter cannot come."""
        out = np.full((self.nodes, letters), -1, dtype=np.int64)
        out[self.source, self.letter] = self.target
        return out

    def word_to(self, node: int) -> tuple[int, ...]:
        """A shortest word that leads to a node."""
        letters = []
        while node:
            edge = self.parents[node]
            letters.append(int(self.letter[edge]))
            node = int(self.source[edge])
        return tuple(reversed(letters))

    def word_of(self, edge: int) -> tuple[int, ...]:
        """A shortest word whose last step is an edge."""
        return (*self.word_to(int(self.source[edge])), int(self.letter[edge]))

    @classmethod
    def from_targets(cls, targets: Array, labels: Array) -> Graph:
        """Of nodes that are numbered in the order of their shortest words."""
        source, letter = np.nonzero(targets >= 0)
        target = targets[source, letter]
        parents, depths = np.full(len(labels), -1), np.zeros(len(labels), dtype=np.int64)
        for edge, (before, after) in enumerate(zip(source.tolist(), target.tolist(), strict=True)):
            if after and parents[after] < 0:
                parents[after], depths[after] = edge, depths[before] + 1
        return cls(source, letter, target, labels, parents, depths)


Step = Callable[[int, int, int], tuple[int, int] | None]


def _together(machine: MooreMachine, domain: MooreMachine | None) -> tuple[tuple[int, int], Step]:
    """The start and the step of the machine and the domain together; None where the domain ends."""

    def step(state: int, place: int, letter: int) -> tuple[int, int] | None:
        after = int(machine.transitions[state, letter])
        if domain is None:
            return after, 0
        inside = int(domain.transitions[place, letter])
        return (after, inside) if domain.outputs[inside] == 1 else None

    return (machine.start, 0 if domain is None else domain.start), step


def product_graph(machine: MooreMachine, domain: MooreMachine | None) -> Graph:
    """The states of the machine that words of the domain reach, each with the state of the domain."""
    start, step = _together(machine, domain)
    numbers, found, rows = {start: 0}, [start], []
    for state, place in found:
        row = []
        for letter in range(machine.letters):
            after = step(state, place, letter)
            if after is not None and after not in numbers:
                numbers[after] = len(found)
                found.append(after)
            row.append(-1 if after is None else numbers[after])
        rows.append(row)
        if len(found) > _MOST_NODES:
            raise TooMany(f"machine and domain have more than {_MOST_NODES} states together")
    return Graph.from_targets(np.array(rows), machine.outputs[[state for state, _ in found]])


def refined_graph(targets: Array, machine: MooreMachine, domain: MooreMachine | None) -> Graph:
    """A graph ``targets (n, V)`` whose nodes each stand for one state of the product; a ValueError if one does not."""
    wrong = ValueError("the nodes must follow the machine and the domain letter by letter, in the order of their words")
    count = len(targets)
    if targets.shape != (count, machine.letters) or not count or targets.max() >= count:
        raise wrong
    start, step = _together(machine, domain)
    pairs: list[tuple[int, int] | None] = [start] + [None] * (count - 1)
    seen = 1
    for node in range(count):
        pair = pairs[node]
        if pair is None:
            raise wrong
        for letter in range(machine.letters):
            after, target = step(*pair, letter), int(targets[node, letter])
            if (after is None) != (target < 0):
                raise wrong
            if after is None:
                continue
            if pairs[target] is None:
                if target != seen:
                    raise wrong
                pairs[target], seen = after, seen + 1
            if pairs[target] != after:
                raise wrong
    return Graph.from_targets(targets, machine.outputs[[pair[0] for pair in pairs if pair is not None]])


@dataclass(frozen=True)
class Exactness:
    """Why a scan never rounds, and the largest entry of any product of its letters."""

    reason: str
    largest: int


def exactness(subject: Subject) -> Exactness | None:
    """Why the scan of a head never rounds, whatever the order of its products; None where it does or may."""
    table, initial = subject.table, subject.initial
    if ((np.abs(initial) < 2.0**-100) & (initial != 0)).any():
        return None  # so small that it may be flushed to zero
    if np.isin(table, (-1, 0, 1)).all():
        entries = np.abs(table)
        if (entries.sum(2) <= 1).all():
            reason = "every row of every matrix has at most one entry, 1 or -1: numbers are moved, never added"
            return Exactness(reason, 1)
        if (entries.sum(1) <= 1).all() and _sum_in_units(initial) <= 2**subject.mantissa:
            reason = "every column of every matrix has at most one entry, 1 or -1: sums of the initial state are exact"
            return Exactness(reason, 1)
    largest = _largest_of_semigroup(subject)
    if largest is not None and subject.dim * largest**2 * max(1, _sum_in_units(initial)) <= 2**subject.mantissa:
        reason = f"the letters generate finitely many integer matrices, with entries up to {largest}: sums are exact"
        return Exactness(reason, largest)
    return None


def _sum_in_units(values: Array) -> int:
    """The sum of absolute values in units of the largest power of two that divides them all."""
    fractions = [abs(float(value)).as_integer_ratio() for value in values]
    scale = max(bottom for _, bottom in fractions)
    integers = [top * (scale // bottom) for top, bottom in fractions]
    common = 0
    for integer in integers:
        common |= integer
    return sum(integers) // (common & -common) if common else 0


def _largest_of_semigroup(subject: Subject) -> int | None:
    """The largest entry of all products of letters, if they are integers and few; None otherwise."""
    if not (np.abs(subject.table) <= 1024).all() or (subject.table != np.rint(subject.table)).any():
        return None
    letters = subject.table.astype(np.int64)
    most = max(1, _MOST_PRODUCTS // subject.dim**2)
    found = {matrix.tobytes() for matrix in letters}
    level = list(letters)
    largest = int(np.abs(letters).max())
    while level and len(found) <= most and largest <= 1024:
        following = []
        for matrix in level:
            for product in letters @ matrix:
                key = product.tobytes()
                if key not in found:
                    found.add(key)
                    following.append(product)
                    largest = max(largest, int(np.abs(product).max()))
            if len(found) > most or largest > 1024:
                return None
        level = following
    return largest if not level else None


def exact_run(subject: Subject, machine: MooreMachine, domain: MooreMachine | None) -> tuple[Graph, Array]:
    """Every state of an exact head, beside those of machine and domain, and the states ``(D, n)`` of the nodes."""
    start, step = _together(machine, domain)
    first = subject.initial + 0.0  # no negative zeros, which would count as other states
    numbers = {(first.tobytes(), start): 0}
    found, rows = [(first, start)], []
    for state, pair in found:
        after_all = np.asarray(subject.table @ state) + 0.0
        row = []
        for letter, after in enumerate(after_all):
            moved = step(*pair, letter)
            if moved is None:
                row.append(-1)
                continue
            key = after.tobytes(), moved
            if key not in numbers:
                numbers[key] = len(found)
                found.append((after, moved))
            row.append(numbers[key])
        rows.append(row)
        if len(found) > _MOST_NODES:
            raise TooMany(f"head, machine and domain have more than {_MOST_NODES} states together")
    graph = Graph.from_targets(np.array(rows), machine.outputs[[pair[0] for _, pair in found]])
    return graph, np.stack([state for state, _ in found], 1).astype(np.float64)
