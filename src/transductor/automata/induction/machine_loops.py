"""The loops over words that a machine reads: complete runs, and what changes when one arc does.

Importing this imports numba.  A machine is a table ``(states, letters)``.  ``path`` holds the state after every prefix
of every word, ``len + 1`` for each.  ``tally[state, label, size]`` counts prefixes by the state they lead to, their
label and their size; sizes matter to the density of a language alone, and are all 0 where that is left out.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from transductor.automata.induction.compiled import compiled

Array = Any  # a numpy array; inside the loops numba decides


class Words(NamedTuple):
    """Labelled words, one after the other.

    ``offsets`` says where each begins in ``text``; ``marks`` has the label of every prefix, negative where there is
    none; ``sizes`` has the place of each word in a tally.
    """

    text: Array
    offsets: Array
    marks: Array
    sizes: Array


class Walks(NamedTuple):
    """Which words walk an arc or visit a state, and where they do first; see ``first_walks``."""

    bounds: Array
    in_word: Array
    at: Array


@compiled
def run(words: Words, table: Array, start: int, path: Array, tally: Array, usage: Array) -> None:
    """Read all words; fill ``path``, ``tally`` and ``usage[state, letter]``, how often each arc is walked."""
    text, offsets, marks, sizes = words
    tally[:] = 0
    usage[:] = 0
    for word in range(len(offsets) - 1):
        state = start
        size = sizes[word]
        end = offsets[word + 1]
        for place in range(offsets[word], end + 1):
            path[place + word] = state
            mark = marks[place + word]
            if mark >= 0:
                tally[state, mark, size] += 1
            if place < end:
                usage[state, text[place]] += 1
                state = table[state, text[place]]


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
            seen[:] = -1
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


@compiled
def _reread(words: Words, path: Array, walks: Walks, kind: int, state: int, table: Array, tally: Array) -> None:
    """Move words in ``tally``: those that walk the arc, or visit the state, ``kind`` go on from ``state`` there."""
    text, offsets, marks, sizes = words
    in_word, at = walks.in_word, walks.at
    for entry in range(walks.bounds[kind], walks.bounds[kind + 1]):
        word = in_word[entry]
        current = state
        size = sizes[word]
        end = offsets[word + 1]
        for place in range(at[entry], end + 1):
            mark = marks[place + word]
            if mark >= 0:
                before = path[place + word]
                if before != current:
                    tally[before, mark, size] -= 1
                    tally[current, mark, size] += 1
            if place < end:
                current = table[current, text[place]]


@compiled
def _machine_bits(states: int, used: int, classes: int) -> float:
    """Return the bits of a machine: how many states, their labels, and a target for every arc that is walked."""
    return 2 * np.log2(states + 1.0) + states * np.log2(float(classes)) + used * np.log2(float(states))


@compiled
def description(tally: Array, table: Array, start: int, states: int, used: int, weight: float) -> tuple[float, int]:
    """Return the description length in bits, and the number of labels that the machine contradicts.

    The derivation is on the page about induction: labels given the machine, the machine, and ``weight`` times what the
    density of the classes saves on the words.
    """
    classes, longest = tally.shape[1], tally.shape[2]
    outputs = np.zeros(states, np.int64)
    total = 0
    right = 0
    for state in range(states):
        most = 0
        for label in range(classes):
            count = 0
            for size in range(longest):
                count += tally[state, label, size]
            total += count
            if count > most:
                most = count
                outputs[state] = label
        right += most
    errors = total - right
    bits = 0.5 * np.log2(total + 1.0) + errors * np.log2(max(classes - 1.0, 1.0))
    if 0 < errors < total:
        share = errors / total
        bits -= errors * np.log2(share) + (total - errors) * np.log2(1 - share)
    bits += _machine_bits(states, used, classes)
    if weight > 0:
        letters = table.shape[1]
        now = np.zeros(states)
        now[start] = 1.0
        density = np.zeros(classes)
        correct = np.zeros(classes)
        for size in range(longest):
            density[:] = 0
            correct[:] = 0
            for state in range(states):
                label = outputs[state]
                density[label] += now[state]
                correct[label] += tally[state, label, size]
            for label in range(classes):
                if correct[label] > 0 and density[label] > 0:
                    bits += weight * correct[label] * np.log2(density[label])
            following = np.zeros(states)
            for state in range(states):
                if now[state] > 0:
                    part = now[state] / letters
                    for letter in range(letters):
                        following[table[state, letter]] += part
            now = following
    return bits, errors


@compiled
def redirected(
    words: Words,
    path: Array,
    walks: Walks,
    table: Array,
    start: int,
    states: int,
    state: int,
    letter: int,
    tally: Array,
    used: int,
    weight: float,
) -> Array:
    """Return the description length for every target of one arc; ``letter`` −1 stands for the arc into the start.

    Which arcs are used is taken from the present machine: close, and settled by a complete run before a change is kept.
    """
    letters = table.shape[1]
    bits = np.empty(states)
    entry = letter < 0
    own = start if entry else table[state, letter]
    kind = states * letters + start if entry else state * letters + letter
    changed = np.empty_like(tally)
    for target in range(states):
        changed[:] = tally
        if not entry:
            table[state, letter] = target
        if target != own:
            _reread(words, path, walks, kind, target, table, changed)
        bits[target] = description(changed, table, target if entry else start, states, used, weight)[0]
    if not entry:
        table[state, letter] = own
    return bits


@compiled
def joined(
    words: Words,
    path: Array,
    walks: Walks,
    table: Array,
    start: int,
    states: int,
    state: int,
    tally: Array,
    used: int,
    weight: float,
) -> Array:
    """Return the description length when ``state`` gives way to every other state; infinite for itself.

    ``used`` counts the arcs that are walked, without those that leave ``state``.
    """
    letters = table.shape[1]
    bits = np.empty(states)
    bits[state] = np.inf
    changed = np.empty_like(tally)
    mended = np.empty_like(table)
    for target in range(states):
        if target == state:
            continue
        changed[:] = tally
        for row in range(states):
            for letter in range(letters):
                mended[row, letter] = target if table[row, letter] == state else table[row, letter]
        _reread(words, path, walks, states * letters + state, target, mended, changed)
        bits[target] = description(changed, mended, target if start == state else start, states, used, weight)[0]
        # The state is still in the table, without visits: take its share of the description away.
        bits[target] += _machine_bits(states - 1, used, tally.shape[1]) - _machine_bits(states, used, tally.shape[1])
    return bits
