"""Refinement: from the states of a spectral machine to a probabilistic automaton, by clusters and EM.

A spectral machine need not be a distribution, and its likelihood is not what the singular values optimise.  Its states,
though, tell which prefixes have the same future.  They are clustered, the clusters become the states of a probabilistic
automaton, and EM raises its likelihood.  More states than the source has make EM far less likely to end in a poor
maximum; how many is decided on strings held out, as is the number of steps and the weight of the background.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from transductor.automata.probabilistic import SmoothedModel, smoothed
from transductor.automata.spectral.expectation import Forward, PrefixTree, em_step
from transductor.automata.weighted import WeightedAutomaton
from transductor.automata.weights import Array

Progress = Callable[[float, str], None]

SMOOTHING: Final = (1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1)
"""Weights of the background that are tried."""
_RELAXATION: Final = 1.8
_STEPS_BETWEEN_CHECKS: Final = 5
_CHECKS: Final = 8  # for each number of states; the best two go on
_MORE_CHECKS: Final = 24
_SIZES: Final = (2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
_CLUSTERED: Final = 15_000  # prefixes that clusters are looked for in, the most frequent ones
_ROUNDS: Final = 12
_IN_VAIN: Final = 2  # or where so many larger ones are no better
_WORSE: Final = 1.002  # growing ends where the perplexity is this much above the best


@dataclass(frozen=True, eq=False)
class Judged:
    """A machine, the weight of the background that suits it, and the perplexity on held-out strings with it."""

    machine: WeightedAutomaton
    smoothing: float
    perplexity: float


def judged(machine: WeightedAutomaton, tree: PrefixTree, background: Array) -> Judged:
    """Return the machine with the best weight of the background for the strings of a tree."""
    onward, ending = symbol_probabilities(smoothed(machine, weight=0.0, background=background), tree)
    letters = background[tree.letters[1:]]
    best = Judged(machine, SMOOTHING[-1], math.inf)
    for weight in SMOOTHING:
        total = tree.passes[1:] @ np.log((1 - weight) * onward + weight * letters)
        total += tree.ends @ np.log((1 - weight) * ending + weight * background[-1])
        perplexity = math.exp(min(-float(total) / tree.symbols, 700.0))
        if perplexity < best.perplexity:
            best = Judged(machine, weight, perplexity)
    return best


def symbol_probabilities(model: SmoothedModel, tree: PrefixTree) -> tuple[Array, Array]:
    """Return the probability of the last letter of every prefix but the empty one, and of ending at every prefix."""
    states = Forward.of(model.automaton, tree).states
    onward, ending = np.empty(len(states)), np.empty(len(states))
    children = np.argsort(tree.parents[1:], kind="stable") + 1
    bounds = np.searchsorted(tree.parents[children], np.arange(len(states) + 1))
    for begin in range(0, len(states), 20_000):
        end = min(begin + 20_000, len(states))
        predicted = model.predicted(states[begin:end])
        ending[begin:end] = predicted[:, -1]
        nodes = children[bounds[begin] : bounds[end]]
        onward[nodes] = predicted[tree.parents[nodes] - begin, tree.letters[nodes]]
    return onward[1:], ending


def clustered(
    prefix_machine: WeightedAutomaton, scales: Array, tree: PrefixTree, count: int, seed: int
) -> WeightedAutomaton:
    """Return a probabilistic automaton whose states are clusters of the prefixes with similar futures.

    Args:
        prefix_machine: A machine of the probabilities of beginning with a word.
        scales: Singular values of its states: distances between states are distances between predicted futures.
        tree: The sample.
        count: How many clusters.
        seed: Seed of the first centres.
    """
    states = Forward.of(prefix_machine, tree).states
    mass = states @ prefix_machine.final
    sure = mass > 1e-6  # elsewhere the machine gives the prefix no probability, and its state says nothing
    points = np.where(sure[:, None], states / np.where(sure, mass, 1.0)[:, None], 0.0)
    points = np.clip(points, -50.0, 50.0) * np.sqrt(scales[: prefix_machine.dim])
    frequent = np.argsort(-tree.passes, kind="stable")[:_CLUSTERED]
    centres = _centres(points[frequent], tree.passes[frequent].astype(np.float64), count, np.random.default_rng(seed))
    labels = np.concatenate(
        [_nearest(points[begin : begin + 20_000], centres) for begin in range(0, len(points), 20_000)]
    )
    size, letters = len(centres), len(tree.alphabet)
    matrices = np.zeros((letters, size, size))
    np.add.at(matrices, (tree.letters[1:], labels[1:], labels[tree.parents[1:]]), tree.passes[1:])
    # A weight of zero stays zero in EM, so everything begins possible.
    matrices += 0.02 * matrices.sum(axis=(0, 1)) / (letters * size) + 1e-3
    final = np.bincount(labels, tree.ends, size) + 0.01
    outgoing = final + matrices.sum(axis=(0, 1))
    initial = np.full(size, 0.1 / size)
    initial[labels[0]] += 0.9
    return WeightedAutomaton(initial, matrices / outgoing, final / outgoing, tree.alphabet, weights="float")


def refined(
    starts: Callable[[int], WeightedAutomaton], kept: PrefixTree, held: PrefixTree, background: Array, most_states: int,
    on_progress: Progress | None = None,
) -> Judged:  # fmt: skip
    """Return the probabilistic automaton that predicts held-out strings best, of 2, 4, 8, 12 … ``most_states`` states.

    Args:
        starts: Gives a machine of a number of states for EM to begin with.
        kept: The strings to learn from.
        held: The strings that decide.
        background: Probabilities of letters and, last, of the end.
        most_states: The largest number of states to try.
        on_progress: Called with the share that is done and a sentence.
    """
    sizes = [size for size in _SIZES if size < most_states] + [most_states]
    tried: list[tuple[Judged, bool]] = []
    for number, size in enumerate(sizes):
        tried.append(_maximised(starts(size), kept, held, background, _CHECKS))
        if on_progress is not None:
            share, perplexity = 0.2 + 0.6 * (number + 1) / len(sizes), tried[-1][0].perplexity
            on_progress(share, f"{size} states: held-out perplexity {perplexity:.5g}")
        perplexities = [model.perplexity for model, _ in tried]
        best = int(np.argmin(perplexities))
        if perplexities[-1] > _WORSE * perplexities[best] or len(tried) - 1 - best >= _IN_VAIN:
            break
    tried.sort(key=lambda each: each[0].perplexity)
    further = [
        _maximised(model.machine, kept, held, background, _MORE_CHECKS)[0] for model, rising in tried[:2] if rising
    ]
    return min([tried[0][0], *further], key=lambda model: model.perplexity)


def _maximised(
    machine: WeightedAutomaton, kept: PrefixTree, held: PrefixTree, background: Array, checks: int
) -> tuple[Judged, bool]:
    """Return the best machine on the way of EM by held-out strings, and whether the last check was still better."""
    best, relaxation, before = judged(machine, held, background), _RELAXATION, -math.inf
    for _ in range(checks):
        for _ in range(_STEPS_BETWEEN_CHECKS):
            machine, likelihood = em_step(machine, kept, relaxation=relaxation)
            relaxation = 1.0 if likelihood < before else _RELAXATION  # a step too far is followed by a plain one
            before = likelihood
        now = judged(machine, held, background)
        if now.perplexity >= best.perplexity:
            return best, False
        best = now
    return best, True


def _centres(points: Array, weights: Array, count: int, random: np.random.Generator) -> Array:
    """Return at most ``count`` centres of clusters: k-means, begun far apart."""
    centres = [points[random.choice(len(points), p=weights / weights.sum())]]
    distances = ((points - centres[0]) ** 2).sum(axis=1)
    while len(centres) < count and (total := float(weights @ distances)) > 0:
        centres.append(points[random.choice(len(points), p=weights * distances / total)])
        distances = np.minimum(distances, ((points - centres[-1]) ** 2).sum(axis=1))
    means = np.array(centres)
    for _ in range(_ROUNDS):
        labels = _nearest(points, means)
        sizes = np.bincount(labels, weights, len(means))
        sums = np.stack([np.bincount(labels, weights * column, len(means)) for column in points.T], axis=1)
        means = np.where(sizes[:, None] > 0, sums / np.maximum(sizes, 1e-12)[:, None], means)
    return means


def _nearest(points: Array, centres: Array) -> Array:
    return np.asarray(((centres**2).sum(axis=1) - 2 * points @ centres.T).argmin(axis=1))
