"""The loops over a prefix tree: building it, and folding one subtree into another.  Importing this imports numba.

A node is a row of four tables: ``child`` (−1 where there is none), ``counts`` (how many words with each label end
there), ``arcs`` and ``ends`` (how many words of one class go on with each letter, or end), and of ``mass``, the number
of words that pass.  Nodes are numbered in order of length, then of letters.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from transductor.automata.compiled import compiled

Array = Any  # a numpy array; inside the loops numba decides

NEVER = -1e300  # the score of a fold that is not allowed
BAYES, EVIDENCE, FIRST = 0, 1, 2  # how a fringe chooses: noise-tolerant, EDSM, RPNI


class Tree(NamedTuple):
    """The tables of a prefix tree, a row for each node."""

    child: Array
    counts: Array
    arcs: Array
    ends: Array
    mass: Array


class Evidence(NamedTuple):
    """What a fold is scored by: log(1 − η), log(η / (k − 1)), γ, how far agreement counts, and log Γ for the shape."""

    right: float
    wrong: float
    weight: float
    trust: float
    log_gamma: Array
    log_gamma_total: Array


class Logs(NamedTuple):
    """What a fold has done, so that it can be undone: pairs of nodes joined, and subtrees attached."""

    pairs: Array
    attached: Array


@compiled
def tree_of(text: Array, offsets: Array, marks: Array, letters: int, classes: int, shaped: int) -> Tree:
    """Return the prefix tree of the words.

    Args:
        text: The letters of all words, one after the other.
        offsets: Where each word begins in ``text``, and its length at the end.
        marks: The label of every prefix, ``len + 1`` for each word; negative where there is none.
        letters: How many letters there are.
        classes: How many labels there are.
        shaped: The class whose words ``arcs`` and ``ends`` count, by the label of the complete word; −1 for none.
    """
    words = len(offsets) - 1
    child = np.full((len(text) + 1, letters), -1, np.int32)
    size = 1
    for word in range(words):
        node = 0
        for place in range(offsets[word], offsets[word + 1]):
            following = child[node, text[place]]
            if following < 0:
                following = size
                child[node, text[place]] = size
                size += 1
            node = following
    # Renumber in order of length, so that the classical algorithms meet short words first.
    order = np.empty(size, np.int32)
    number = np.empty(size, np.int32)
    order[0] = 0
    last = 1
    for place in range(size):
        node = order[place]
        number[node] = place
        for letter in range(letters):
            if child[node, letter] >= 0:
                order[last] = child[node, letter]
                last += 1
    sorted_child = np.full((size, letters), -1, np.int32)
    for node in range(size):
        for letter in range(letters):
            if child[node, letter] >= 0:
                sorted_child[number[node], letter] = number[child[node, letter]]
    counts = np.zeros((size, classes), np.int32)
    arcs = np.zeros((size, letters), np.int32)
    ends = np.zeros(size, np.int32)
    mass = np.zeros(size, np.int32)
    for word in range(words):
        node = 0
        begin, end = offsets[word], offsets[word + 1]
        counted = shaped >= 0 and marks[end + word] == shaped
        for place in range(begin, end + 1):
            mass[node] += 1
            mark = marks[place + word]
            if mark >= 0:
                counts[node, mark] += 1
            if place < end:
                if counted:
                    arcs[node, text[place]] += 1
                node = sorted_child[node, text[place]]
            elif counted:
                ends[node] += 1
    return Tree(sorted_child, counts, arcs, ends, mass)


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
def _folded(tree: Tree, into: int, node: int, evidence: Evidence, logs: Logs, way: int) -> tuple[float, int, int]:
    """Fold the subtree of ``node`` into ``into``; return the score and how much of the two logs was written.

    A fold that is not allowed stops where it is; the logs allow it to be undone.
    """
    child, counts, arcs, ends, mass = tree
    pairs, attached = logs
    both = np.empty(counts.shape[1], np.int32)
    score = 0.0
    written = 1
    joined = 0
    pairs[0, 0] = into
    pairs[0, 1] = node
    place = 0
    while place < written:
        one = pairs[place, 0]
        other = pairs[place, 1]
        place += 1
        labels = _label_score(counts[one], counts[other], both, evidence.right, evidence.wrong, way)
        score += labels * evidence.trust if labels > 0 else labels
        if evidence.weight > 0:
            score += evidence.weight * _shape_score(tree, one, other, evidence.log_gamma, evidence.log_gamma_total)
        for label in range(counts.shape[1]):
            counts[one, label] += counts[other, label]
        for letter in range(child.shape[1]):
            arcs[one, letter] += arcs[other, letter]
        ends[one] += ends[other]
        mass[one] += mass[other]
        if score < 0.5 * NEVER:
            return NEVER, place, joined
        for letter in range(child.shape[1]):
            below = child[other, letter]
            if below >= 0:
                if child[one, letter] < 0:
                    child[one, letter] = below
                    attached[joined, 0] = one
                    attached[joined, 1] = letter
                    joined += 1
                else:
                    pairs[written, 0] = child[one, letter]
                    pairs[written, 1] = below
                    written += 1
    return score, written, joined


@compiled
def _undone(tree: Tree, logs: Logs, written: int, joined: int) -> None:
    """Take a fold back, last step first."""
    child, counts, arcs, ends, mass = tree
    pairs, attached = logs
    for place in range(joined - 1, -1, -1):
        child[attached[place, 0], attached[place, 1]] = -1
    for place in range(written - 1, -1, -1):
        one = pairs[place, 0]
        other = pairs[place, 1]
        for label in range(counts.shape[1]):
            counts[one, label] -= counts[other, label]
        for letter in range(child.shape[1]):
            arcs[one, letter] -= arcs[other, letter]
        ends[one] -= ends[other]
        mass[one] -= mass[other]


@compiled
def merged(tree: Tree, evidence: Evidence, way: int, most: int, steps: int, red: Array, reds: int) -> tuple[int, int]:
    """Make at most ``steps`` decisions at the fringe; return how many states there are, and whether nodes are left.

    That is 1 if some are, 0 if none is, −1 if more than ``most`` states are needed.  The tables are changed in place.
    ``red`` lists the nodes that are states already, ``reds`` of them; a child of one that is none itself is at the
    fringe.  BAYES decides about the node that most words pass; EVIDENCE folds the best pair unless a node at the fringe
    fits nowhere, which becomes a state; FIRST takes the first node and the first fit.
    """
    child, mass = tree.child, tree.mass
    size, letters = child.shape
    is_red = np.zeros(size, np.bool_)
    for place in range(reds):
        is_red[red[place]] = True
    logs = Logs(np.empty((size + 1, 2), np.int32), np.empty((size + 1, 2), np.int32))
    for _ in range(steps):
        chosen_parent, chosen_letter, chosen_into, promoted = -1, -1, -1, False
        if way == EVIDENCE:
            best = NEVER
            for place in range(reds):
                parent = red[place]
                for letter in range(letters):
                    node = child[parent, letter]
                    if node < 0 or is_red[node]:
                        continue
                    top = NEVER
                    for target in range(reds):
                        child[parent, letter] = red[target]
                        score, written, joined = _folded(tree, red[target], node, evidence, logs, way)
                        _undone(tree, logs, written, joined)
                        child[parent, letter] = node
                        top = max(top, score)
                        if score > best and not promoted:
                            best = score
                            chosen_parent, chosen_letter, chosen_into = parent, letter, red[target]
                    if top <= NEVER and (not promoted or node < child[chosen_parent, chosen_letter]):
                        promoted = True
                        chosen_parent, chosen_letter = parent, letter
        else:
            for place in range(reds):
                parent = red[place]
                for letter in range(letters):
                    node = child[parent, letter]
                    if node < 0 or is_red[node]:
                        continue
                    current = -1 if chosen_parent < 0 else child[chosen_parent, chosen_letter]
                    if way == BAYES:
                        better = current < 0 or mass[node] > mass[current]
                    else:
                        better = current < 0 or node < current
                    if better:
                        chosen_parent, chosen_letter = parent, letter
            if chosen_parent >= 0:
                node = child[chosen_parent, chosen_letter]
                best = NEVER
                for target in range(reds):
                    child[chosen_parent, chosen_letter] = red[target]
                    score, written, joined = _folded(tree, red[target], node, evidence, logs, way)
                    _undone(tree, logs, written, joined)
                    if score > best:
                        best = score
                        chosen_into = red[target]
                        if way == FIRST:
                            break
                child[chosen_parent, chosen_letter] = node
                promoted = best <= (0.0 if way == BAYES else NEVER)
        if chosen_parent < 0:
            return reds, 0
        node = child[chosen_parent, chosen_letter]
        if promoted:
            if reds >= most:
                return reds, -1
            red[reds] = node
            is_red[node] = True
            reds += 1
        else:
            child[chosen_parent, chosen_letter] = chosen_into
            _folded(tree, chosen_into, node, evidence, logs, way)
    return reds, 1
