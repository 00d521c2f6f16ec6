"""How long a head that is nearly right stays right: sound bounds, rounding included.

Every node of a graph has an anchor point ``s`` in the head's space.  With ``h_t`` the states of the stored numbers in
exact arithmetic, ``e_t = h_t − s_t`` obeys ``e_t = M e_{t−1} + (M s_{t−1} − s_t)``, so that in a norm with ``‖M‖ ≤ μ``

    ‖e_t‖ ≤ μ ‖e_{t−1}‖ + ‖residual of the edge‖,           where dynamic programming gives the worst word;
    ‖ĥ_t − h_t‖ ≤ ‖h_0‖ max(1, μ)^t ((1 + κ)^t − 1),       for the computed ``ĥ_t``, in any order of the products.

The second line follows by induction over any tree of products: κ bounds ‖fl(AB) − AB‖ / ‖A‖‖B‖, and a state after t
letters is the root of a tree with t products.  A label is right while both together stay below the readout's margin.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from transductor.automata.moore import IGNORED
from transductor.certification.ball_arithmetic import (
    UNIT,
    Array,
    Ball,
    gamma,
    ordered_product,
    ordered_sum,
    power_above,
    sum_above,
    upper,
)
from transductor.certification.bounds.norms import Atoms, Norm
from transductor.certification.formats import cast_errors, linear_errors
from transductor.certification.reachability import Graph
from transductor.certification.subjects import Subject

_MOST_CLIMBED: Final = 128  # nodes of which the worst word is followed one by one
_MOST_MARGINS: Final = 400_000
_MOST_WORDS: Final = 4096  # words of one length that are all followed
_MOST_STEPS: Final = 2000  # letters after which no more words are followed


@dataclass(frozen=True, eq=False)
class Margins:
    """Numbers that must stay positive: ``functional · output + offset``, for each edge and each label that is wrong.

    Attributes:
        edge: ``(m)``.
        gap: ``(m)``: the number where states are at their anchor points.
        noise: ``(m)``: how far the computed number may be from it there.
        functional: ``(m)``: which row of ``functionals`` and ``weights`` belongs to it.
        functionals: ``(f, D)`` or ``(f, 2D)``.
        weights: Of the same shape: what a change of the state adds to the noise.
    """

    edge: Array
    gap: Array
    noise: Array
    functional: Array
    functionals: Array
    weights: Array

    @property
    def room(self) -> Array:
        """What is left for errors of the states."""
        return self.gap - self.noise


def outputs_on_edges(subject: Subject, graph: Graph, points: Array) -> Array:
    """Return what the head shows on every edge, ``(E, D)`` or ``(E, 2D)``, where nodes are at ``points (D, n)``."""
    after = points[:, graph.target].T
    return np.concatenate((after, points[:, graph.source].T), 1) if subject.lookback else after


def against_rivals(labels: Array, logits: Ball, noise: Array) -> tuple[Array, Array, Array, Array]:
    """Return edge, rival, gap and noise for every wrong label of an edge; one logit is a threshold with one rival."""
    edges = np.flatnonzero(labels != IGNORED)
    right = labels[edges]
    if logits.centre.shape[1] == 1:
        signs = np.where(right == 1, 1.0, -1.0)
        return edges, 1 - right, signs * logits.centre[edges, 0], noise[edges, 0]
    classes = logits.centre.shape[1]
    row, rival = np.nonzero(np.arange(classes) != right[:, None])
    edge, own = edges[row], right[row]
    gap = (logits[edge, own] - logits[edge, rival]).centre
    return edge, rival, gap, np.asarray(upper(noise[edge, own] + noise[edge, rival] + 2 * UNIT * np.abs(gap), 4))


def readout_margins(subject: Subject, graph: Graph, points: Array, *, exact: bool = False) -> Margins:
    """Return by how much a linear readout puts the right logit above every other.

    With ``exact``, states are exactly at the points, so that no sum with their zeros rounds.  Otherwise one more margin
    for each edge keeps the computed sums within the range of their format.
    """
    weight = subject.readout()[0].astype(np.float64)
    outputs = outputs_on_edges(subject, graph, points)
    sizes = np.abs(outputs)
    logits, noise = _logits(subject, outputs, sizes, None if exact else np.ones(sizes.shape, dtype=bool))
    labels = graph.labels[graph.target]
    edge, rival, gap, noise = against_rivals(labels, logits, noise)
    error, lost, classes = subject.readout_error(), 64 * subject.read.lost, len(weight)
    if classes == 1:
        functionals, functional = np.concatenate((-weight, weight)), labels[edge]
        weights = upper(error * np.abs(functionals) + lost, 3)
    else:
        functionals = (weight[:, None] - weight[None, :]).reshape(classes**2, -1)
        pairs = np.abs(weight)[:, None] + np.abs(weight)[None, :]
        weights = upper((error + 2 * UNIT) * pairs + lost, 3).reshape(classes**2, -1)
        functional = labels[edge] * classes + rival
    if exact:
        return Margins(edge, gap, noise, functional, functionals, weights)
    ranged = np.flatnonzero(labels != IGNORED)
    largest = upper(1.0 + sum_above(np.abs(weight), 0), 2)  # of a state, and of every term of every logit
    used = upper(ordered_product(sizes[ranged], largest[:, None])[:, 0] + np.abs(subject.readout()[1]).sum(), 8)
    return Margins(
        np.concatenate((edge, ranged)),
        np.concatenate((gap, np.full(len(ranged), subject.read.largest / 8))),
        np.concatenate((noise, used)),
        np.concatenate((functional, np.full(len(ranged), len(functionals)))),
        np.concatenate((functionals, np.zeros((1, subject.output_dim)))),
        np.concatenate((weights, largest[None])),
    )


def _logits(subject: Subject, outputs: Array, sizes: Array, occurs: Array | None) -> tuple[Ball, Array]:
    """Return logits ``(E, K)`` of exact outputs, and how far computed ones may be, outputs being up to ``sizes``.

    ``occurs (E, K)`` is False where an output is exactly 0; None where that is what ``sizes`` say.
    """
    weight, bias = (part.astype(np.float64).T for part in subject.readout())
    logits = Ball.exactly(outputs) @ Ball.exactly(weight) + Ball.exactly(bias)
    cast = np.where(sizes > 0, cast_errors(sizes, subject.scanned, subject.read), 0.0)
    read = upper(sizes + cast)
    errors = linear_errors(read, weight, bias, subject.read, occurs=occurs)
    moved = ordered_product(np.where(np.isfinite(cast), cast, 0.0), np.abs(weight))  # without range: errors is infinite
    return logits, np.asarray(upper(logits.radius + errors + moved, len(weight) + 4))


def separation_margins(subject: Subject, graph: Graph, points: Array) -> Margins | None:
    """Return by how much each output is nearest to its own point, among all points of its letter with other labels.

    This is what a head without a readout owes to any reader.  None where there are too many pairs to tell apart.
    """
    outputs, labels = outputs_on_edges(subject, graph, points), graph.labels[graph.target]
    pairs = []
    for letter in range(subject.letters):
        edges = np.flatnonzero((graph.letter == letter) & (labels != IGNORED))
        row, other = np.nonzero(labels[edges][:, None] != labels[edges])
        pairs.append(np.stack((edges[row], edges[other])))
        if sum(pair.shape[1] for pair in pairs) * subject.output_dim > 32 * _MOST_MARGINS:
            return None
    edge, other = np.concatenate(pairs, 1)
    apart = outputs[edge] - outputs[other]
    squares = ordered_sum(apart * apart, 1)
    noise = upper(8 * (subject.output_dim + 4) * UNIT * squares, 2)
    return Margins(edge, 0.5 * squares, noise, np.arange(len(edge)), apart, 4 * UNIT * np.abs(apart))


@dataclass(frozen=True)
class Bound:
    """A length up to which every word is right, and the numbers that say so."""

    holds_up_to: int
    numbers: dict[str, float | str] = field(default_factory=dict)


def bounded(subject: Subject, graph: Graph, points: Array, norm: Norm, margins: Margins, horizon: int) -> Bound:
    """Return the longest length up to ``horizon`` at which no word can be wrong, as far as this norm can tell.

    The anchor points ``(D, n)`` are taken as exact numbers; it does not matter where they come from.
    """
    initial, exact = Ball.exactly(subject.initial[:, None]), Ball.exactly(points)
    residuals = _residuals(subject, graph, exact, norm)
    worst = float(residuals.max(initial=0.0))
    if isinstance(norm, Atoms):
        growth = float(norm.growths_along(subject.table, graph.letter, graph.source, residuals).max())
    else:
        growth = float(norm.growths(subject.table).max())
    at_start = bool((points[:, 0] == subject.initial).all())
    start = 0.0 if at_start else float(norm.sizes(initial - exact[:, :1])[0])
    axes = float(norm.sizes(Ball.exactly(np.eye(subject.dim))).max())
    size = upper(float(norm.sizes(initial)[0]) + 2.0**-60 * axes)  # and what underflow may take
    # The largest entry of matrices of norm 1 and of states, of which no sum may overflow.
    entry = upper(subject.dim * float(norm.duals(np.eye(subject.dim)).max()) * max(axes, size), 4)
    rounding = upper(norm.distortion * subject.step_error(), 2)
    slopes, before = _slopes(subject, norm, margins)
    radius = float((margins.room / np.maximum(slopes, 1e-300)).min(initial=1e300))
    numbers = {"growth": growth, "residual": worst, "start": start, "rounding": rounding, "radius": radius}
    stated = {"norm": norm.kind} | {name: min(value, 1e300) for name, value in numbers.items()}
    if not all(map(math.isfinite, numbers.values())):
        return Bound(0, stated)

    follow = graph.nodes <= _MOST_CLIMBED  # otherwise every edge counts as the worst
    source, target = graph.source[margins.edge], graph.target[margins.edge]
    steps = graph.depths[source] + 1
    growth = max(1.0, growth)

    def fits(errors: Array, time: int) -> bool:
        if not power_above(growth, time) * entry < subject.range:
            return False
        products = upper(time * rounding * power_above(1.0 + upper(rounding), time), 4)
        total = upper(np.maximum(errors, 0.0) + size * power_above(growth, time) * products, 8)
        total = total if follow else np.broadcast_to(total, (graph.nodes,))
        with np.errstate(over="ignore"):
            used = upper(slopes * total[target] + (0.0 if before is None else before * total[source]), 3)
        return bool((used < margins.room)[steps <= time].all())

    if follow:
        costs = np.full((graph.nodes, graph.nodes), -np.inf)
        np.maximum.at(costs, (graph.source, graph.target), residuals)
        errors = np.where(np.arange(graph.nodes) == 0, start, -np.inf)
    else:
        costs, errors = np.full((1, 1), worst), np.full(1, start)
    return Bound(_climbed(costs, growth, errors, fits, horizon), stated)


def _residuals(subject: Subject, graph: Graph, points: Ball, norm: Norm) -> Array:
    """Bound how far each edge's letter takes the anchor point of its source from that of its target."""
    residuals = np.zeros(len(graph.source))
    for letter in range(subject.letters):
        edges = np.flatnonzero(graph.letter == letter)
        if len(edges):
            moved = Ball.exactly(subject.table[letter]) @ points[:, graph.source[edges]]
            residuals[edges] = norm.sizes(moved - points[:, graph.target[edges]])
    return residuals


