"""Searches for what an error bound stands on: a point for every state, and a norm in which the head hardly grows.

Nothing here needs to be right: a certificate keeps the points and the norm, and the bound is computed from them alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import numpy as np

from transductor.automata.moore import MooreMachine
from transductor.certification.ball_arithmetic import Array
from transductor.certification.bounds.anchors import Anchors, margins_at
from transductor.certification.bounds.horizon import Bound, bounded
from transductor.certification.bounds.norms import Atoms, Ellipsoid, Euclidean, Largest, Norm, NormError, Sum
from transductor.certification.reachability import Graph, product_graph, refined_graph
from transductor.certification.subjects import Subject

_STEPS: Final = 300
_MOST_CLUSTERS: Final = 512


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # numbers of any size are tried
def best_anchors(
    subject: Subject, machine: MooreMachine, domain: MooreMachine | None, horizon: int
) -> tuple[Anchors, Bound] | None:
    """Return the anchors with the longest horizon among all that are tried; None if none could be tried."""
    best: tuple[Anchors, Bound] | None = None
    for graph, refined in _graphs(subject, machine, domain):
        for points in _fits(subject, graph):
            margins = margins_at(subject, graph, points)
            if margins is None:
                continue
            for norm in _norms(subject, points):
                bound = bounded(subject, graph, points, norm, margins, horizon)
                if best is None or bound.holds_up_to > best[1].holds_up_to:
                    targets = graph.targets(subject.letters) if refined else None
                    best = Anchors(points, norm.kind, targets=targets, **norm.witness()), bound
        if best is not None and best[1].holds_up_to >= min(horizon, 16 * graph.nodes):
            return best
    return best


def _graphs(subject: Subject, machine: MooreMachine, domain: MooreMachine | None) -> Iterator[tuple[Graph, bool]]:
    """Yield the graph with one point for each state of the machine, then graphs with as many as the head visits."""
    plain = product_graph(machine, domain)
    yield plain, False
    for share in (0.3, 0.1, 0.03):
        targets = _clustered(subject, plain.targets(subject.letters), share)
        if targets is not None and len(targets) > plain.nodes:
            yield refined_graph(targets, machine, domain), True


def _clustered(subject: Subject, targets: Array, share: float) -> Array | None:
    """Return nodes for near states of the head that share the machine's state; None if they do not close."""
    table, first = subject.table.astype(np.float64), subject.initial.astype(np.float64)
    near = share * float(np.linalg.norm(first))
    centres, nodes, rows = [first], [0], []
    for number, centre in enumerate(centres):
        row = []
        for letter, after in enumerate(targets[nodes[number]].tolist()):
            if after < 0:
                row.append(-1)
                continue
            state = table[letter] @ centre
            same = [other for other, node in enumerate(nodes) if node == after]
            gaps = [float(np.linalg.norm(state - centres[other])) for other in same]
            if not gaps or min(gaps) > near:
                if len(centres) == _MOST_CLUSTERS or not np.isfinite(state).all():
                    return None
                same, gaps = [len(centres)], [0.0]
                centres.append(state)
                nodes.append(after)
            row.append(same[int(np.argmin(gaps))])
        rows.append(row)
    return np.array(rows, dtype=np.int64)


def _fits(subject: Subject, graph: Graph) -> Iterator[Array]:
    """Yield the points with the least squared residuals from the head's start, then those of shortest words."""
    table = subject.table.astype(np.float64)
    points = np.zeros((subject.dim, graph.nodes))
    points[:, 0] = subject.initial
    for node in range(1, graph.nodes):
        edge = graph.parents[node]
        points[:, node] = table[graph.letter[edge]] @ points[:, graph.source[edge]]
    if not np.isfinite(points).all():
        return
    relaxed = _relaxed(table, graph, points)
    if np.isfinite(relaxed).all():
        yield relaxed
    yield points


def _relaxed(table: Array, graph: Graph, points: Array) -> Array:
    """Run conjugate gradients on ``Σ ‖M s − s'‖²`` over the edges, with the first point held."""
    groups = [np.flatnonzero(graph.letter == letter) for letter in range(len(table))]

    def gradient(values: Array) -> Array:
        out = np.zeros_like(values)
        for matrix, edges in zip(table, groups, strict=True):
            rest = matrix @ values[:, graph.source[edges]] - values[:, graph.target[edges]]
            np.add.at(out.T, graph.source[edges], (matrix.T @ rest).T)
            np.add.at(out.T, graph.target[edges], -rest.T)
        out[:, 0] = 0
        return out

    values, down = points.copy(), -gradient(points)
    direction, size = down, float((down**2).sum())
    first = size
    for _ in range(_STEPS):
        if not size > 1e-30 * max(first, 1e-300):
            break
        curved = gradient(direction)
        curvature = float((direction * curved).sum())
        if not curvature > 0:
            break
        step = size / curvature
        values, down = values + step * direction, down - step * curved
        after = float((down**2).sum())
        direction, size = down + after / size * direction, after
    return values


def _norms(subject: Subject, points: Array) -> Iterator[Norm]:
    yield Sum()
    yield Largest()
    yield Euclidean(subject.dim)
    form = _invariant_form(subject.table.astype(np.float64))
    if form is not None:
        with suppress(NormError):
            yield Ellipsoid(form)
    directions, sizes, _ = np.linalg.svd(points)
    spanned = int((sizes > 1e-6 * max(1e-300, float(sizes[0]))).sum())
    outside = directions[:, spanned:] * float(np.abs(points).sum(0).mean())
    for share in (1.0,) if spanned == subject.dim else (1.0, 0.1, 0.01):
        extra = share * outside
        with suppress(NormError):
            yield Atoms(points, extra, np.linalg.pinv(np.concatenate((points, extra), 1)))


def _invariant_form(table: Array) -> Array | None:
    """Average ``MᵀPM`` over ever longer words, from P = I: a finite group leaves the average as it is."""
    dim = table.shape[1]
    form, total = np.eye(dim), np.zeros((dim, dim))
    for step in range(2 * _STEPS):
        # Half of the form stays, so that nothing goes round in circles; the first half of the steps does not count.
        form = 0.5 * form + 0.5 * np.mean([matrix.T @ form @ matrix for matrix in table], 0)
        trace = float(np.trace(form))
        if not (np.isfinite(trace) and trace > 1e-200):
            return None
        form = form * (dim / trace)
        total = total + form if step >= _STEPS else total
    total = (total + total.T) / (2 * _STEPS)
    return None if np.allclose(total, np.eye(dim) * total[0, 0], atol=1e-6) else total
