"""How long a head that is nearly right stays right: sound bounds, rounding included.

Every node of a graph has a place ``s`` in the head's space.  With ``h_t`` the states of the stored numbers in exact
arithmetic, ``e_t = h_t − s_t`` obeys ``e_t = M e_{t−1} + (M s_{t−1} − s_t)``, so that in a norm with ``‖M‖ ≤ μ``

    ‖e_t‖ ≤ μ ‖e_{t−1}‖ + ‖residual of the edge‖,                     the worst word is found by dynamic programming;
    ‖ĥ_t − h_t‖ ≤ ‖h_0‖ max(1, μ)^t ((1 + κ)^t − 1),                 for the computed ``ĥ_t``, however it is associated.

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
from transductor.certification.balls import UNIT, Array, Ball, gamma, ordered_product, power_above, sum_above, upper
from transductor.certification.norms import Atoms, Norm
from transductor.certification.reachability import Graph
from transductor.certification.subjects import RANGES, UNITS, Subject

_MOST_CLIMBED: Final = 128  # nodes of which the worst word is followed one by one
_MOST_DEMANDS: Final = 400_000
_MOST_WORDS: Final = 4096  # of one length that are all followed, and
_MOST_STEPS: Final = 2000  # how far


@dataclass(frozen=True, eq=False)
class Demands:
    """What must stay positive: ``functional · shown + offset``, for each edge and each label that must not win.

    Attributes:
        edge: ``(m)``.
        gap: ``(m)``: the value at the places.
        noise: ``(m)``: how far the computed value may be from it, the states being at their places.
        functional: ``(m)``: which row of
        functionals: ``(f, D)`` or ``(f, 2D)`` it is, and of
        weights: of the same shape: what a change of the state adds to the noise.
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


def shown_at(subject: Subject, graph: Graph, places: Array) -> Array:
    """What the head shows on every edge ``(E, D)`` or ``(E, 2D)``, given the places ``(D, n)``."""
    after = places[:, graph.target].T
    return np.concatenate((after, places[:, graph.source].T), 1) if subject.lookback else after


def pairwise(labels: Array, logits: Ball, noise: Array) -> tuple[Array, Array, Array, Array]:
    """Edge, rival, gap and noise of every rival of the right label; one logit is a threshold with one rival."""
    edges = np.flatnonzero(labels != IGNORED)
    right = labels[edges]
    if logits.centre.shape[1] == 1:
        signs = np.where(right == 1, 1.0, -1.0)
        return edges, 1 - right, signs * logits.centre[edges, 0], noise[edges, 0]
    classes = logits.centre.shape[1]
    place, rival = np.nonzero(np.arange(classes) != right[:, None])
    edge, own = edges[place], right[place]
    gap = (logits[edge, own] - logits[edge, rival]).centre
    return edge, rival, gap, np.asarray(upper(noise[edge, own] + noise[edge, rival] + 2 * UNIT * np.abs(gap), 4))


def readout_demands(subject: Subject, graph: Graph, places: Array) -> Demands:
    """Of a linear readout: the right logit above every other."""
    assert subject.weight is not None
    assert subject.bias is not None
    weight, bias = subject.weight.astype(np.float64), subject.bias.astype(np.float64)
    shown = shown_at(subject, graph, places)
    logits, noise = _logits(subject, shown, np.abs(shown))
    labels = graph.labels[graph.target]
    edge, rival, gap, noise = pairwise(labels, logits, noise)
    several = gamma(subject.shown + 2, UNITS[subject.precision])
    if len(bias) == 1:
        functionals = np.concatenate((-weight, weight))
        return Demands(edge, gap, noise, labels[edge], functionals, several * np.abs(functionals))
    classes = len(bias)
    sizes = np.abs(weight)[:, None] + np.abs(weight)[None, :]
    functionals = (weight[:, None] - weight[None, :]).reshape(classes**2, -1)
    weights = upper((several + 2 * UNIT) * sizes, 3).reshape(classes**2, -1)
    return Demands(edge, gap, noise, labels[edge] * classes + rival, functionals, weights)


def _logits(subject: Subject, shown: Array, sizes: Array) -> tuple[Ball, Array]:
    """Logits ``(E, K)`` at exact states, and how far computed ones may be where states are as large as ``sizes``."""
    assert subject.weight is not None
    assert subject.bias is not None
    weight, bias = subject.weight.astype(np.float64).T, subject.bias.astype(np.float64)
    logits = Ball.exactly(shown) @ Ball.exactly(weight) + Ball.exactly(bias)
    total = upper(ordered_product(sizes, np.abs(weight)) + np.abs(bias), subject.shown + 2)
    noise = upper(logits.radius + gamma(subject.shown + 2, UNITS[subject.precision]) * total, 4)
    return logits, np.where(total < RANGES[subject.precision], noise, np.inf)


def nearest_demands(subject: Subject, graph: Graph, places: Array) -> Demands | None:
    """Of whoever reads the head: what it shows stays nearest to where it belongs, among all that the token leaves open.

    None where there are too many pairs to tell apart.
    """
    shown, labels = shown_at(subject, graph, places), graph.labels[graph.target]
    pairs = []
    for letter in range(subject.letters):
        edges = np.flatnonzero((graph.letter == letter) & (labels != IGNORED))
        place, other = np.nonzero(labels[edges][:, None] != labels[edges])
        pairs.append(np.stack((edges[place], edges[other])))
        if sum(pair.shape[1] for pair in pairs) * subject.shown > 32 * _MOST_DEMANDS:
            return None
    edge, other = np.concatenate(pairs, 1)
    apart = shown[edge] - shown[other]
    squares = np.zeros(len(edge))
    for column in apart.T:
        squares = squares + column * column
    noise = upper(8 * (subject.shown + 4) * UNIT * squares, 2)
    return Demands(edge, 0.5 * squares, noise, np.arange(len(edge)), apart, 4 * UNIT * np.abs(apart))


