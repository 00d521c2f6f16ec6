"""Hankel blocks of the beginnings of strings, counted on a prefix tree: all rows together, one column after another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from transductor.automata.spectral.expectation import PrefixTree
from transductor.automata.spectral.hankel_block import HankelBlock
from transductor.automata.weights import Array
from transductor.automata.words import Symbol

LONGEST_BASIS_WORD = 25


def frequent_prefixes(tree: PrefixTree, count: int) -> list[tuple[Symbol, ...]]:
    """Return the most frequent beginnings of strings, shorter ones first where they are equally frequent."""
    words = []
    for node in np.argsort(-tree.passes, kind="stable")[:count].tolist():
        word: list[Symbol] = []
        while node:
            word.append(tree.alphabet[tree.letters[node]])
            node = int(tree.parents[node])
        words.append(tuple(reversed(word)))
    return [word for word in words if len(word) <= LONGEST_BASIS_WORD]


def frequent_factors(tree: PrefixTree, count: int) -> list[tuple[Symbol, ...]]:
    """Return the most frequent runs of consecutive letters, the empty one first.

    A factor that ends at a node of the tree occurs in every string that passes there.
    """
    letters, total = len(tree.alphabet), len(tree.parents)
    words: list[tuple[Symbol, ...]] = [()]
    counts = [float("inf")]
    ends, codes, starts = np.arange(total), np.zeros(total, dtype=np.int64), np.arange(total)
    for length in range(1, LONGEST_BASIS_WORD + 1):
        longer = starts > 0
        if not longer.any():
            break
        # The factor grows to the left: its code is a letter and the code of what follows.
        ends, first, tail = ends[longer], tree.letters[starts[longer]], codes[longer]
        keys, codes = np.unique(tail * letters + first, return_inverse=True)
        starts = tree.parents[starts[longer]]
        times = np.bincount(codes, tree.passes[ends], len(keys))
        example = np.empty(len(keys), dtype=np.int64)
        example[codes] = ends
        least = sorted(counts, reverse=True)[count - 1] if len(counts) >= count else 0.0
        if times.max() <= least:
            break
        for key in np.flatnonzero(times > least).tolist():
            node, word = int(example[key]), list[Symbol]()
            for _ in range(length):
                word.append(tree.alphabet[tree.letters[node]])
                node = int(tree.parents[node])
            words.append(tuple(reversed(word)))
            counts.append(float(times[key]))
    order = sorted(range(len(words)), key=lambda place: (-counts[place], len(words[place])))
    return [words[place] for place in order[:count]]


def prefix_block(
    tree: PrefixTree, rows: Sequence[tuple[Symbol, ...]], columns: Sequence[tuple[Symbol, ...]]
) -> HankelBlock:
    """Return the block of the shares of strings that begin with row and column, and with a letter in between."""
    letters, total = len(tree.alphabet), len(tree.parents)
    numbers = {letter: number for number, letter in enumerate(tree.alphabet)}
    children = np.full((total + 1, letters), total, dtype=np.int64)  # node ``total`` is where no string leads
    children[tree.parents[1:], tree.letters[1:]] = np.arange(1, total)
    passes = np.append(tree.passes, 0) / tree.passes[0]
    begun = np.zeros(len(rows), dtype=np.int64)
    for place, row in enumerate(rows):
        for letter in row:
            begun[place] = children[begun[place], numbers[letter]]
    reached: dict[tuple[Symbol, ...], Array] = {(): np.concatenate([begun[None], children[begun].T])}
    values = np.empty((letters + 1, len(rows), len(columns)))
    for place, column in enumerate(columns):
        for end in range(1, len(column) + 1):
            if column[:end] not in reached:
                reached[column[:end]] = children[reached[column[: end - 1]], numbers[column[end - 1]]]
        values[:, :, place] = passes[reached[column]]
    return HankelBlock(tree.alphabet, tuple(rows), tuple(columns), values[0], values[1:])
