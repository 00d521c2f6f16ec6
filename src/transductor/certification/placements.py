"""Finding what an error bound stands on: a place for every state, and a norm in which the head hardly grows.

Nothing here needs to be right: a certificate keeps what was found, and the bound is computed from that alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import numpy as np

from transductor.automata.moore import MooreMachine
from transductor.certification.balls import Array
from transductor.certification.horizon import Bound, Demands, bounded, nearest_demands, readout_demands
from transductor.certification.norms import Atoms, Ellipsoid, Euclidean, Largest, Norm, NormError, Sum
from transductor.certification.reachability import Graph, product_graph, refined_graph
from transductor.certification.subjects import Subject

_STEPS: Final = 300
_MOST_CLUSTERS: Final = 512


@dataclass(frozen=True, eq=False)
class Placement:
    """Where states lie and how errors are measured.

    Attributes:
        places: ``(D, n)``, of the nodes of the graph.
        kind: Of the norm.
        form: What the norm needs: the form of an ellipsoid, the inverse of atoms, else nothing.
        extra: ``(D, m)``: more atoms than the places.
        targets: ``(n, V)``, the graph, where it tells more states apart than the machine and the domain do.
    """

    places: Array
    kind: str
    form: Array | None = None
    extra: Array | None = None
    targets: Array | None = None


def norm_of(placement: Placement) -> Norm:
    """The norm of a placement; a ValueError if what it needs is not there."""
    places, form = placement.places, placement.form
    match placement.kind:
        case "sum":
            return Sum()
        case "largest":
            return Largest()
        case "euclidean":
            return Euclidean(len(places))
        case "ellipsoid" if form is not None and len(form) == len(places):
            return Ellipsoid(form)
        case "atoms" if form is not None and placement.extra is not None:
            return Atoms(places, placement.extra, form)
    raise NormError(f"norm must be sum, largest, euclidean, or ellipsoid or atoms with arrays; got {placement.kind!r}")


def demands_at(subject: Subject, graph: Graph, places: Array) -> Demands | None:
    """What the readout demands at these places; of a head without one, that states can be told apart."""
    if subject.weight is None:
        return nearest_demands(subject, graph, places)
    return readout_demands(subject, graph, places)


def placed(
    subject: Subject, machine: MooreMachine, domain: MooreMachine | None, horizon: int
) -> tuple[Placement, Bound] | None:
    """The placement with the longest horizon that was found; None if none could be tried."""
    best: tuple[Placement, Bound] | None = None
    for graph, refined in _graphs(subject, machine, domain):
        for places in _fits(subject, graph):
            demands = demands_at(subject, graph, places)
            if demands is None:
                continue
            for norm in _norms(subject, places):
                bound = bounded(subject, graph, places, norm, demands, horizon)
                if best is None or bound.holds_up_to > best[1].holds_up_to:
                    targets = graph.targets(subject.letters) if refined else None
                    best = Placement(places, norm.kind, targets=targets, **norm.witness()), bound
        if best is not None and best[1].holds_up_to >= min(horizon, 16 * graph.nodes):
            return best
    return best


def _graphs(subject: Subject, machine: MooreMachine, domain: MooreMachine | None) -> Iterator[tuple[Graph, bool]]:
    """One place for each state of the machine; where that fails, as many as the head visits."""
    plain = product_graph(machine, domain)
    yield plain, False
    for share in (0.3, 0.1, 0.03):
        targets = _clustered(subject, plain.targets(subject.letters), share)
        if targets is not None and len(targets) > plain.nodes:
            yield refined_graph(targets, machine, domain), True


def _clustered(subject: Subject, targets: Array, share: float) -> Array | None:
    """Nodes for near states of the head that share the machine's state; None if they do not close."""
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
            same = [place for place, node in enumerate(nodes) if node == after]
            gaps = [float(np.linalg.norm(state - centres[place])) for place in same]
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
    """Places by shortest words, and those with the least sum of squared residuals that start where the head does."""
    table = subject.table.astype(np.float64)
    places = np.zeros((subject.dim, graph.nodes))
    places[:, 0] = subject.initial
    for node in range(1, graph.nodes):
        edge = graph.parents[node]
        places[:, node] = table[graph.letter[edge]] @ places[:, graph.source[edge]]
    if not np.isfinite(places).all():
        return
    relaxed = _relaxed(table, graph, places)
    if np.isfinite(relaxed).all():
        yield relaxed
    yield places


def _relaxed(table: Array, graph: Graph, places: Array) -> Array:
    """Conjugate gradients on ``Σ ‖M s − s'‖²`` over the edges, with the first place held."""
    groups = [np.flatnonzero(graph.letter == letter) for letter in range(len(table))]

    def gradient(values: Array) -> Array:
        out = np.zeros_like(values)
        for matrix, edges in zip(table, groups, strict=True):
            rest = matrix @ values[:, graph.source[edges]] - values[:, graph.target[edges]]
            np.add.at(out.T, graph.source[edges], (matrix.T @ rest).T)
            np.add.at(out.T, graph.target[edges], -rest.T)
        out[:, 0] = 0
        return out

    values, down = places.copy(), -gradient(places)
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


def _norms(subject: Subject, places: Array) -> Iterator[Norm]:
    yield Sum()
    yield Largest()
    yield Euclidean(subject.dim)
    form = _invariant_form(subject.table.astype(np.float64))
    if form is not None:
        with suppress(NormError):
            yield Ellipsoid(form)
    directions, sizes, _ = np.linalg.svd(places)
    spanned = int((sizes > 1e-6 * max(1e-300, float(sizes[0]))).sum())
    outside = directions[:, spanned:] * float(np.abs(places).sum(0).mean())
    for share in (1.0,) if spanned == subject.dim else (1.0, 0.1, 0.01):
        extra = share * outside
        with suppress(NormError):
            yield Atoms(places, extra, np.linalg.pinv(np.concatenate((places, extra), 1)))


def _invariant_form(table: Array) -> Array | None:
    """The mean of ``MᵀPM`` over ever longer words, from P = I: what a finite group leaves as it is."""
    dim = table.shape[1]
    form, total = np.eye(dim), np.zeros((dim, dim))
    for step in range(2 * _STEPS):
        # Half of it stays, so that nothing goes round in circles; the first half is forgotten.
        form = 0.5 * form + 0.5 * np.mean([matrix.T @ form @ matrix for matrix in table], 0)
        trace = float(np.trace(form))
        if not (np.isfinite(trace) and trace > 1e-200):
            return None
        form = form * (dim / trace)
        total = total + form if step >= _STEPS else total
    total = (total + total.T) / (2 * _STEPS)
    return None if np.allclose(total, np.eye(dim) * total[0, 0], atol=1e-6) else total