def _slopes(subject: Subject, norm: Norm, margins: Margins) -> tuple[Array, Array | None]:
    """Bound how much an error of size 1 in ``h_t``, and in ``h_{t−1}`` where that is shown, lowers each margin."""
    dim = subject.dim
    coordinates = norm.duals(np.eye(dim))
    parts = []
    for begin in range(0, subject.output_dim, dim):
        block = slice(begin, begin + dim)
        duals = norm.duals(margins.functionals[:, block])
        noise = ordered_product(margins.weights[:, block], coordinates[:, None])[:, 0]
        parts.append(np.asarray(upper(duals + noise, dim + 2))[margins.functional])
    return parts[0], parts[1] if subject.lookback else None


def _climbed(costs: Array, growth: float, errors: Array, fits: Callable[[Array, int], bool], horizon: int) -> int:
    """Return the largest time at which the errors fit, by doubling: level k has the costs of the worst 2^k letters."""
    np.fill_diagonal(costs, np.maximum(np.diagonal(costs), 0.0))  # a shorter word is a word too
    levels = [(costs, growth)]
    while 2 ** len(levels) <= horizon and levels[-1][1] < 1e30:
        cost, factor = levels[-1]
        with np.errstate(over="ignore"):
            twice = (upper(factor * cost)[:, :, None] + cost[None, :, :]).max(1)
        levels.append((upper(twice, 2), upper(factor * factor)))
    time = 0
    for exponent in reversed(range(len(levels))):
        cost, factor = levels[exponent]
        with np.errstate(over="ignore"):
            after = upper((upper(factor * errors)[:, None] + cost).max(0), 2)
        if time + 2**exponent <= horizon and fits(after, time + 2**exponent):
            time, errors = time + 2**exponent, after
    return time


