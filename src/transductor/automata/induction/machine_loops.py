"""The loops over words that a machine reads: complete runs, and what changes when one arc does.

Importing this imports numba.  A machine is a table ``(states, letters)``.  ``path`` holds the state after every prefix
of every word, ``len + 1`` for each.  ``tally[state, label, size]`` counts prefixes by the state they lead to, their
label and their size, the number of letters, which matters to the density of a class alone.
"""

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


@compiled
def _reread(words: Words, path: Array, walks: Walks, kind: int, state: int, table: Array, tally: Array) -> None:
    """Move words in ``tally``: those that walk the arc, or visit the state, ``kind`` go on from ``state`` there."""
    text, offsets, marks, sizes, each_prefix = words
    in_word, at = walks.in_word, walks.at
    last = tally.shape[2] - 1
    for entry in range(walks.bounds[kind], walks.bounds[kind + 1]):
        word = in_word[entry]
        current = state
        end = offsets[word + 1]
        if not each_prefix:
            for place in range(at[entry], end):
                current = table[current, text[place]]
            mark = marks[end + word]
            before = path[end + word]
            if mark >= 0 and before != current:
                tally[before, mark, sizes[word]] -= 1
                tally[current, mark, sizes[word]] += 1
            continue
        for place in range(at[entry], end + 1):
            mark = marks[place + word]
            if mark >= 0:
                before = path[place + word]
                if before != current:
                    size = _size(words, word, place, last)
                    tally[before, mark, size] -= 1
                    tally[current, mark, size] += 1
            if place < end:
                current = table[current, text[place]]


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
    changed = np.empty(tally.shape, tally.dtype)
    for target in range(states):
        _clear(changed)
        _add(tally, changed)
        if not entry:
            table[state, letter] = target
        if target != own:
            _reread(words, path, walks, kind, target, table, changed)
        bits[target] = description(changed, table, target if entry else start, states, used, weight)[0]
    if not entry:
        table[state, letter] = own
    return bits


@compiled
def joined(words: Words, present: Present, state: int) -> Array:
    """Return the description length when ``state`` gives way to every other state; infinite for itself.

    ``used`` counts the arcs that are walked, without those that leave ``state``.
    """
    path, walks, table, start, states, tally, used, weight = present
    letters = table.shape[1]
    bits = np.empty(states)
    bits[state] = np.inf
    changed = np.empty(tally.shape, tally.dtype)
    mended = np.empty(table.shape, table.dtype)
    for target in range(states):
        if target == state:
            continue
        _clear(changed)
        _add(tally, changed)
        for row in range(states):
            for letter in range(letters):
                mended[row, letter] = target if table[row, letter] == state else table[row, letter]
        _reread(words, path, walks, states * letters + state, target, mended, changed)
        bits[target] = description(changed, mended, target if start == state else start, states, used, weight)[0]
        # The state is still in the table, without visits: take its share of the description away.
        bits[target] += _machine_bits(states - 1, used, tally.shape[1]) - _machine_bits(states, used, tally.shape[1])
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
    changed = np.empty(others.shape, others.dtype)
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
            for target in range(states + 1):
                if target == before:
                    continue
                larger[copy, letter] = target
                _clear(changed)
                _add(current, changed)
                _reread(own, own_path, own_walks, 0, target, larger, changed)
                bits = description(changed, larger, start, states + 1, used, weight)[0]
                if bits < best:
                    best = bits
                    chosen = target
            larger[copy, letter] = chosen
            if chosen != before:
                better = True
                run(own, larger, copy, own_path, current, usage)
                _add(others, current)
        if not better:
            break
    return best, larger
