"""Machines over many letters, begun with groups of letters that seem to behave alike, and with short words.

Ten thousand words over fifty letters share almost no beginnings, so merging states has nothing to go by.  But many
letters often do the same.  At first, what the labels say of a letter shortly before them tells which; later, what a
machine does with a letter.  A machine over few groups is found quickly, and is then a start for the search over all
letters.  Short words come first: in a long word, a few letters in wrong groups make every label an accident.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from transductor.automata.induction.merging import merged_machine
from transductor.automata.induction.sample import Sample
from transductor.automata.induction.search import Candidate, Search
from transductor.automata.induction.starts import PLAIN, best_of

Groups = NDArray[np.int32]

MANY: Final = 12
"""From so many letters on, groups are tried."""
_BEFORE: Final = 3  # how far before a label a letter is looked at
_SIZES: Final = (2, 3, 4, 5, 6, 8, 10)  # how many groups are tried where labels say which
_KNOWN_SIZES: Final = (3, 4, 6, 9)  # and where a machine does
_SHORT: Final = (6, 10, 16)  # letters; words up to these lengths come first
_FEWEST: Final = 100  # words of a length or below, or they are not worth a search of their own
_ROUNDS: Final = 3  # of new groups from the machine over all words
_MOST_STATES: Final = 30
_MOST_CELLS: Final = 5e8  # numbers compared while letters are joined


def from_groups(sample: Sample, seed: int, go_on: Callable[[], bool]) -> Candidate | None:
    """Return a machine over all letters that was begun with groups of them; None where that is not tried.

    Args:
        sample: The labelled words.
        seed: Of the changes by lot.
        go_on: Asked from time to time; the search ends with what it has once it says no.
    """
    if sample.letters < MANY:
        return None
    best: Candidate | None = None
    parts = [sample.part(sample.lengths <= length) for length in _SHORT if length < sample.lengths.max()]
    parts = [part for part in parts if part.labels and len(part.lengths) >= _FEWEST]
    for number, part in enumerate([*parts, *[sample] * _ROUNDS]):
        search = Search(part, max_states=_MOST_STATES, go_on=go_on)
        results = []
        if best is not None:
            results.append(search.improved(search.measured(best.table, best.start)))
            if number >= len(parts) and results[0].errors == 0:
                return results[0]
        for groups in _groups_of_labels(sample) if best is None else _groups_of_columns(best):
            if not go_on():
                break
            few = _over_groups(part, groups, best, None if part is sample else seed, go_on)
            results += [search.improved(search.measured(each.table[:, groups], each.start)) for each in few]
        if not results:
            break
        after = best_of(results)
        if number > len(parts) and after is results[0]:  # new groups led to nothing better
            return after
        best = after
    if best is None or not go_on():
        return best
    search = Search(sample, max_states=_MOST_STATES, go_on=go_on)
    return search.improved(search.measured(best.table, best.start))


def _over_groups(
    part: Sample, groups: Groups, known: Candidate | None, seed: int | None, go_on: Callable[[], bool]
) -> Iterator[Candidate]:
    """Yield machines over groups, from the known one or from merging states; without a seed none is shaken."""
    fewer = replace(part, text=groups[part.text], letters=int(groups.max()) + 1)
    search = Search(fewer, max_states=_MOST_STATES, go_on=go_on)
    starts = []
    if known is not None:
        starts.append((_table_of_groups(known, groups), known.start))
    else:
        for rule in PLAIN[:2]:
            table = merged_machine(
                fewer, way="bayes", noise=rule.noise, trust=rule.trust, max_states=_MOST_STATES, go_on=go_on
            )
            starts += [] if table is None else [(table, 0)]
    for table, start in starts:
        candidate = search.improved(search.measured(table, start))
        yield candidate if seed is None else search.shaken(candidate, np.random.default_rng(seed))


def _table_of_groups(candidate: Candidate, groups: Groups) -> NDArray[np.int32]:
    """Return the table over groups in which each leads where most of the walks of its letters lead."""
    votes = np.zeros((candidate.states, int(groups.max()) + 1, candidate.states))
    states = np.arange(candidate.states)[:, None]
    np.add.at(votes, (states, groups[None], candidate.table), candidate.usage + 1e-9)
    table: Groups = votes.argmax(2).astype(np.int32)
    return table


def _groups_of_labels(sample: Sample) -> Iterator[Groups]:
    """Yield groups of letters that are followed by each label equally often at each distance."""
    counts = np.zeros((sample.letters, _BEFORE, sample.classes))
    word = np.repeat(np.arange(len(sample.lengths)), sample.lengths)
    letter = np.arange(len(sample.text))
    ends = letter - sample.offsets[:-1][word] + 1  # how many letters the prefix has that ends here
    for distance in range(_BEFORE):
        inside = ends + distance <= sample.lengths[word]
        marks = sample.marks[(letter + word + 1 + distance)[inside]]
        np.add.at(counts, (sample.text[inside][marks >= 0], distance, marks[marks >= 0]), 1)
    yield from _joined(counts, _SIZES)


def _groups_of_columns(candidate: Candidate) -> Iterator[Groups]:
    """Yield groups of letters that lead from each state of a machine to the same one, in most walks."""
    cells = candidate.table.shape[1] * candidate.states**2
    if cells * candidate.table.shape[1] <= _MOST_CELLS:
        counts = np.zeros((candidate.table.shape[1], candidate.states, candidate.states))
        letters, states = np.arange(candidate.table.shape[1])[:, None], np.arange(candidate.states)
        counts[letters, states, candidate.table.T] = candidate.usage.T
        yield from _joined(counts, _KNOWN_SIZES)


def _information(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the log-likelihood of counts ``(…, places, outcomes)`` under their own shares."""
    total = counts.sum(-1, keepdims=True)
    shares = counts / np.maximum(total, 1)
    logs: NDArray[np.float64] = (counts * np.log(np.where(shares > 0, shares, 1))).sum((-1, -2))
    return logs


def _joined(counts: NDArray[np.float64], sizes: tuple[int, ...]) -> list[Groups]:
    """Join letters with the most equal outcomes at every place; return the groups when there are as many as a size."""
    letters = len(counts)
    if letters * counts.size > _MOST_CELLS:
        return []
    counts, alive, group = counts.copy(), np.ones(letters, dtype=bool), np.arange(letters)
    own = _information(counts)
    loss = np.full((letters, letters), np.inf)
    for each in range(letters):
        loss[each, each + 1 :] = own[each] + own[each + 1 :] - _information(counts[each] + counts[each + 1 :])
    steps = []
    for size in range(letters - 1, min(sizes) - 1, -1):
        first, second = map(int, np.unravel_index(int(loss.argmin()), loss.shape))
        counts[first] += counts[second]
        own[first], alive[second] = _information(counts[first]), False
        group[group == second] = first
        loss[second], loss[:, second] = np.inf, np.inf
        others = np.flatnonzero(alive & (np.arange(letters) != first))
        fresh = own[first] + own[others] - _information(counts[first] + counts[others])
        loss[np.minimum(first, others), np.maximum(first, others)] = fresh
        if size in sizes:
            steps.append(np.unique(group, return_inverse=True)[1].astype(np.int32))
    return steps[::-1]
