"""The loops over words that a machine reads: complete runs, and what changes when one arc does.

Importing this imports numba.  A machine is a table ``(states, letters)``.  ``path`` holds the state after every prefix
of every word, ``len + 1`` for each.  ``tally[state, label, size]`` counts prefixes by the state they lead to, their
label and their size, the number of letters, which matters to the density of a class alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from transductor.automata.compiled import compiled
from transductor.automata.induction.word_walks import Walks, Words

Array = Any  # a numpy array; inside the loops numba decides
LANES = 16  # targets that are followed side by side


class Present(NamedTuple):
    """The machine that a move would change: what words do in it, how many arcs they walk, the weight of densities."""

    path: Array
    walks: Walks
    table: Array
    start: int
    states: int
    tally: Array
    used: int
    weight: float


# Loops instead of ``tally[:] = 0`` and the like: numba compiles them in a fraction of the time.


@compiled
def _clear(tally: Array) -> None:
    """Set every count to zero."""
    for state in range(tally.shape[0]):
        for label in range(tally.shape[1]):
            for size in range(tally.shape[2]):
                tally[state, label, size] = 0


@compiled
def _add(other: Array, tally: Array) -> None:
    """Add the counts of ``other``, which may have fewer states."""
    for state in range(other.shape[0]):
        for label in range(tally.shape[1]):
            for size in range(tally.shape[2]):
                tally[state, label, size] += other[state, label, size]


@compiled
def _size(words: Words, word: int, place: int, last: int) -> int:
    """Return the place in a tally of a prefix: that of its word, or its length where all prefixes have labels."""
    if words.each_prefix:
        return int(min(words.sizes[word] + place - words.offsets[word], last))
    return int(words.sizes[word])


@compiled
def run(words: Words, table: Array, start: int, path: Array, tally: Array, usage: Array) -> None:
    """Read all words; fill ``path``, ``tally`` and ``usage[state, letter]``, how often each arc is walked."""
    text, offsets, marks = words.text, words.offsets, words.marks
    last = tally.shape[2] - 1
    _clear(tally)
    for state in range(usage.shape[0]):
        for letter in range(usage.shape[1]):
            usage[state, letter] = 0
    for word in range(len(offsets) - 1):
        state = start
        end = offsets[word + 1]
        for place in range(offsets[word], end + 1):
            path[place + word] = state
            mark = marks[place + word]
            if mark >= 0:
                tally[state, mark, _size(words, word, place, last)] += 1
            if place < end:
                usage[state, text[place]] += 1
                state = table[state, text[place]]


@compiled
def _reread(
    words: Words, path: Array, walks: Walks, kind: int, first: int, table: Array, tally: Array, changed: Array
) -> None:
    """Fill ``changed`` with a tally for every target from ``first`` on: that of the words that walk arc ``kind``.

    They, or those that visit the state ``kind``, go on from the target; where the table has −1, it leads there too.
    Targets are followed side by side, since the next step of one walk can only wait for the last.
    """
    text, offsets, marks = words.text, words.offsets, words.marks
    letters, lanes = table.shape[1], len(changed)
    last = tally.shape[2] - 1
    for lane in range(lanes):
        _clear(changed[lane])
        _add(tally, changed[lane])
    following = np.empty((letters, len(table)), np.int32)
    for letter in range(letters):
        for state in range(len(table)):
            following[letter, state] = table[state, letter]
    current = np.empty(lanes, np.int32)
    for entry in range(walks.bounds[kind], walks.bounds[kind + 1]):
        word = walks.in_word[entry]
        end = offsets[word + 1]
        for lane in range(lanes):
            current[lane] = first + lane
        for place in range(walks.at[entry], end + 1):
            mark = marks[place + word]
            if mark >= 0:
                size = _size(words, word, place, last)
                before = path[place + word]
                for lane in range(lanes):
                    changed[lane, before, mark, size] -= 1
                    changed[lane, current[lane], mark, size] += 1
            if place < end:
                row = following[text[place]]
                for lane in range(lanes):
                    target = row[current[lane]]
                    current[lane] = first + lane if target < 0 else target


@compiled
def _machine_bits(states: int, used: int, classes: int) -> float:
    """Return the bits of a machine: how many states, their labels, and a target for every arc that is walked."""
    return float(2 * np.log2(states + 1.0) + states * np.log2(float(classes)) + used * np.log2(float(states)))


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
        balance = np.zeros(
            classes
        )  # right labels less wrong ones; an accident on both sides must not count as evidence
        for size in range(longest - 1):  # the last place is for all longer words
            density, balance = np.zeros(classes), np.zeros(classes)
            for state in range(states):
                own = outputs[state]
                density[own] += now[state]
                for label in range(classes):
                    balance[own] += tally[state, label, size] if label == own else -tally[state, label, size]
            for label in range(classes):
                if balance[label] > 0 and density[label] > 0:
                    bits += weight * balance[label] * np.log2(density[label])
            following = np.zeros(states)
            for state in range(states):
                if now[state] > 0:
                    part = now[state] / letters
                    for letter in range(letters):
                        following[table[state, letter]] += part
            now = following
    return bits, errors


@compiled
def redirected(words: Words, present: Present, state: int, letter: int) -> Array:
    """Return the description length for every target of one arc; ``letter`` −1 stands for the arc into the start.

    Which arcs are used is taken from the present machine: close, and settled by a complete run before a change is kept.
    """
    path, walks, table, start, states, tally, used, weight = present
    letters = table.shape[1]
    bits = np.empty(states)
    entry = letter < 0
    own = start if entry else table[state, letter]
    kind = states * letters + start if entry else state * letters + letter
    for first in range(0, states, LANES):
        changed = np.empty((min(LANES, states - first), *tally.shape), tally.dtype)
        if not entry:
            table[state, letter] = -1
        _reread(words, path, walks, kind, first, table, tally, changed)
        for lane in range(len(changed)):
            target = first + lane
            if not entry:
                table[state, letter] = target
            bits[target] = description(changed[lane], table, target if entry else start, states, used, weight)[0]
    if not entry:
        table[state, letter] = own
    return bits


@compiled
def _with(table: Array, state: int, target: int) -> Array:
    """Return the table with ``target`` in place of ``state``."""
    mended = np.empty(table.shape, table.dtype)
    for row in range(table.shape[0]):
        for letter in range(table.shape[1]):
            mended[row, letter] = target if table[row, letter] == state else table[row, letter]
    return mended


@compiled
def joined(words: Words, present: Present, state: int) -> Array:
    """Return the description length when ``state`` gives way to every other state; infinite for itself.

    ``used`` counts the arcs that are walked, without those that leave ``state``.
    """
    path, walks, table, start, states, tally, used, weight = present
    letters = table.shape[1]
    bits = np.empty(states)
    for first in range(0, states, LANES):
        changed = np.empty((min(LANES, states - first), *tally.shape), tally.dtype)
        _reread(words, path, walks, states * letters + state, first, _with(table, state, -1), tally, changed)
        for lane in range(len(changed)):
            target = first + lane
            entry = target if start == state else start
            bits[target] = description(changed[lane], _with(table, state, target), entry, states, used, weight)[0]
            # The state is still in the table, without visits: take its share of the description away.
            bits[target] += _machine_bits(states - 1, used, tally.shape[1]) - _machine_bits(
                states, used, tally.shape[1]
            )
    bits[state] = np.inf
    return bits


@compiled
def _suffixes(words: Words, path: Array, walks: Walks, kind: int, tally: Array) -> Words:
    """Return what the words read after they walk an arc for the first time; take these prefixes out of ``tally``."""
    text, offsets, marks, sizes, each_prefix = words
    last = tally.shape[2] - 1
    lower = walks.bounds[kind]
    count = walks.bounds[kind + 1] - lower
    begins = np.zeros(count + 1, np.int64)
    for entry in range(count):
        begins[entry + 1] = begins[entry] + offsets[walks.in_word[lower + entry] + 1] - walks.at[lower + entry]
    rest = np.empty(begins[count], text.dtype)
    labels = np.empty(begins[count] + count, marks.dtype)
    own_sizes = np.empty(count, sizes.dtype)
    for entry in range(count):
        word = walks.in_word[lower + entry]
        first, end = walks.at[lower + entry], offsets[word + 1]
        own_sizes[entry] = _size(words, word, first, last)
        for place in range(first, end + 1):
            mark = marks[place + word]
            labels[begins[entry] + entry + place - first] = mark
            if mark >= 0:
                tally[path[place + word], mark, _size(words, word, place, last)] -= 1
            if place < end:
                rest[begins[entry] + place - first] = text[place]
    return Words(rest, begins, labels, own_sizes, each_prefix)


@compiled
def _walks_from(words: Words, path: Array, state: int, letter: int) -> Walks:
    """Return where each word walks one arc for the first time, as the only entry."""
    text, offsets = words.text, words.offsets
    count = 0
    in_word = np.empty(len(offsets) - 1, np.int32)
    at = np.empty(len(offsets) - 1, np.int32)
    for word in range(len(offsets) - 1):
        for place in range(offsets[word], offsets[word + 1]):
            if path[place + word] == state and text[place] == letter:
                in_word[count] = word
                at[count] = place + 1
                count += 1
                break
    return Walks(np.array([0, count]), in_word, at)


@compiled
def split(words: Words, present: Present, kind: int) -> tuple[float, Array]:
    """Return description length and table once the target of arc ``kind`` has a copy for this arc alone.

    The copy is the last state, and each of its arcs has got its best target, twice round.  Arcs are numbered as in
    ``first_walks``; the number of the start state stands for the arc into it.
    """
    path, walks, table, start, states, tally, used, weight = present
    letters = table.shape[1]
    copy = states
    entry = kind >= states * letters
    old = start if entry else table[kind // letters, kind % letters]
    larger = np.empty((states + 1, letters), table.dtype)
    for letter in range(letters):
        for state in range(states):
            larger[state, letter] = table[state, letter]
        larger[copy, letter] = table[old, letter]
    if entry:
        start = copy
    else:
        larger[kind // letters, kind % letters] = copy
    others = np.zeros((states + 1, tally.shape[1], tally.shape[2]), tally.dtype)
    _add(tally, others)
    own = _suffixes(words, path, walks, kind, others)
    own_path = np.empty(len(own.marks), path.dtype)
    usage = np.empty((states + 1, letters), np.int64)
    current = np.empty(others.shape, others.dtype)
    run(own, larger, copy, own_path, current, usage)
    _add(others, current)
    for letter in range(letters):
        used += usage[copy, letter] > 0
    best = description(current, larger, start, states + 1, used, weight)[0]
    for _ in range(2):
        better = False
        for letter in range(letters):
            if usage[copy, letter] == 0:
                continue
            own_walks = _walks_from(own, own_path, copy, letter)
            before = larger[copy, letter]
            chosen = before
            for first in range(0, states + 1, LANES):
                changed = np.empty((min(LANES, states + 1 - first), *others.shape), others.dtype)
                larger[copy, letter] = -1
                _reread(own, own_path, own_walks, 0, first, larger, current, changed)
                for lane in range(len(changed)):
                    larger[copy, letter] = first + lane
                    bits = description(changed[lane], larger, start, states + 1, used, weight)[0]
                    if bits < best:
                        best = bits
                        chosen = first + lane
            larger[copy, letter] = chosen
            if chosen != before:
                better = True
                run(own, larger, copy, own_path, current, usage)
                _add(others, current)
        if not better:
            break
    return best, larger
