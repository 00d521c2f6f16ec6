"""The loops that merge states of a prefix tree: folding one subtree into another, and what is folded next.

Importing this imports numba.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from transductor.automata.compiled import compiled
from transductor.automata.induction.prefix_tree import Tree

Array = Any  # a numpy array; inside the loops numba decides

NEVER = -1e300  # the score of a fold that is not allowed
BAYES, EVIDENCE, FIRST = 0, 1, 2  # how a fringe chooses: noise-tolerant, EDSM, RPNI
UNKNOWN, REFUSED = -1, -2  # in place of the score of a trial fold


class Evidence(NamedTuple):
    """What a fold is scored by: log(1 − η), log(η / (k − 1)), γ, how far agreement counts, and log Γ for the shape."""

    right: float
    wrong: float
    weight: float
    trust: float
    log_gamma: Array
    log_gamma_total: Array


class Logs(NamedTuple):
    """Pairs of nodes that a fold joins, what undoes a trial (pairs with labels, subtrees attached), and where it went.

    ``number`` is the place of a node among the states, −1 for others.  The third of a pair tells by which way out of
    the states its first node was reached, −1 for a state.  ``met`` is what EDSM remembers a fold by: a bit for every
    way out that it took, and for every state that had no label and got one.
    """

    pairs: Array
    labelled: Array
    attached: Array
    number: Array
    met: Array


class Fringe(NamedTuple):
    """What EDSM knows of trial folds, a row for each arc of a state, a column for each state.

    ``score`` is how many labels agree, UNKNOWN, or REFUSED for good: what contradicts itself still does after other
    folds.  ``met`` is that of the fold: another fold changes the score only if the two have met something in common.
    """

    score: Array
    met: Array


@compiled
def _evidence(counts: Array, right: float, wrong: float) -> float:
    """Return log of Σ_c (1/k) right^{n_c} wrong^{n − n_c}; ``right`` and ``wrong`` are logarithms."""
    total = 0.0
    most = 0.0
    for count in counts:
        total += count
        most = max(most, count)
    value = 0.0
    for count in counts:
        value += np.exp((count - most) * (right - wrong))
    return float(most * right + (total - most) * wrong + np.log(value / len(counts)))


@compiled
def _label_score(one: Array, other: Array, both: Array, right: float, wrong: float, way: int) -> float:
    """Return how well the labels of two nodes agree: a Bayes factor, or a count of agreements."""
    classes = len(one)
    some = 0
    others = 0
    for label in range(classes):
        some += one[label]
        others += other[label]
    if some == 0 or others == 0:
        return 0.0
    if way == BAYES:
        for label in range(classes):
            both[label] = one[label] + other[label]
        return _evidence(both, right, wrong) - _evidence(one, right, wrong) - _evidence(other, right, wrong)
    return 1.0 if np.argmax(one) == np.argmax(other) else NEVER


@compiled
def _shape_score(tree: Tree, node: int, other: int, log_gamma: Array, log_gamma_total: Array) -> float:
    """Return the Bayes factor for one distribution over next letters against two, Dirichlet ½.

    ``log_gamma[n]`` is log Γ(n + ½) − log Γ(½); ``log_gamma_total[n]`` is the same for the sum of all entries.
    """
    arcs, ends = tree.arcs, tree.ends
    one = ends[node]
    two = ends[other]
    value = 0.0
    if two > 0:
        value = log_gamma[one + two] - log_gamma[one] - log_gamma[two]
    for letter in range(arcs.shape[1]):
        count = arcs[other, letter]
        own = arcs[node, letter]
        one += own
        if count > 0:
            two += count
            value += log_gamma[own + count] - log_gamma[own] - log_gamma[count]
    if one == 0 or two == 0:
        return 0.0
    return float(value - log_gamma_total[one + two] + log_gamma_total[one] + log_gamma_total[two])


@compiled
def _bit(place: int, letter: int, letters: int) -> int:
    """Return the bit of a way out of the states; ``letters`` in place of a letter stands for the state itself."""
    return 1 << ((place * (letters + 1) + letter) % 61)


@compiled
def _folded(tree: Tree, into: int, node: int, evidence: Evidence, logs: Logs, way: int, trial: bool) -> float:
    """Fold the subtree of ``node`` into ``into`` and return the score; a trial leaves the tree as it was.

    A fold that is not allowed stops where it is, and must be a trial.
    """
    child, counts, arcs, ends, mass = tree.child, tree.counts, tree.arcs, tree.ends, tree.mass
    pairs, labelled, attached, number = logs.pairs, logs.labelled, logs.attached, logs.number
    classes, letters = counts.shape[1], child.shape[1]
    shaped, remembered = evidence.weight > 0, way == EVIDENCE
    both = np.empty(classes, np.int32)
    score = 0.0
    met = 0
    written, moved, joined = 1, 0, 0
    pairs[0, 0] = into
    pairs[0, 1] = node
    pairs[0, 2] = -1
    place = 0
    while place < written:
        one = pairs[place, 0]
        other = pairs[place, 1]
        out = pairs[place, 2]
        some = 0
        for label in range(classes):
            some += counts[other, label]
        if some > 0:
            labels = _label_score(counts[one], counts[other], both, evidence.right, evidence.wrong, way)
            score += labels * evidence.trust if labels > 0 else labels
            if score < 0.5 * NEVER:
                break
            if remembered and out < 0 and labels == 0:
                met |= _bit(number[one], letters, letters)
            for label in range(classes):
                counts[one, label] += counts[other, label]
            labelled[moved, 0] = one
            labelled[moved, 1] = other
            moved += 1
        if shaped:
            likeness = evidence.weight * _shape_score(tree, one, other, evidence.log_gamma, evidence.log_gamma_total)
            score += likeness * evidence.trust if likeness > 0 else likeness
            for letter in range(letters):
                arcs[one, letter] += arcs[other, letter]
            ends[one] += ends[other]
        if not trial:
            mass[one] += mass[other]
        for letter in range(letters):
            below = child[other, letter]
            if below >= 0:
                own = child[one, letter]
                way_out = out
                if remembered and out < 0 and (own < 0 or number[own] < 0):
                    way_out = number[one] * letters + letter
                    met |= _bit(number[one], letter, letters)
                if own < 0:
                    child[one, letter] = below
                    attached[joined, 0] = one
                    attached[joined, 1] = letter
                    joined += 1
                else:
                    pairs[written, 0] = own
                    pairs[written, 1] = below
                    pairs[written, 2] = way_out
                    written += 1
        place += 1
    logs.met[0] = met
    if trial:
        for each in range(joined - 1, -1, -1):
            child[attached[each, 0], attached[each, 1]] = -1
        for each in range(moved - 1, -1, -1):
            for label in range(classes):
                counts[labelled[each, 0], label] -= counts[labelled[each, 1], label]
        if shaped:
            for each in range(place - 1, -1, -1):
                one = pairs[each, 0]
                other = pairs[each, 1]
                for letter in range(letters):
                    arcs[one, letter] -= arcs[other, letter]
                ends[one] -= ends[other]
    return NEVER if score < 0.5 * NEVER else score


@compiled
def _try(tree: Tree, evidence: Evidence, red: Array, arc: int, target: int, fringe: Fringe, logs: Logs) -> None:
    """Fold the node at an arc into a state as a trial, unless it is known what that gives, and remember it."""
    if fringe.score[arc, target] != UNKNOWN:
        return
    child = tree.child
    letters = child.shape[1]
    place, letter = arc // letters, arc % letters
    node = child[red[place], letter]
    child[red[place], letter] = red[target]
    score = _folded(tree, red[target], node, evidence, logs, EVIDENCE, True)
    child[red[place], letter] = node
    fringe.score[arc, target] = REFUSED if score <= NEVER else int(score)
    fringe.met[arc, target] = logs.met[0] | _bit(place, letter, letters)


@compiled
def _forget(fringe: Fringe, arcs: int, reds: int, met: int) -> None:
    """Make unknown what may have another score after a fold that met all this."""
    for arc in range(arcs):
        for target in range(reds):
            if fringe.score[arc, target] >= 0 and fringe.met[arc, target] & met:
                fringe.score[arc, target] = UNKNOWN


@compiled
def _fits(tree: Tree, evidence: Evidence, red: Array, reds: int, arc: int, fringe: Fringe, logs: Logs) -> bool:
    """Return whether the node at an arc can be folded into any state."""
    for target in range(reds):
        if fringe.score[arc, target] >= 0:
            return True
    for target in range(reds):
        _try(tree, evidence, red, arc, target, fringe, logs)
        if fringe.score[arc, target] >= 0:
            return True
    return False


@compiled
def _best_pair(
    tree: Tree, evidence: Evidence, red: Array, reds: int, fringe: Fringe, logs: Logs
) -> tuple[int, int, int, bool]:
    """Return parent and letter of the node that EDSM decides about, the state it joins, and whether it joins none.

    The first node that fits nowhere becomes a state; only where there is none, the best pair is joined.
    """
    child, rank, number = tree.child, tree.rank, logs.number
    letters = child.shape[1]
    chosen, chosen_node, into = -1, -1, -1
    for arc in range(reds * letters):
        node = child[red[arc // letters], arc % letters]
        if node < 0 or number[node] >= 0 or (chosen >= 0 and rank[node] > rank[chosen_node]):
            continue
        if not _fits(tree, evidence, red, reds, arc, fringe, logs):
            chosen, chosen_node = arc, node
    if chosen >= 0:
        return red[chosen // letters], chosen % letters, -1, True
    best = -1
    for arc in range(reds * letters):
        node = child[red[arc // letters], arc % letters]
        if node < 0 or number[node] >= 0:
            continue
        for target in range(reds):
            _try(tree, evidence, red, arc, target, fringe, logs)
            if fringe.score[arc, target] > best:
                best = fringe.score[arc, target]
                chosen, into = arc, red[target]
    return (red[chosen // letters], chosen % letters, into, False) if chosen >= 0 else (-1, -1, -1, False)


@compiled
def _next_pair(
    tree: Tree, evidence: Evidence, way: int, red: Array, reds: int, logs: Logs
) -> tuple[int, int, int, bool]:
    """Return the same for the other ways: the node that most words pass, or the first, and the best or first fit."""
    child, mass, rank = tree.child, tree.mass, tree.rank
    chosen_parent, chosen_letter, chosen_into = -1, -1, -1
    for place in range(reds):
        parent = red[place]
        for letter in range(child.shape[1]):
            node = child[parent, letter]
            if node < 0 or logs.number[node] >= 0:
                continue
            current = -1 if chosen_parent < 0 else child[chosen_parent, chosen_letter]
            if way == BAYES:
                better = current < 0 or mass[node] > mass[current]
            else:
                better = current < 0 or rank[node] < rank[current]
            if better:
                chosen_parent, chosen_letter = parent, letter
    best = NEVER
    if chosen_parent >= 0:
        node = child[chosen_parent, chosen_letter]
        for target in range(reds):
            child[chosen_parent, chosen_letter] = red[target]
            score = _folded(tree, red[target], node, evidence, logs, way, True)
            if score > best:
                best = score
                chosen_into = red[target]
                if way == FIRST:
                    break
        child[chosen_parent, chosen_letter] = node
    return chosen_parent, chosen_letter, chosen_into, best <= (0.0 if way == BAYES else NEVER)


@compiled
def merged(
    tree: Tree, evidence: Evidence, way: int, most: int, steps: int, red: Array, reds: int, fringe: Fringe
) -> tuple[int, int]:
    """Make at most ``steps`` decisions at the fringe; return how many states there are, and whether nodes are left.

    That is 1 if some are, 0 if none is, −1 if more than ``most`` states are needed.  The tables are changed in place.
    ``red`` lists the nodes that are states already, ``reds`` of them; a child of one that is none itself is at the
    fringe.  BAYES decides about the node that most words pass; EVIDENCE folds the best pair unless a node at the fringe
    fits nowhere, which becomes a state; FIRST takes the first node and the first fit.  ``fringe`` has room for
    ``steps`` more states; EVIDENCE alone reads it.
    """
    child = tree.child
    size, letters = child.shape
    number = np.full(size, -1, np.int32)
    for place in range(reds):
        number[red[place]] = place
    logs = Logs(
        np.empty((size + 1, 3), np.int32),
        np.empty((size + 1, 2), np.int32),
        np.empty((size + 1, 2), np.int32),
        number,
        np.zeros(1, np.int64),
    )
    for _ in range(steps):
        if way == EVIDENCE:
            parent, letter, into, promoted = _best_pair(tree, evidence, red, reds, fringe, logs)
        else:
            parent, letter, into, promoted = _next_pair(tree, evidence, way, red, reds, logs)
        if parent < 0:
            return reds, 0
        node = child[parent, letter]
        met = _bit(number[parent], letter, letters)
        if promoted:
            if reds >= most:
                return reds, -1
            red[reds] = node
            number[node] = reds
            reds += 1
        else:
            child[parent, letter] = into
            _folded(tree, into, node, evidence, logs, way, False)
            met |= logs.met[0]
        if way == EVIDENCE:
            # A new state changes nothing in the tree, but there are other ways out now.
            _forget(fringe, reds * letters, reds, met)
    return reds, 1
