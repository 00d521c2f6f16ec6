"""More starts where the words of a class say more than their labels: which letters follow one another in them.

Where a machine is nearly right, its mistakes can be too few to be told from wrong labels, word by word: of 10 000
words, sixty may contradict "every well-formed expression".  But where the language ends many words do, and elsewhere
none does.  So the search is repeated with more weight on densities.  If that leads to a better machine, by the usual
weight, states are merged by letters alone in the words that this machine labels right: wrong labels would hide them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from transductor.automata.induction.merging import merged_machine, shaped_class
from transductor.automata.induction.sample import Sample
from transductor.automata.induction.search import LESS, Candidate, Search, Table, numbered
from transductor.automata.induction.starts import best_of
from transductor.automata.induction.support import wrong_prefixes

_WEIGHTS: Final = (0.3, 1.0)  # of densities; 1 is that of words drawn evenly from their class
# How far letters that agree count: from too few states to too many, as no one value suits all languages.
_TRUSTS: Final = tuple(0.4 * 0.97**step for step in range(70))
_MOST: Final = 80  # states; less trust only gives more
_TABLES: Final = 12


def by_letters(sample: Sample, search: Search, candidate: Candidate) -> Candidate:
    """Return the best machine that the letters of the words lead to, or the candidate.

    Args:
        sample: The labelled words, a label for each.
        search: Local search with the usual weight, by which every machine is searched at the end.
        candidate: The best machine so far.
    """
    most = min(search.max_states, _MOST)
    denser = [Search(sample, max_states=most, go_on=search.go_on, shape_weight=weight) for weight in _WEIGHTS]
    while True:
        dense = [each.improved(each.measured(candidate.table, candidate.start)) for each in denser]
        if all(numbered(each) == numbered(candidate) for each in dense):
            return candidate  # the letters agree with the labels
        best = best_of([candidate, *(search.improved(search.measured(each.table, each.start)) for each in dense)])
        after = best
        for table in _tables(sample, best, most, search.go_on):
            begun = denser[-1].improved(denser[-1].measured(table))
            after = search.improved(search.measured(begun.table, begun.start))
            if after.bits < best.bits - LESS:
                break
        if min(after.bits, best.bits) > candidate.bits - LESS:
            return candidate
        candidate = best_of([best, after])


def rival_by_letters(sample: Sample, candidate: Candidate, go_on: Callable[[], bool]) -> Candidate | None:
    """Return another machine that is better once densities count six times as much; ``None`` if there is none.

    Of a right machine none is, as a rule; where some words are not labelled as a wrong machine says, but too few to
    show, letters tell.
    """
    search = Search(sample, max_states=_MOST, go_on=go_on, shape_weight=_WEIGHTS[0])
    rival = search.improved(search.measured(candidate.table, candidate.start))
    return None if numbered(rival) == numbered(candidate) else rival


def _tables(sample: Sample, candidate: Candidate, most: int, go_on: Callable[[], bool]) -> Iterator[Table]:
    """Yield machines merged by letters from words of one class that the candidate labels right, ``_TABLES`` at most."""
    right = ~wrong_prefixes(sample, candidate)[sample.offsets[1:] + np.arange(len(sample.lengths))]
    part = sample.part(right & (sample.word_labels == shaped_class(sample)))
    sizes: set[int] = set()
    for trust in _TRUSTS if part.labels else ():
        # With noise ½ labels say nothing; here all of them are equal.
        table = merged_machine(part, way="bayes", noise=0.5, shape=1.0, trust=trust, max_states=most, go_on=go_on)
        if table is None or len(sizes) == _TABLES:
            return
        if len(table) > candidate.states and len(table) not in sizes:
            sizes.add(len(table))
            sink = np.full((1, sample.letters), len(table), dtype=np.int32)  # where no right word goes
            yield np.vstack([np.where(table < 0, len(table), table), sink])
