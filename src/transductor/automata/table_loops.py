"""The loops over transition tables: reachability, Hopcroft's refinement, union-find, pairs of states and subsets.

Each takes its number of steps first (:func:`compiled_when_large`).  Tables are ``(states, letters)``.  Sums that hash a
key stay far below 2⁶³: the same lines run without numba, where an overflow would be a warning.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from transductor.automata.compiled import compiled_when_large

Array = Any  # a numpy array; inside the loops numba decides


@compiled_when_large
def reached_states(table: Array, start: int) -> tuple[Array, Array]:
    """Return the states that words lead to, in order of discovery, and each state's place in it (−1: none)."""
    states, letters = table.shape
    place = np.full(states, -1, dtype=np.int64)
    order = np.empty(states, dtype=np.int64)
    place[start], order[0] = 0, start
    count, at = 1, 0
    while at < count:
        state = order[at]
        at += 1
        for letter in range(letters):
            target = table[state, letter]
            if place[target] < 0:
                place[target] = count
                order[count] = target
                count += 1
    return order[:count], place


@compiled_when_large
def walked(table: Array, letters: Array, start: int) -> Array:
    """Return the state after each of ``letters`` ``(T,)``."""
    states = np.empty(len(letters), dtype=np.int64)
    state = start
    for place in range(len(letters)):
        state = table[state, letters[place]]
        states[place] = state
    return states


@compiled_when_large
def refined_classes(table: Array, classes: Array, count: int) -> Array:
    """Return for every state its class of the coarsest refinement of ``classes`` that the letters respect.

    This is Hopcroft's method.  ``classes`` are numbers below ``count``, each of them in use.
    """
    states, letters = table.shape
    begins = np.zeros(letters * states + 1, dtype=np.int64)  # where the sources of (letter, target) begin
    for state in range(states):
        for letter in range(letters):
            begins[letter * states + table[state, letter] + 1] += 1
    for edge in range(letters * states):
        begins[edge + 1] += begins[edge]
    cursor = begins[:-1].copy()
    sources = np.empty(letters * states, dtype=np.int32)
    for state in range(states):
        for letter in range(letters):
            edge = letter * states + table[state, letter]
            sources[cursor[edge]] = state
            cursor[edge] += 1
    # A block is a section of ``members``; ``marks`` of its first members have been hit by the splitter.
    block_of = classes.astype(np.int32)
    first, end = np.zeros(states + 1, dtype=np.int32), np.zeros(states + 1, dtype=np.int32)
    for state in range(states):
        end[block_of[state]] += 1
    for block in range(1, count):
        first[block] = end[block - 1]
        end[block] += first[block]
    members, place = np.empty(states, dtype=np.int32), np.empty(states, dtype=np.int32)
    marks = np.zeros(states + 1, dtype=np.int32)
    for state in range(states):
        block = block_of[state]
        place[state] = first[block] + marks[block]
        members[place[state]] = state
        marks[block] += 1
    marks[:] = 0
    largest = 0
    for block in range(count):
        if end[block] - first[block] > end[largest] - first[largest]:
            largest = block
    pending, waiting = np.empty(states + 1, dtype=np.int32), 0
    for block in range(count):
        if block != largest:  # every state has one step per letter: what all other blocks tell apart suffices
            pending[waiting] = block
            waiting += 1
    splitter, hit = np.empty(states, dtype=np.int32), np.empty(states, dtype=np.int32)
    while waiting:
        waiting -= 1
        chosen = pending[waiting]
        size = end[chosen] - first[chosen]
        for number in range(size):
            splitter[number] = members[first[chosen] + number]
        for letter in range(letters):
            hits = 0
            for number in range(size):
                target = letter * states + int(splitter[number])
                for edge in range(begins[target], begins[target + 1]):
                    state = sources[edge]
                    block = block_of[state]
                    if marks[block] == 0:
                        hit[hits] = block
                        hits += 1
                    to, where = first[block] + marks[block], place[state]
                    other = members[to]
                    members[to], members[where] = state, other
                    place[state], place[other] = to, where
                    marks[block] += 1
            for number in range(hits):
                block = hit[number]
                marked, marks[block] = marks[block], 0
                if marked == end[block] - first[block]:
                    continue
                # Only the smaller half has to be tried again: what it does not split, the larger does not either.
                if 2 * marked <= end[block] - first[block]:
                    first[count], end[count] = first[block], first[block] + marked
                    first[block] = end[count]
                else:
                    first[count], end[count] = first[block] + marked, end[block]
                    end[block] = first[count]
                for at in range(first[count], end[count]):
                    block_of[members[at]] = count
                pending[waiting] = count
                waiting += 1
                count += 1
    return block_of.astype(np.int64)


