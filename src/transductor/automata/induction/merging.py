"""State merging over a prefix tree: noise-tolerant, and the classical RPNI and EDSM."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from transductor.automata.induction.sample import Sample

Table = NDArray[np.int32]

_MOST_CELLS = 40_000_000  # nodes × letters of a prefix tree; a table of 160 MB
_STEPS = 20  # decisions between two looks at the clock


@cache
def _loops() -> ModuleType:
    """Return the compiled loops; importing numba takes half a second, so it waits for its first use."""
    return import_module("transductor.automata.induction.tree_loops")


@cache
def _prefix_tree() -> ModuleType:
    """Return the compiled loop that builds the tree, at its first use for the same reason."""
    return import_module("transductor.automata.induction.prefix_tree")


def merged_machine(
    sample: Sample,
    *,
    way: str,
    noise: float = 0.05,
    shape: float = 0.0,
    trust: float = 1.0,
    max_states: int,
    go_on: Callable[[], bool] = lambda: True,
) -> Table | None:
    """Return the table of the machine that merging ends in, −1 where no word goes; ``None`` if there is none.

    There is none if ``go_on`` says so, or if more than ``max_states`` states would be needed.

    Args:
        sample: The labelled words.
        way: ``"bayes"``, ``"edsm"`` or ``"rpni"``.
        noise: η, the share of wrong labels that ``"bayes"`` reckons with.
        shape: γ, the weight of the evidence from next letters.
        trust: How far labels and letters that agree count; below 1, a few contradictions outweigh many words that say
            nothing.
        max_states: No more states than these.
        go_on: Asked from time to time; merging ends without a machine once it says no.
    """
    loops = _loops()
    ways = {"bayes": loops.BAYES, "edsm": loops.EVIDENCE, "rpni": loops.FIRST}
    sample = _bounded(sample)
    shaped = shaped_class(sample) if shape else -1
    tree = _prefix_tree().tree_of(sample.text, sample.offsets, sample.marks, sample.letters, sample.classes, shaped)
    # A word may pass a state with every letter, so these counts reach the length of the text.
    most = len(sample.text) + len(sample.lengths) if shape else 0
    half, complete = _log_rising(0.5, most), _log_rising((sample.letters + 1) / 2, most)
    wrong = math.log(noise / max(sample.classes - 1, 1))
    evidence = loops.Evidence(math.log1p(-noise), wrong, float(shape), float(trust), half, complete)
    red = np.zeros(max_states + 1, dtype=np.int64)
    fringe = loops.Fringe(np.full((0, 0), loops.UNKNOWN, np.int32), np.zeros((0, 0), np.int64))
    reds, left = 1, 1
    while left > 0:
        if not go_on():
            return None
        if way == "edsm" and fringe.score.shape[1] < reds + _STEPS:
            fringe = loops.Fringe(*(_larger(part, 2 * reds + _STEPS, sample.letters) for part in fringe))
        reds, left = loops.merged(tree, evidence, ways[way], max_states, _STEPS, red, reds, fringe)
    if left < 0:
        return None
    number = np.full(len(tree.child), -1, dtype=np.int32)
    number[red[:reds]] = np.arange(reds)
    rows = tree.child[red[:reds]]
    return np.where(rows < 0, -1, number[rows]).astype(np.int32)


def _larger(table: Table, states: int, letters: int) -> Table:
    """Return a table of trial folds with room for more states; what was not tried is unknown, −1."""
    larger = np.full((states * letters, states), -1, dtype=table.dtype)
    larger[: len(table), : table.shape[1]] = table
    return larger


def _log_rising(begin: float, most: int) -> NDArray[np.float64]:
    """Return log Γ(n + begin) − log Γ(begin) for n from 0 to ``most``."""
    return np.concatenate([[0.0], np.cumsum(np.log(begin + np.arange(most)))])


def shaped_class(sample: Sample) -> int:
    """Return the class whose words are the least like random letters: the lowest entropy of a letter given the last."""
    starts = np.zeros(len(sample.text), dtype=bool)
    starts[sample.offsets[:-1][sample.lengths > 0]] = True
    before = np.where(starts, sample.letters, np.roll(sample.text, 1))
    label = np.repeat(sample.word_labels, sample.lengths)
    entropies = []
    for each in range(sample.classes):
        pairs = np.zeros((sample.letters + 1, sample.letters))
        np.add.at(pairs, (before[label == each], sample.text[label == each]), 1)
        share = pairs / np.maximum(pairs.sum(1, keepdims=True), 1)
        entropy = -(pairs * np.log2(np.where(share > 0, share, 1))).sum() / max(pairs.sum(), 1)
        entropies.append(entropy if pairs.sum() else math.inf)
    return int(np.argmin(entropies))


def _bounded(sample: Sample) -> Sample:
    """Return the sample, or its shortest words where the tree of all would not fit into memory."""
    most = _MOST_CELLS // sample.letters
    if len(sample.text) <= most:
        return sample
    order = np.argsort(sample.lengths, kind="stable")
    kept = np.zeros(len(order), dtype=bool)
    kept[order[np.cumsum(sample.lengths[order]) <= most]] = True
    return sample.part(kept)
