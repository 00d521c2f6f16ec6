"""Graphs whose nodes are states: breadth-first numbering, and graphs for networkx.

Strongly connected components and depth-first orders come from networkx.  At 46,656 nodes and three letters it needs
0.7 s for the components, which is less than finding the nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

import networkx
import numpy as np
from numpy.typing import NDArray

from transductor.automata.table_loops import reached_states

Integers = NDArray[np.int64]
_Node = TypeVar("_Node", bound=Hashable)


def explored(
    roots: Iterable[_Node],
    successors: Callable[[_Node], Iterable[_Node]],
    *,
    limit: int | None = None,
    refusal: str = "",
) -> tuple[list[_Node], list[list[int]]]:
    """Return the nodes reachable from ``roots`` breadth-first, and for each node the numbers of its successors.

    More than ``limit`` nodes raise a ValueError with the message ``refusal``.
    """
    numbers = {root: number for number, root in enumerate(dict.fromkeys(roots))}
    nodes, rows = list(numbers), []
    for node in nodes:  # grows while it is read
        row = []
        for successor in successors(node):
            if successor not in numbers:
                numbers[successor] = len(nodes)
                nodes.append(successor)
            row.append(numbers[successor])
        if limit is not None and len(nodes) > limit:
            raise ValueError(refusal)
        rows.append(row)
    return nodes, rows


def breadth_first(table: Integers, start: int) -> tuple[Integers, Integers]:
    """Return the states that words lead to from ``start``, in order of discovery, and their table in that numbering.

    ``table[state, letter]`` is the next state.
    """
    order, place = reached_states(table.size, table, start)
    return order, place[table[order]]


def first_seen(classes: Integers) -> tuple[Integers, Integers]:
    """Number classes by their first member: the number of every node's class, and the first member of each."""
    _, first, inverse = np.unique(classes, return_index=True, return_inverse=True)
    order = np.argsort(first)
    number = np.empty_like(order)
    number[order] = np.arange(len(order))
    return number[inverse], first[order]


def word_along(edge_into: Integers, edge: int, letters: int) -> tuple[int, ...]:
    """Return the letters on the way to ``edge = place · letters + letter``; −1 marks the place where words begin."""
    word: list[int] = []
    while edge >= 0:
        place, letter = divmod(edge, letters)
        word.append(letter)
        edge = int(edge_into[place])
    return tuple(reversed(word))


def graph_of(rows: Sequence[Sequence[int]]) -> Any:
    """Return the directed graph in which ``rows[node]`` are the successors of a node."""
    graph = networkx.DiGraph()
    graph.add_nodes_from(range(len(rows)))
    graph.add_edges_from((node, successor) for node, row in enumerate(rows) for successor in row)
    return graph
