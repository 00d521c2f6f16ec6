"""Where words can lead: graphs of the machine, the domain and, where it is exact, the head itself, side by side."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np

from transductor.automata.moore import MooreMachine
from transductor.certification.ball_arithmetic import Array
from transductor.certification.subjects import Subject

_MOST_NODES: Final = 200_000

_Node = TypeVar("_Node", bound=Hashable)


_Pair = tuple[int, int]  # a state of the machine, and one of the domain


class TooManyStates(ValueError):
    """The machine and the domain have more states together than are looked at."""


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes in the order of their shortest words, node 0 before the first letter; edges in the order of their source.

    Attributes:
        source: ``(E)``; ``letter (E)`` leads from it to ``target (E)``.
        labels: ``(n)``: what must be shown on arriving at a node, ``IGNORED`` where anything goes.
        parents: ``(n)``: the edge by which a node was first reached, −1 for node 0.
        depths: ``(n)``: the length of a node's shortest word.
        complete_to: The length up to which all words were followed; None if that is all words.
    """

    source: Array
    letter: Array
    target: Array
    labels: Array
    parents: Array
    depths: Array
    complete_to: int | None = None

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return len(self.labels)

    def targets(self, letters: int) -> Array:
        """Return the next nodes ``(n, V)``, −1 where a letter cannot come."""
        out = np.full((self.nodes, letters), -1, dtype=np.int64)
        out[self.source, self.letter] = self.target
        return out

    def word_to(self, node: int) -> tuple[int, ...]:
        """Return a shortest word that leads to a node."""
        letters = []
        while node:
            edge = self.parents[node]
            letters.append(int(self.letter[edge]))
            node = int(self.source[edge])
        return tuple(reversed(letters))

    def word_of(self, edge: int) -> tuple[int, ...]:
        """Return a shortest word whose last step is this edge."""
        return (*self.word_to(int(self.source[edge])), int(self.letter[edge]))

    @classmethod
    def from_targets(cls, targets: Array, labels: Array) -> Graph:
        """Build the graph of nodes that are numbered in the order of their shortest words.

        Where ``targets`` has fewer rows than there are nodes, the last nodes were not left again.
        """
        source, letter = np.nonzero(targets >= 0)
        target = targets[source, letter]
        parents, depths = np.full(len(labels), -1), np.zeros(len(labels), dtype=np.int64)
        for edge, (before, after) in enumerate(zip(source.tolist(), target.tolist(), strict=True)):
            if after and parents[after] < 0:
                parents[after], depths[after] = edge, depths[before] + 1
        complete_to = None if len(targets) == len(labels) else int(depths[len(targets)])
        return cls(source, letter, target, labels, parents, depths, complete_to)


def label_after(machine: MooreMachine, word: Iterable[int]) -> int:
    """Return the label of the state that a word leads to."""
    state = machine.start
    for letter in word:
        state = int(machine.transitions[state, letter])
    return int(machine.outputs[state])


def _product(machine: MooreMachine, domain: MooreMachine | None) -> tuple[_Pair, Callable[[_Pair, int], _Pair | None]]:
    """Return the start and the step of the machine and the domain side by side; None where the domain ends."""

    def step(pair: _Pair, letter: int) -> _Pair | None:
        after = int(machine.transitions[pair[0], letter])
        if domain is None:
            return after, 0
        inside = int(domain.transitions[pair[1], letter])
        return (after, inside) if domain.outputs[inside] == 1 else None

    return (machine.start, 0 if domain is None else domain.start), step


def _explored(start: _Node, successors: Callable[[_Node], Iterable[_Node | None]]) -> tuple[list[_Node], Array]:
    """Return the nodes reachable from ``start``, breadth-first, and the table ``(n, V)`` of their successors.

    With too many nodes the table ends before they do: the last of them were reached and not left again.
    """
    numbers, nodes, rows = {start: 0}, [start], []
    for node in nodes:
        if len(nodes) > _MOST_NODES:
            break
        row = []
        for after in successors(node):
            if after is not None and after not in numbers:
                numbers[after] = len(nodes)
                nodes.append(after)
            row.append(-1 if after is None else numbers[after])
        rows.append(row)
    return nodes, np.array(rows)


def product_graph(machine: MooreMachine, domain: MooreMachine | None) -> Graph:
    """Return the states of the machine that words of the domain reach, each with the state of the domain.

    Raises:
        TooManyStates: If there are more than 200 000.
    """
    start, step = _product(machine, domain)
    letters = range(machine.letters)
    pairs, targets = _explored(start, lambda pair: [step(pair, letter) for letter in letters])
    if len(targets) < len(pairs):
        raise TooManyStates(f"machine and domain have more than {_MOST_NODES} states together")
    return Graph.from_targets(targets, machine.outputs[[state for state, _ in pairs]])


def exact_run(subject: Subject, machine: MooreMachine, domain: MooreMachine | None) -> tuple[Graph, Array]:
    """Return the graph of an exact head beside machine and domain, and the states ``(D, n)`` of its nodes.

    Where there are more than 200 000, the graph ends there, complete up to a length.
    """
    start, step = _product(machine, domain)
    dtype = subject.table.dtype

    def successors(node: tuple[bytes, _Pair]) -> Iterable[tuple[bytes, _Pair] | None]:
        state, pair = np.frombuffer(node[0], dtype), node[1]
        for letter, after in enumerate(subject.table @ state + 0.0):  # no −0, which would count as another state
            moved = step(pair, letter)
            yield None if moved is None else (after.tobytes(), moved)

    nodes, targets = _explored(((subject.initial + 0.0).tobytes(), start), successors)
    graph = Graph.from_targets(targets, machine.outputs[[pair[0] for _, pair in nodes]])
    states = np.stack([np.frombuffer(state, dtype) for state, _ in nodes], 1)
    return graph, states.astype(np.float64)


def refined_graph(targets: Array, machine: MooreMachine, domain: MooreMachine | None) -> Graph:
    """Return the graph ``targets (n, V)``, whose nodes must each stand for one state of machine and domain."""
    wrong = ValueError("the nodes must follow the machine and the domain letter by letter, in the order of their words")
    count = len(targets)
    if targets.shape != (count, machine.letters) or not count or targets.max() >= count:
        raise wrong
    start, step = _product(machine, domain)
    pairs: list[_Pair | None] = [start] + [None] * (count - 1)
    seen = 1
    for node in range(count):
        pair = pairs[node]
        if pair is None:
            raise wrong
        for letter in range(machine.letters):
            after, target = step(pair, letter), int(targets[node, letter])
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
