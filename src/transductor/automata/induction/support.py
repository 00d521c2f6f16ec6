"""Whether data support a machine: tests with stated levels, and sentences that say what failed and what to do.

Seven questions, each of which must be answered yes.  Does the machine shorten the description of the labels by more
than chance would, ``GAIN`` bits?  Are at most ``MOST_NOISE`` of the labels wrong?  Are there ``EXAMPLES`` different
words of every class for each state?  Have the machines that differ in one arc together at most ``DOUBT`` of the credit
of this one (credit is 2 to the power of minus the bits)?  Does the same machine come out of the shorter nine tenths of
the words?  Is the share of wrong labels on the longest tenth no larger than on the shorter words?  Are wrong labels
spread over the states as accidents are?  The last two are tests of the level ``LEVEL``: so often is a right machine
refused by accident.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from transductor.automata.induction.sample import Sample
from transductor.automata.induction.search import Candidate

GAIN = 20.0  # bits: labels without any pattern are described so much shorter with a chance of at most 2⁻²⁰
LEVEL = 0.001
MOST_NOISE = 0.2  # with more wrong labels, a machine that has half of the pattern looks like noise on all of it
EXAMPLES = 5
DOUBT = 0.01
HELD_OUT = 0.1  # the share of words, the longest, that the second machine does not see
_DRAWS = 1999


def bits_of_labels(sample: Sample) -> float:
    """Return the description length of the labels without a machine: the share of each class, then the labels."""
    counts = sample.counts[sample.counts > 0]
    shares = counts / counts.sum()
    return float(-(counts * np.log2(shares)).sum() + 0.5 * (sample.classes - 1) * math.log2(sample.labels + 1))


def examples(sample: Sample, candidate: Candidate, enough: int) -> dict[int, int]:
    """Return how many different words or prefixes of each class the machine labels right, up to ``enough``."""
    seen: dict[int, set[int]] = {int(label): set() for label in np.unique(candidate.outputs)}
    right = (sample.marks >= 0) & (candidate.outputs[candidate.path] == sample.marks)
    marks, text = sample.marks.tolist(), sample.text.tolist()
    for word, begin in enumerate(sample.offsets[:-1].tolist()):
        if all(len(each) >= enough for each in seen.values()):
            break
        prefix = 0
        for place in range(begin, int(sample.offsets[word + 1]) + 1):
            if place > begin:
                prefix = hash((prefix, text[place - 1]))
            if right[place + word]:
                seen[marks[place + word]].add(prefix)
    return {label: min(len(each), enough) for label, each in seen.items()}


def longest_tenth(sample: Sample, seed: int) -> NDArray[np.bool_]:
    """Return which words are held out: the longest tenth, drawn by lot among words of equal length."""
    lot = np.random.default_rng(seed).random(len(sample.lengths))
    order = np.lexsort([lot, sample.lengths])
    held_out = np.zeros(len(order), dtype=bool)
    held_out[order[len(order) - int(HELD_OUT * len(order)) :]] = True
    return held_out


def prefixes_of(sample: Sample, chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which prefixes have a label and belong to a chosen word."""
    return np.repeat(chosen, sample.lengths + 1) & (sample.marks >= 0)


def wrong_prefixes(sample: Sample, candidate: Candidate) -> NDArray[np.bool_]:
    """Return for every prefix whether it has a label that the machine contradicts."""
    wrong: NDArray[np.bool_] = (sample.marks >= 0) & (candidate.outputs[candidate.path] != sample.marks)
    return wrong


def more_often_wrong(sample: Sample, wrong: NDArray[np.bool_], held_out: NDArray[np.bool_]) -> float:
    """Return the chance of so many wrong labels in the held-out words if wrong labels fell by lot (hypergeometric)."""
    inside = prefixes_of(sample, held_out)
    return hypergeometric_tail(int(wrong[inside].sum()), int(wrong.sum()), int(inside.sum()), sample.labels)


def hypergeometric_tail(hits: int, marked: int, drawn: int, total: int) -> float:
    """Return the chance of at least ``hits`` marked things among ``drawn`` of ``total``, ``marked`` of them marked."""

    def log_ways(of: int, some: int) -> float:
        return math.lgamma(of + 1) - math.lgamma(some + 1) - math.lgamma(of - some + 1)

    lowest, highest = max(hits, drawn + marked - total, 0), min(marked, drawn)
    every = log_ways(total, drawn)
    terms = [
        log_ways(marked, each) + log_ways(total - marked, drawn - each) - every for each in range(lowest, highest + 1)
    ]
    return min(1.0, sum(math.exp(term) for term in terms))


def unevenly_wrong(sample: Sample, candidate: Candidate, wrong: NDArray[np.bool_], seed: int) -> float:
    """Return the chance of wrong labels as uneven over the states if they fell by lot among states of equal label.

    Classes are kept apart, as one may be mislabelled more often than another.  The chance is estimated from ``_DRAWS``
    draws of a lot, and never below one in ``_DRAWS + 1``.
    """
    random = np.random.default_rng(seed)
    labelled = sample.marks >= 0
    visits = np.bincount(candidate.path[labelled], minlength=candidate.states)
    errors = np.bincount(candidate.path[wrong], minlength=candidate.states)
    measured, lots = 0.0, np.zeros(_DRAWS)
    for label in range(sample.classes):
        own = np.flatnonzero((candidate.outputs == label) & (visits > 0))
        total, marked = int(visits[own].sum()), int(errors[own].sum())
        if len(own) < 2 or not 0 < marked < total:
            continue
        expected = visits[own] * (marked / total)
        measured += float(((errors[own] - expected) ** 2 / expected).sum())
        # "marginals" takes a state at a time; the other method would hold every label in memory.
        drawn = random.multivariate_hypergeometric(visits[own], marked, size=_DRAWS, method="marginals")
        lots += ((drawn - expected) ** 2 / expected).sum(1)
    return float(1 + (lots >= measured - 1e-9).sum()) / (_DRAWS + 1)