@compiled_when_large
def separation(
    table: Array, outputs: Array, start: int, others: Array, other_outputs: Array, other_start: int, empty_word: bool
) -> tuple[bool, Array]:
    """Return whether some word leads to different outputs, and a shortest one, by Hopcroft and Karp's union-find.

    Pairs of states are visited breadth-first, and one whose states are already in one class is left out.  A word that
    would separate it separates an earlier pair of that class, which is waiting: so the first word is a shortest one.
    ``empty_word`` says whether the outputs of the two starts count before any letter.
    """
    states, letters = table.shape
    count = states + others.shape[0]
    parent, sizes = np.arange(count), np.ones(count, dtype=np.int64)
    left, right = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    edge_into = np.full(count, -1, dtype=np.int64)
    word = np.zeros(0, dtype=np.int64)
    if empty_word and outputs[start] != other_outputs[other_start]:
        return True, word
    left[0], right[0] = start, other_start
    parent[states + other_start] = start
    sizes[start] = 2
    at, waiting = 0, 1
    while at < waiting:
        for letter in range(letters):
            one, two = table[left[at], letter], others[right[at], letter]
            if outputs[one] != other_outputs[two]:
                length, edge = 1, edge_into[at]
                while edge >= 0:
                    length, edge = length + 1, edge_into[edge // letters]
                word = np.empty(length, dtype=np.int64)
                edge = at * letters + letter
                while edge >= 0:
                    length -= 1
                    word[length] = edge % letters
                    edge = edge_into[edge // letters]
                return True, word
            first, second = one, states + two
            while parent[first] != first:
                parent[first] = parent[parent[first]]
                first = parent[first]
            while parent[second] != second:
                parent[second] = parent[parent[second]]
                second = parent[second]
            if first != second:
                if sizes[first] < sizes[second]:
                    first, second = second, first
                parent[second] = first
                sizes[first] += sizes[second]
                left[waiting], right[waiting], edge_into[waiting] = one, two, at * letters + letter
                waiting += 1
        at += 1
    return False, word


@compiled_when_large
def reached_pairs(
    table: Array, outputs: Array, start: int, others: Array, other_outputs: Array, other_start: int, limit: int,
    skip_equal: bool,
) -> tuple[Array, Array, Array, int]:  # fmt: skip
    """Walk through the pairs of states that words lead to, breadth-first, until two outputs conflict.

    Outputs conflict when they differ and neither is negative.  A pair is not followed further where one output is −2
    or, with ``skip_equal``, where both states have the same number.

    Returns:
        Pairs as ``state · width + other``, in order of discovery; places of the successors of each; the edge
        ``place · letters + letter`` by which each was discovered; and the edge at which outputs first conflict, −1 if
        none does, −2 where there are more than ``limit`` pairs.
    """
    letters, width = table.shape[1], others.shape[0]
    capacity, slots = 64, np.zeros(256, dtype=np.int64)  # a slot holds a place + 1; a quarter of them is in use
    pairs, edge_into = np.empty(capacity, dtype=np.int64), np.empty(capacity, dtype=np.int64)
    rows = np.full((capacity, letters), -1, dtype=np.int64)
    pairs[0], edge_into[0] = start * width + other_start, -1
    slots[(pairs[0] % 2147483647) * 40503 % len(slots)] = 1
    count, at = 1, 0
    while at < count:
        state, other = pairs[at] // width, pairs[at] % width
        if outputs[state] == -2 or other_outputs[other] == -2 or (skip_equal and state == other):
            at += 1
            continue
        for letter in range(letters):
            one, two = table[state, letter], others[other, letter]
            label, other_label = outputs[one], other_outputs[two]
            if label >= 0 and other_label >= 0 and label != other_label:
                return pairs[:count], rows[:count], edge_into[:count], at * letters + letter
            pair = one * width + two
            slot = (pair % 2147483647) * 40503 % len(slots)
            while slots[slot] and pairs[slots[slot] - 1] != pair:
                slot = (slot + 1) % len(slots)
            if slots[slot] == 0:
                if count == limit:
                    return pairs[:count], rows[:count], edge_into[:count], -2
                if count == capacity:
                    capacity *= 2
                    pairs = np.concatenate((pairs, np.empty(count, dtype=np.int64)))
                    edge_into = np.concatenate((edge_into, np.empty(count, dtype=np.int64)))
                    rows = np.concatenate((rows, np.full((count, letters), -1, dtype=np.int64)))
                    slots = np.zeros(4 * capacity, dtype=np.int64)
                    for number in range(count):
                        slot = (pairs[number] % 2147483647) * 40503 % len(slots)
                        while slots[slot]:
                            slot = (slot + 1) % len(slots)
                        slots[slot] = number + 1
                    slot = (pair % 2147483647) * 40503 % len(slots)
                    while slots[slot]:
                        slot = (slot + 1) % len(slots)
                slots[slot] = count + 1
                pairs[count], edge_into[count] = pair, at * letters + letter
                count += 1
            rows[at, letter] = slots[slot] - 1
        at += 1
    return pairs[:count], rows[:count], edge_into[:count], -1


@compiled_when_large
def subset_table(
    begins: Array, targets: Array, free_begins: Array, free_targets: Array, starts: Array, accepting: Array,
    keys: Array, letters: int, limit: int, most_members: int, most_steps: int,
) -> tuple[Array, Array]:  # fmt: skip
    """Return the table of the sets of states that words lead to, breadth-first, and which of them accept.

    Args:
        begins: Where the targets of ``state · letters + letter`` begin in ``targets``.
        targets: States that a letter leads to.
        free_begins: Where the states that follow a state for free begin in ``free_targets``.
        free_targets: States reached without a letter.
        starts: Where words begin.
        accepting: Whether each state accepts.
        keys: A random number below 2³¹ for each state; a set is looked up by the sum of its keys.
        letters: How many letters there are.
        limit: The most sets; an empty table is returned where there are more.
        most_members: The most members of all sets together; likewise.
        most_steps: The most members that are looked at, a set as often as a letter leads to it; likewise.
    """
    states = len(keys)
    pool, pooled = np.empty(max(16, 4 * states), dtype=np.int32), 0
    capacity = max(1, min(64, 2**20 // (letters + 1)))
    slots = np.zeros(4 * capacity, dtype=np.int64)  # a slot holds a number + 1; a quarter of them is in use
    ends, sums = np.zeros(capacity + 1, dtype=np.int64), np.zeros(capacity, dtype=np.int64)
    table = np.zeros((capacity, letters), dtype=np.int64)
    accepts = np.zeros(capacity, dtype=np.bool_)
    stamps, members = np.zeros(states + 1, dtype=np.int64), np.empty(states + 1, dtype=np.int32)
    count, at, stamp, steps = 0, -1, 0, 0
    while at < count:
        for letter in range(letters if at >= 0 else 1):
            stamp += 1
            size = 0
            if at < 0:
                for state in starts:
                    stamps[state] = stamp
                    members[size] = state
                    size += 1
            else:
                for number in range(ends[at], ends[at + 1]):
                    edge = int(pool[number]) * letters + letter
                    for place in range(begins[edge], begins[edge + 1]):
                        if stamps[targets[place]] != stamp:
                            stamps[targets[place]] = stamp
                            members[size] = targets[place]
                            size += 1
            done, total, ending = 0, 0, False
            while done < size:
                state = members[done]
                done += 1
                total += keys[state]
                ending |= accepting[state]
                for place in range(free_begins[state], free_begins[state + 1]):
                    if stamps[free_targets[place]] != stamp:
                        stamps[free_targets[place]] = stamp
                        members[size] = free_targets[place]
                        size += 1
            steps += size
            if steps > most_steps:
                return table[:0], accepts[:0]
            slot, known = total % 2147483647 % len(slots), -1
            while slots[slot] and known < 0:
                number = slots[slot] - 1
                if sums[number] == total and ends[number + 1] - ends[number] == size:
                    known = number
                    for place in range(ends[number], ends[number + 1]):
                        if stamps[pool[place]] != stamp:
                            known = -1
                            break
                if known < 0:
                    slot = (slot + 1) % len(slots)
            if known < 0:
                if count == limit or pooled + size > most_members:
                    return table[:0], accepts[:0]
                while pooled + size > len(pool):
                    pool = np.concatenate((pool, np.empty(len(pool), dtype=np.int32)))
                if count == capacity:
                    capacity *= 2
                    ends = np.concatenate((ends, np.zeros(count, dtype=np.int64)))
                    sums = np.concatenate((sums, np.zeros(count, dtype=np.int64)))
                    table = np.concatenate((table, np.zeros((count, letters), dtype=np.int64)))
                    accepts = np.concatenate((accepts, np.zeros(count, dtype=np.bool_)))
                    slots = np.zeros(4 * capacity, dtype=np.int64)
                    for number in range(count):
                        slot = sums[number] % 2147483647 % len(slots)
                        while slots[slot]:
                            slot = (slot + 1) % len(slots)
                        slots[slot] = number + 1
                    slot = total % 2147483647 % len(slots)
                    while slots[slot]:
                        slot = (slot + 1) % len(slots)
                for number in range(size):
                    pool[pooled + number] = members[number]
                pooled += size
                known = count
                slots[slot] = count + 1
                sums[count], ends[count + 1], accepts[count] = total, pooled, ending
                count += 1
            if at >= 0:
                table[at, letter] = known
        at += 1
    return table[:count], accepts[:count]
