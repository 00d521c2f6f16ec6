"""Local search for the machine with the shortest description of labels and machine together.

Four moves: an arc gets another target, a state gives way to another, a state is split in two along an arc into it, and
the start is unrolled (split along the arc into the start).  A split pays only once the copy differs, so the arcs of the
copy are chosen before it is judged.  A move is kept if it shortens the description; only the words that walk the
changed arc are read again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transductor.automata.induction.sample import Sample
from transductor.automata.moore import MooreMachine

Table = NDArray[np.int32]

SHAPE_WEIGHT = 0.05  # g; with 1, sparse languages are over-fitted
LESS = 1e-6  # bits; smaller gains are rounding
_PATIENCE = 5  # merges that do not help any more after others, in a row, before gains are computed again
_SHAKES = 20  # changes by lot, in a row, that lead to nothing better
_SPLITS = 2  # states split one after the other before their sum is judged
_WIDE, _DEEP = 12, 4  # splits of one machine that are followed, and machines of those that are split again
_NEGLIGIBLE = 20.0  # bits; rivals that are worse by more have no credit to speak of


@cache
def _loops() -> ModuleType:
    """Return the compiled loops; importing numba takes half a second, so it waits for its first use."""
    return import_module("transductor.automata.induction.machine_loops")


@cache
def _walks() -> ModuleType:
    """Return the compiled loop that lists walks, at its first use for the same reason."""
    return import_module("transductor.automata.induction.word_walks")


@dataclass(frozen=True)
class Candidate:
    """A machine, what the words do in it, and its description length.

    Attributes:
        table: ``(states, letters)``, complete; states are those that some word visits.
        start: The state before the first letter.
        bits: Description length, densities included: what the search shortens.
        errors: Labels that the machine contradicts.
        path: State after every prefix of every word.
        tally: Prefixes by state, label and size.
        usage: How often each arc is walked.
    """

    table: Table
    start: int
    bits: float
    errors: int
    path: NDArray[np.int32]
    tally: NDArray[np.int32]
    usage: NDArray[np.int64]

    @property
    def states(self) -> int:
        """How many states there are."""
        return len(self.table)

    @property
    def plain_bits(self) -> float:
        """Description length without the densities of the classes: machine, and labels given the machine."""
        used = int((self.usage > 0).sum())
        return float(_loops().description(self.tally, self.table, self.start, self.states, used, 0.0)[0])

    @property
    def outputs(self) -> NDArray[np.int64]:
        """The label of each state: the most frequent one there, and the most frequent of all where there is none."""
        counts = self.tally.sum(2)
        outputs: NDArray[np.int64] = counts.argmax(1)
        outputs[counts.sum(1) == 0] = counts.sum(0).argmax()
        return outputs


class Search:
    """Local search on one sample; ``shape_weight`` is g, how much of what dense classes cost counts."""

    def __init__(
        self,
        sample: Sample,
        *,
        max_states: int,
        go_on: Callable[[], bool] = lambda: True,
        shape_weight: float = SHAPE_WEIGHT,
    ) -> None:
        self.sample = sample
        self.shape_weight = shape_weight
        self.max_states = max_states
        self.go_on = go_on
        self.words = _walks().Words(sample.text, sample.offsets, sample.marks, sample.sizes, sample.tagged)
        self._settled: set[tuple[int, ...]] = set()

    def measured(self, table: Table, start: int = 0) -> Candidate:
        """Return the candidate of a table; unvisited states go, and arcs that no word walks get the stated target."""
        table = np.array(table, dtype=np.int32)
        table[table < 0] = 0  # no word walks it
        path, tally, usage = self._run(table, start)
        visited = np.zeros(len(table), dtype=bool)
        visited[path] = True
        if not visited.all():
            number = (np.cumsum(visited) - 1).astype(np.int32)
            table = np.where(visited[table], number[table], 0)[visited].astype(np.int32)
            start, path = int(number[start]), number[path]
            tally, usage = tally[visited], usage[visited]
        table = completed(table, usage)
        used = int((usage > 0).sum())
        bits, errors = _loops().description(tally, table, start, len(table), used, self.shape_weight)
        return Candidate(table, start, float(bits), int(errors), path, tally, usage)

    def _run(self, table: Table, start: int) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int64]]:
        path = np.empty(len(self.sample.marks), dtype=np.int32)
        tally = np.zeros((len(table), self.sample.classes, self.sample.places), dtype=np.int32)
        usage = np.zeros(table.shape, dtype=np.int64)
        _loops().run(self.words, table, start, path, tally, usage)
        return path, tally, usage

    def doubt(self, candidate: Candidate) -> float:
        """Return the credit of all machines that differ in one walked arc, relative to the candidate's.

        The credit of a machine is two to the power of minus its description length.  From 1 on it is not counted on:
        of machines with hundreds of states, that would take minutes.
        """
        present = self._present(candidate)
        own = minimal(candidate)
        credit = 0.0
        for state, letter in zip(*np.nonzero(candidate.usage), strict=True):
            if credit >= 1:
                break
            bits = _loops().redirected(self.words, present, int(state), int(letter))
            for target in np.flatnonzero(bits < candidate.bits + _NEGLIGIBLE):
                table = candidate.table.copy()
                table[state, letter] = target
                rival = minimal(self.measured(table, candidate.start))
                if own.outputs[0] != rival.outputs[0] or own.separating_word(rival) is not None:
                    credit += 2.0 ** float(candidate.bits - bits[target])
        return credit

    def improved(self, candidate: Candidate) -> Candidate:
        """Return a candidate that no move improves, or the best so far once ``go_on`` says no.

        Many starts end in one machine; that no move improves it is found out once.
        """
        while self.go_on():
            in_order = numbered(candidate)
            if in_order in self._settled:
                break
            better = self._joined(candidate) or self._redirected(candidate) or self._split(candidate)
            if better is None:
                if self.go_on():
                    self._settled.add(in_order)
                break
            candidate = better
        return candidate

    def shaken(self, candidate: Candidate, random: np.random.Generator) -> Candidate:
        """Return the best of what local search makes of the candidate after changes by lot, again and again.

        It ends after ``_SHAKES`` changes in a row that led to nothing better, or once ``go_on`` says no.
        """
        failures = 0
        while failures < _SHAKES and candidate.states > 1 and self.go_on():
            after = self.grown(candidate) if failures == 0 else None
            if after is None:
                after = self.measured(*changed_by_lot(candidate, random, self.max_states))
            after = self.improved(after)
            failures = 0 if after.bits < candidate.bits - LESS else failures + 1
            candidate = min(candidate, after, key=lambda each: each.bits)
        return candidate

    def grown(self, candidate: Candidate) -> Candidate | None:
        """Split up to ``_SPLITS`` states one after the other, lead arcs elsewhere; ``None`` if that does not help.

        A split may pay only once arcs of the old state lead elsewhere too, or once another state is split.
        """
        begun = [candidate]
        for _ in range(_SPLITS):
            after = []
            for each in begun:
                for _, kind, table in self._splits(each)[:_WIDE]:
                    entry = kind == each.table.size + each.start
                    grown = self.measured(table, each.states if entry else each.start)
                    after.append(self._redirected(grown) or grown)
                    if after[-1].bits < candidate.bits - LESS:
                        return after[-1]
            begun = sorted(after, key=lambda each: each.bits)[:_DEEP]
        return None

    def _present(self, candidate: Candidate) -> Any:
        """Return what the loops need to know about a candidate."""
        return _loops().Present(
            candidate.path,
            _walks().first_walks(self.words, candidate.path, candidate.states, self.sample.letters),
            candidate.table,
            candidate.start,
            candidate.states,
            candidate.tally,
            int((candidate.usage > 0).sum()),
            self.shape_weight,
        )

    def _redirected(self, candidate: Candidate) -> Candidate | None:
        """Give every arc its best target, one after the other; ``None`` if none has a better one."""
        first = candidate
        arcs = [(candidate.start, -1), *zip(*np.nonzero(candidate.usage), strict=True)]
        present = self._present(candidate)
        for state, letter in arcs:
            if not self.go_on():
                break
            bits = _loops().redirected(self.words, present, int(state), int(letter))
            target = int(bits.argmin())
            if bits[target] < candidate.bits - LESS:
                table, start = candidate.table.copy(), candidate.start
                if letter < 0:
                    start = target
                else:
                    table[state, letter] = target
                after = self.measured(table, start)
                if after.bits < candidate.bits - LESS:
                    if after.states < candidate.states:
                        return after  # states have other numbers now
                    candidate = after
                    present = self._present(candidate)
        return candidate if candidate is not first else None

    def _joined(self, candidate: Candidate) -> Candidate | None:
        """Let states give way to others, the most useful first; ``None`` if that never helps."""
        present = self._present(candidate)
        walked = (candidate.usage > 0).sum(1)
        gains = []
        for state in range(candidate.states if candidate.states > 1 else 0):
            if not self.go_on():
                return None
            bits = _loops().joined(self.words, present._replace(used=int(walked.sum() - walked[state])), state)
            gains += [
                (float(bits[target]), state, int(target)) for target in np.flatnonzero(bits < candidate.bits - LESS)
            ]
        best, table, start = candidate, candidate.table, candidate.start
        gone: set[int] = set()
        failures = 0
        for _, state, target in sorted(gains):
            if failures == _PATIENCE:
                break
            if state not in gone and target not in gone and self.go_on():
                trial = np.where(table == state, target, table)
                entry = target if start == state else start
                after = self.measured(trial, entry)
                if after.bits < best.bits - LESS:
                    best, table, start = after, trial, entry
                    gone.add(state)
                    failures = 0
                else:
                    failures += 1
        return best if best is not candidate else None

    def _split(self, candidate: Candidate) -> Candidate | None:
        """Split a state along the arc where that helps most; ``None`` if it never helps."""
        for bits, kind, table in self._splits(candidate)[:5]:
            if bits >= candidate.bits - LESS:
                break
            entry = kind == candidate.table.size + candidate.start
            after = self.measured(table, candidate.states if entry else candidate.start)
            if after.bits < candidate.bits - LESS:
                return after
        return None

    def _splits(self, candidate: Candidate) -> list[tuple[float, int, Table]]:
        """Return bits, arc and table of every split, the best first."""
        if candidate.states >= self.max_states:
            return []
        present = self._present(candidate)
        gains = []
        for kind in (candidate.table.size + candidate.start, *np.flatnonzero(candidate.usage)):
            if not self.go_on():
                break
            bits, table = _loops().split(self.words, present, int(kind))
            gains.append((float(bits), int(kind), table))
        return sorted(gains, key=lambda gain: gain[:2])


def changed_by_lot(candidate: Candidate, random: np.random.Generator, max_states: int) -> tuple[Table, int]:
    """Return table and start with up to three arcs led elsewhere, one state in place of two, or one state doubled.

    The double gets half of the arcs that lead to the state, and a quarter of its own arcs lead elsewhere.
    """
    table, start, states = candidate.table.copy(), candidate.start, candidate.states
    kind = random.random()
    if kind < 0.25:
        walked = np.argwhere(candidate.usage > 0)
        for place in random.integers(len(walked), size=random.integers(1, 4)):
            table[tuple(walked[place])] = random.integers(states)
    elif kind < 0.5 or states == max_states:
        gone, instead = random.choice(states, 2, replace=False)
        table[table == gone] = instead
        start = int(instead) if start == gone else start
    else:
        state = random.integers(states)
        led = (table == state) & (random.random(table.shape) < 0.5)
        double = np.where(
            random.random(table.shape[1]) < 0.25, random.integers(states, size=table.shape[1]), table[state]
        )
        table = np.vstack([np.where(led, states, table), double]).astype(np.int32)
    return table, start


def numbered(candidate: Candidate) -> tuple[int, ...]:
    """Return the table row by row with states numbered as they are met from the start: equal for equal machines."""
    rows = candidate.table.tolist()
    number = {candidate.start: 0}
    met = [candidate.start]
    targets: list[int] = []
    for state in met:
        for target in rows[state]:
            if target not in number:
                number[target] = len(met)
                met.append(target)
            targets.append(number[target])
    return tuple(targets)


def completed(table: Table, usage: NDArray[np.int64]) -> Table:
    """Return the table with a target for every arc that no word walks.

    It is the sink, a state that no walked arc leaves, where there is one (the busiest of several); otherwise the
    state to which this letter leads most often.
    """
    walked = usage > 0
    if walked.all():
        return table
    own = np.arange(len(table))[:, None]
    stays = (walked & (table == own)).any(1) & ~(walked & (table != own)).any(1)
    table = table.copy()
    if stays.any():
        table[~walked] = int(np.where(stays, usage.sum(1), -1).argmax())
        return table
    for letter in range(table.shape[1]):
        missing = ~walked[:, letter]
        if missing.any():
            target = np.bincount(table[:, letter], weights=usage[:, letter], minlength=len(table))
            table[missing, letter] = int(target.argmax())
    return table


def minimal(candidate: Candidate) -> MooreMachine:
    """Return the smallest machine with the same label for every word, that of the empty word included."""
    # One more letter leads from every state back to the start, so that the label of the start is shown.
    back = np.full((candidate.states, 1), candidate.start)
    table = np.hstack([candidate.table, back])
    shown = MooreMachine(table, candidate.outputs, candidate.start).minimised()
    return MooreMachine(shown.transitions[:, :-1], shown.outputs, shown.start)
