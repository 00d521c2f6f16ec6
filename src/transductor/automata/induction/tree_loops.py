"""The loops over a prefix tree: building it, and folding one subtree into another.  Importing this imports numba.

A node is a row of four tables: ``child`` (−1 where there is none), ``counts`` (how many words with each label end
there), ``arcs`` and ``ends`` (how many words of one class go on with each letter, or end), of ``mass``, the number
of words that pass, and of ``rank``, its place in order of length.  Nodes are numbered depth first, so that what a word
walks lies side by side in memory, for which folding waits otherwise.
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
    rank: Array


class Evidence(NamedTuple):
    """What a fold is scored by: log(1 − η), log(η / (k − 1)), γ, how far agreement counts, and log Γ for the shape."""

    right: float
    wrong: float
    weight: float
    trust: float
    log_gamma: Array
    log_gamma_total: Array


class Logs(NamedTuple):
    """Pairs of nodes that a fold joins, and what undoes a trial: which of them had labels, and subtrees attached."""

    pairs: Array
    labelled: Array
    attached: Array


class Fringe(NamedTuple):
    """What trial folds of a node at the fringe gave: with how many states, its best score, and with which state."""

    tried: Array
    score: Array
    into: Array


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
    # The classical algorithms take short words first, in order of letters: the place of each node in that order.
    order = np.empty(size, np.int32)
    place_of = np.empty(size, np.int32)
    order[0] = 0
    last = 1
    for place in range(size):
        node = order[place]
        place_of[node] = place
        for letter in range(letters):
            if child[node, letter] >= 0:
                order[last] = child[node, letter]
                last += 1
    number = np.empty(size, np.int32)
    rank = np.empty(size, np.int32)
    stack = order  # read by now
    stack[0] = 0
    waiting = 1
    last = 0
    while waiting > 0:
        waiting -= 1
        node = stack[waiting]
        number[node] = last
        rank[last] = place_of[node]
        last += 1
        for letter in range(letters - 1, -1, -1):
            if child[node, letter] >= 0:
                stack[waiting] = child[node, letter]
                waiting += 1
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
    return Tree(sorted_child, counts, arcs, ends, mass, rank)


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
def _folded(tree: Tree, into: int, node: int, evidence: Evidence, logs: Logs, way: int, trial: bool) -> float:
    """Fold the subtree of ``node`` into ``into`` and return the score; a trial leaves the tree as it was.

    A fold that is not allowed stops where it is, and must be a trial.
    """
    child, counts, arcs, ends, mass = tree.child, tree.counts, tree.arcs, tree.ends, tree.mass
    pairs, labelled, attached = logs
    classes, letters = counts.shape[1], child.shape[1]
    shaped = evidence.weight > 0
    both = np.empty(classes, np.int32)
    score = 0.0
    written, moved, joined = 1, 0, 0
    pairs[0, 0] = into
    pairs[0, 1] = node
    place = 0
    while place < written:
        one = pairs[place, 0]
        other = pairs[place, 1]
        some = 0
        for label in range(classes):
            some += counts[other, label]
        if some > 0:
            labels = _label_score(counts[one], counts[other], both, evidence.right, evidence.wrong, way)
            score += labels * evidence.trust if labels > 0 else labels
            if score < 0.5 * NEVER:
                break
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
                if own < 0:
                    child[one, letter] = below
                    attached[joined, 0] = one
                    attached[joined, 1] = letter
                    joined += 1
                else:
                    pairs[written, 0] = own
                    pairs[written, 1] = below
                    written += 1
        place += 1
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
def _best_pair(
    tree: Tree, evidence: Evidence, red: Array, reds: int, is_red: Array, fringe: Fringe, logs: Logs
) -> tuple[int, int, int, bool]:
    """Return parent and letter of the node that EDSM decides about, the state it joins, and whether it joins none.

    The first node that fits nowhere becomes a state; otherwise the best pair is joined.  What was tried since the last
    fold is known: a new state changes nothing in the tree.
    """
    child, rank = tree.child, tree.rank
    chosen_parent, chosen_letter, chosen_into, promoted = -1, -1, -1, False
    best = NEVER
    for place in range(reds):
        parent = red[place]
        for letter in range(child.shape[1]):
            node = child[parent, letter]
            if node < 0 or is_red[node]:
                continue
            for target in range(fringe.tried[node], reds):
                child[parent, letter] = red[target]
                score = _folded(tree, red[target], node, evidence, logs, EVIDENCE, True)
                child[parent, letter] = node
                if target == 0 or score > fringe.score[node]:
                    fringe.score[node] = score
                    fringe.into[node] = red[target]
            fringe.tried[node] = reds
            if fringe.score[node] <= NEVER:
                if not promoted or rank[node] < rank[child[chosen_parent, chosen_letter]]:
                    promoted = True
                    chosen_parent, chosen_letter = parent, letter
            elif not promoted and fringe.score[node] > best:
                best = fringe.score[node]
                chosen_parent, chosen_letter, chosen_into = parent, letter, fringe.into[node]
    return chosen_parent, chosen_letter, chosen_into, promoted


@compiled
def _next_pair(
    tree: Tree, evidence: Evidence, way: int, red: Array, reds: int, is_red: Array, logs: Logs
) -> tuple[int, int, int, bool]:
    """Return the same for the other ways: the node that most words pass, or the first, and the best or first fit."""
    child, mass, rank = tree.child, tree.mass, tree.rank
    chosen_parent, chosen_letter, chosen_into = -1, -1, -1
    for place in range(reds):
        parent = red[place]
        for letter in range(child.shape[1]):
            node = child[parent, letter]
            if node < 0 or is_red[node]:
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
def merged(tree: Tree, evidence: Evidence, way: int, most: int, steps: int, red: Array, reds: int) -> tuple[int, int]:
    """Make at most ``steps`` decisions at the fringe; return how many states there are, and whether nodes are left.

    That is 1 if some are, 0 if none is, −1 if more than ``most`` states are needed.  The tables are changed in place.
    ``red`` lists the nodes that are states already, ``reds`` of them; a child of one that is none itself is at the
    fringe.  BAYES decides about the node that most words pass; EVIDENCE folds the best pair unless a node at the fringe
    fits nowhere, which becomes a state; FIRST takes the first node and the first fit.
    """
    child = tree.child
    size = len(child)
    is_red = np.zeros(size, np.bool_)
    for place in range(reds):
        is_red[red[place]] = True
    logs = Logs(np.empty((size + 1, 2), np.int32), np.empty((size + 1, 2), np.int32), np.empty((size + 1, 2), np.int32))
    known = size if way == EVIDENCE else 0
    fringe = Fringe(np.zeros(known, np.int32), np.empty(known), np.empty(known, np.int32))
    for _ in range(steps):
        if way == EVIDENCE:
            parent, letter, into, promoted = _best_pair(tree, evidence, red, reds, is_red, fringe, logs)
        else:
            parent, letter, into, promoted = _next_pair(tree, evidence, way, red, reds, is_red, logs)
        if parent < 0:
            return reds, 0
        node = child[parent, letter]
        if promoted:
            if reds >= most:
                return reds, -1
            red[reds] = node
            is_red[node] = True
            reds += 1
        else:
            child[parent, letter] = into
            _folded(tree, into, node, evidence, logs, way, False)
            for each in range(known):
                fringe.tried[each] = 0
    return reds, 1
