"""Labelled words as the loops read them, and where they walk each arc first.  Importing this imports numba."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from transductor.automata.compiled import compiled

Array = Any  # a numpy array; inside the loops numba decides


class Words(NamedTuple):
    """Labelled words, one after the other.

    ``offsets`` says where each begins in ``text``; ``marks`` has the label of every prefix, negative where there is
    none; ``sizes`` has the place of each word in a tally; ``each_prefix`` tells whether shorter prefixes have labels.
    """

    text: Array
    offsets: Array
    marks: Array
    sizes: Array
    each_prefix: bool


class Walks(NamedTuple):
    """Which words walk an arc or visit a state, and where they do first; see ``first_walks``."""

    bounds: Array
    in_word: Array
    at: Array


@compiled
def first_walks(words: Words, path: Array, states: int, letters: int) -> Walks:
    """Return where each word walks each arc, and visits each state, for the first time.

    Arcs are numbered ``state · letters + letter``; then come the states.  Entry i lies in ``bounds[i]:bounds[i + 1]``
    of the two lists ``word`` and ``place``: the place in ``text`` of the first letter read after the arc or state.
    """
    text, offsets = words.text, words.offsets
    kinds = states * letters + states
    bounds = np.zeros(kinds + 1, np.int64)
    seen = np.full(kinds, -1, np.int64)
    for turn in range(2):
        if turn == 1:
            total = 0
            for kind in range(kinds + 1):
                count = bounds[kind]
                bounds[kind] = total
                total += count
            in_word = np.empty(total, np.int32)
            at = np.empty(total, np.int32)
            seen = np.full(kinds, -1, np.int64)
        for word in range(len(offsets) - 1):
            end = offsets[word + 1]
            for place in range(offsets[word], end + 1):
                state = path[place + word]
                kind = states * letters + state
                if seen[kind] != word:
                    seen[kind] = word
                    if turn == 1:
                        in_word[bounds[kind]] = word
                        at[bounds[kind]] = place
                    bounds[kind] += 1
                if place < end:
                    kind = state * letters + text[place]
                    if seen[kind] != word:
                        seen[kind] = word
                        if turn == 1:
                            in_word[bounds[kind]] = word
                            at[bounds[kind]] = place + 1
                        bounds[kind] += 1
    for kind in range(kinds, 0, -1):
        bounds[kind] = bounds[kind - 1]
    bounds[0] = 0
    return Walks(bounds, in_word, at)