@dataclass(frozen=True)
class Bound:
    """Up to which length every word is right, and the numbers that say so."""

    holds_up_to: int
    numbers: dict[str, float | str] = field(default_factory=dict)


def bounded(subject: Subject, graph: Graph, places: Array, norm: Norm, demands: Demands, horizon: int) -> Bound:
    """The longest length up to ``horizon`` at which no word can be wrong, as far as this norm can tell.

    ``places (D, n)`` are exact numbers; how they were found does not matter.
    """
    initial, exact = Ball.exactly(subject.initial[:, None]), Ball.exactly(places)
    residuals = _residuals(subject, graph, exact, norm)
    worst = float(residuals.max(initial=0.0))
    if isinstance(norm, Atoms):
        growth = float(norm.growths_along(subject.table, graph.letter, graph.source, residuals).max())
    else:
        growth = float(norm.growths(subject.table).max())
    at_start = bool((places[:, 0] == subject.initial).all())
    start = 0.0 if at_start else float(norm.sizes(initial - exact[:, :1])[0])
    axes = float(norm.sizes(Ball.exactly(np.eye(subject.dim))).max())
    size = upper(float(norm.sizes(initial)[0]) + 2.0**-60 * axes)  # and what underflow may take
    # The largest entry of matrices of norm 1 and of states, of which no sum may overflow.
    entry = upper(subject.dim * float(norm.duals(np.eye(subject.dim)).max()) * max(axes, size), 4)
    rounding = upper(norm.distortion * subject.step_error(), 2)
    slopes, before = _slopes(subject, norm, demands)
    radius = float((demands.room / np.maximum(slopes, 1e-300)).min(initial=1e300))
    numbers = {"growth": growth, "residual": worst, "start": start, "rounding": rounding, "radius": radius}
    found = {"norm": norm.kind} | {name: min(value, 1e300) for name, value in numbers.items()}
    if not all(map(math.isfinite, numbers.values())):
        return Bound(0, found)

    follow = graph.nodes <= _MOST_CLIMBED  # else every edge counts as the worst
    source, target = graph.source[demands.edge], graph.target[demands.edge]
    steps = graph.depths[source] + 1
    growth = max(1.0, growth)

    def fits(errors: Array, time: int) -> bool:
        if not power_above(growth, time) * entry < subject.range:
            return False
        products = upper(time * rounding * power_above(1.0 + upper(rounding), time), 4)
        total = upper(np.maximum(errors, 0.0) + size * power_above(growth, time) * products, 8)
        total = total if follow else np.broadcast_to(total, (graph.nodes,))
        with np.errstate(over="ignore"):
            wanted = upper(slopes * total[target] + (0.0 if before is None else before * total[source]), 3)
        return bool((wanted < demands.room)[steps <= time].all())

    if follow:
        costs = np.full((graph.nodes, graph.nodes), -np.inf)
        np.maximum.at(costs, (graph.source, graph.target), residuals)
        errors = np.where(np.arange(graph.nodes) == 0, start, -np.inf)
    else:
        costs, errors = np.full((1, 1), worst), np.full(1, start)
    return Bound(_climbed(costs, growth, errors, fits, horizon), found)


def _residuals(subject: Subject, graph: Graph, places: Ball, norm: Norm) -> Array:
    """How far each edge's letter takes the place of its source from that of its target."""
    residuals = np.zeros(len(graph.source))
    for letter in range(subject.letters):
        edges = np.flatnonzero(graph.letter == letter)
        if len(edges):
            moved = Ball.exactly(subject.table[letter]) @ places[:, graph.source[edges]]
            residuals[edges] = norm.sizes(moved - places[:, graph.target[edges]])
    return residuals


def _slopes(subject: Subject, norm: Norm, demands: Demands) -> tuple[Array, Array | None]:
    """By how much an error of size 1 in ``h_t``, and in ``h_{t−1}`` where that is shown, lowers each demand."""
    dim = subject.dim
    coordinates = norm.duals(np.eye(dim))
    parts = []
    for place in range(0, subject.shown, dim):
        block = slice(place, place + dim)
        duals = norm.duals(demands.functionals[:, block])
        noise = ordered_product(demands.weights[:, block], coordinates[:, None])[:, 0]
        parts.append(np.asarray(upper(duals + noise, dim + 2))[demands.functional])
    return parts[0], parts[1] if subject.lookback else None


def _climbed(costs: Array, growth: float, errors: Array, fits: Callable[[Array, int], bool], horizon: int) -> int:
    """The largest time at which the errors fit, by doubling: ``costs[k]`` are those of the worst 2^k letters."""
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
    """Up to which length every single word was followed and found right, for any order of the products."""
    assert subject.weight is not None
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
        shown, around = after, larger
        if subject.lookback:
            shown, around = np.concatenate((after, states[row]), 1), np.concatenate((larger, sizes[row]), 1)
        spread = upper(time * step * power_above(1 + upper(step), time), 4)  # |ĥ − h| ≤ ((1 + γ)^t − 1) |M_t| … |h_0|
        logits, noise = _logits(subject, shown, upper((1 + spread) * around, 2))
        noise = upper(noise + spread * ordered_product(around, np.abs(subject.weight.astype(np.float64).T)), 4)
        _, _, gap, noise = pairwise(graph.labels[nodes], logits, noise)
        if not (gap > noise).all():
            return time - 1
        states, sizes = after, larger
    return min(horizon, _MOST_STEPS)
