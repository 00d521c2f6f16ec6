"""The prefix tree of labelled words, as the loops over it read it.  Importing this imports numba.

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


class Tree(NamedTuple):
    """The tables of a prefix tree, a row for each node."""

    child: Array
    counts: Array
    arcs: Array
    ends: Array
    mass: Array
    rank: Array


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