def enumerated(subject: Subject, graph: Graph, horizon: int) -> int:
    """Return the length up to which every single word was followed and is right, for any order of the products."""
    sizes_of_weight = np.abs(subject.readout()[0].astype(np.float64).T)
    table, step = subject.table.astype(np.float64), subject.step_error() + 4 * gamma(subject.dim + 1)
    targets = graph.targets(subject.letters)
    nodes = np.zeros(1, dtype=np.int64)
    states, sizes = subject.initial.astype(np.float64)[None], np.abs(subject.initial.astype(np.float64))[None]
    floor = 0.0  # so that a relative error covers underflow too
    growth = max(1.0, float(sum_above(np.abs(table).max(0), 0).max()))
    for time in range(1, min(horizon, _MOST_STEPS) + 1):
        row, letter = np.nonzero(targets[nodes] >= 0)
        if len(row) == 0:
            return horizon  # no word is longer
        if len(row) > _MOST_WORDS or not power_above(growth, time) * subject.dim * (1 + sizes.max()) < subject.range:
            return time - 1
        floor = max(floor, 2.0**-60 * (1 + float(sum_above(sizes, 1).max())))
        after, larger = np.empty((len(row), subject.dim)), np.empty((len(row), subject.dim))
        for each in range(subject.letters):
            here = letter == each
            after[here] = ordered_product(states[row[here]], table[each].T)
            larger[here] = upper(ordered_product(sizes[row[here]], np.abs(table[each].T)) + floor, subject.dim + 2)
        nodes = targets[nodes[row], letter]
        outputs, around = after, larger
        if subject.lookback:
            outputs, around = np.concatenate((after, states[row]), 1), np.concatenate((larger, sizes[row]), 1)
        spread = upper(time * step * power_above(1 + upper(step), time), 4)  # |ĥ − h| ≤ ((1 + γ)^t − 1) |M_t| … |h_0|
        logits, noise = _logits(subject, outputs, upper((1 + spread) * around, 2), None)
        noise = upper(noise + spread * ordered_product(around, sizes_of_weight), 4)
        _, _, gap, noise = against_rivals(graph.labels[nodes], logits, noise)
        if not (gap > noise).all():
            return time - 1
        states, sizes = after, larger
    return min(horizon, _MOST_STEPS)
