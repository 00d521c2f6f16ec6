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


def breadth_first(start: int, successors: Callable[[Integers], Integers], nodes: int) -> tuple[Integers, Integers]:
    """Return the nodes reachable from ``start`` in order of discovery, and their successors as places in that order.

    Args:
        start: One of the numbers ``0 … nodes − 1``.
        successors: Takes nodes ``(N)`` and gives their successors ``(N, letters)``.
        nodes: How many there are, reachable or not.
    """
    number = np.zeros(nodes, dtype=np.int64)  # from 1; memory that stays 0 is never touched, so products may be large
    number[start] = 1
    frontier = np.array([start], dtype=np.int64)
    discovered, rows = [], []
    count = 1
    while len(frontier):
        following = successors(frontier)
        discovered.append(frontier)
        rows.append(following)
        fresh = following[number[following] == 0]
        values, first_seen = np.unique(fresh, return_index=True)
        frontier = values[np.argsort(first_seen)]
        number[frontier] = np.arange(count + 1, count + 1 + len(frontier))
        count += len(frontier)
    return np.concatenate(discovered), number[np.concatenate(rows)] - 1


def graph_of(rows: Sequence[Sequence[int]]) -> Any:
    """Return the directed graph in which ``rows[node]`` are the successors of a node."""
    graph = networkx.DiGraph()
    graph.add_nodes_from(range(len(rows)))
    graph.add_edges_from((node, successor) for node, row in enumerate(rows) for successor in row)
    return graph
