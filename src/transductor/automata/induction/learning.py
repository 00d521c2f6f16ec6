"""The machine with the shortest description of labelled words, some labels perhaps wrong.

Merging states of the prefix tree gives several starts; local search improves each of them by one criterion, the length
of a description of the machine and of the labels given the machine; then the data are asked whether they support it.
docs/induction.md derives the criterion and states what is measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from transductor.automata.compiled import COMPILES
from transductor.automata.induction.letter_groups import MANY, from_groups
from transductor.automata.induction.merging import merged_machine
from transductor.automata.induction.right_words import by_letters, rival_by_letters
from transductor.automata.induction.sample import Sample, sample_of
from transductor.automata.induction.search import Candidate, Search, minimal
from transductor.automata.induction.starts import agreeing, best_of, starts
from transductor.automata.induction.support import (
    DOUBT,
    EXAMPLES,
    GAIN,
    LEVEL,
    MOST_NOISE,
    bits_of_labels,
    examples,
    longest_tenth,
    more_often_wrong,
    unevenly_wrong,
    wrong_prefixes,
)
from transductor.automata.moore import MooreMachine

METHODS = ("description_length", "edsm", "rpni")

_CLASSICAL = 60
"""The most states of the classical start: wrong labels make it grow, and then it is worth nothing."""

_FEW = 0.005
"""The share of contradicted labels up to which a machine that was begun with groups of letters needs no rival."""

Progress = Callable[[float, str], None]


@dataclass(frozen=True)
class MachineFromLabels:
    """A machine learned from labelled words, and what the data say about it.

    Attributes:
        machine: The minimal machine; the label of its start, state 0, is that of the empty word.
        errors: Labels of the sample that the machine contradicts.
        labels: Labels in the sample.
        noise: Estimated share of wrong labels.
        bits: Description length of the machine and of the labels given it.
        bits_alone: Description length of the labels without any machine.
        supported: Whether the data support this machine; ``reasons`` says why or why not.
        reasons: Sentences for a reader: what speaks for or against the machine, and what to do.
    """

    machine: MooreMachine
    errors: int
    labels: int
    noise: float
    bits: float
    bits_alone: float
    supported: bool
    reasons: tuple[str, ...]


def learned_from_labels(
    words: Sequence[Sequence[int]],
    labels: Sequence[int] | Sequence[Sequence[int]],
    *,
    letters: int,
    classes: int,
    method: str = "description_length",
    seconds: float | None = None,
    seed: int = 0,
    on_progress: Progress | None = None,
    max_states: int = 200,
    begin_with: Sequence[MooreMachine] = (),
) -> MachineFromLabels:
    """Return the machine that describes the labels of the words in the fewest bits.

    Args:
        words: Sequences of letters ``0 … letters − 1``; empty ones are allowed.
        labels: One class for every word, or one for every letter of every word; ``IGNORED`` where there is none.
        letters: How many letters there are.
        classes: How many classes there are.
        method: ``"description_length"`` tolerates wrong labels; ``"edsm"`` and ``"rpni"`` are the classical
            algorithms, which take every label as true (of a word labelled twice, the more frequent class).
        seconds: Stop after about this time with the best machine so far.
        seed: Of the lots by which words are held out and chances estimated.
        on_progress: Called with a share of the work between 0 and 1 and a sentence.
        max_states: The largest machine to consider.
        begin_with: Machines from elsewhere, of a trained model for example: the search begins with these, in place of
            merging states.  What they answer does not matter, only where they go.
    """
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(map(repr, METHODS))}; got {method!r}")
    if max_states < 1:
        raise ValueError(f"max_states must be at least 1; got {max_states!r}")
    for machine in begin_with:
        if machine.transitions.shape[1] != letters or machine.states > max_states:
            raise ValueError(f"begin_with must be machines over {letters} letters, of at most {max_states} states")
    if seconds is not None and seconds <= 0:
        raise ValueError(f"seconds must be positive, or None for no limit; got {seconds!r}")
    sample = sample_of(words, labels, letters, classes)
    learner = _Learner(sample, max_states, seconds, seed, on_progress or (lambda share, text: None))
    if begin_with:
        return learner.begun_with(begin_with)
    return learner.described() if method == "description_length" else learner.classical(method)


class _Learner:
    """One call of ``learned_from_labels``: the sample, the clock and what is reported."""

    def __init__(
        self, sample: Sample, max_states: int, seconds: float | None, seed: int, on_progress: Progress
    ) -> None:
        self.sample, self.max_states, self.seed = sample, max_states, seed
        self.on_progress = on_progress
        self.began = time.monotonic()
        self.seconds = seconds
        self.cut_short = False
        self.classical_ends = True  # EDSM on all words; where it does not end, it would not on the shorter ones
        self._share, self._text, self._told = 0.0, "", self.began

    def go_on(self, part: float = 1.0) -> bool:
        """Tell whether this part of the time is still left; repeat the last report now and then."""
        now = time.monotonic()
        if now - self._told > 1.0:
            self._told = now
            self.on_progress(self._share, f"{self._text} ({now - self.began:.0f} s)")
        if self.seconds is not None and now - self.began > part * self.seconds:
            self.cut_short = True
            return False
        return True

    def report(self, share: float, text: str) -> None:
        """Report a share of the work and a sentence."""
        self._share, self._text, self._told = share, text, time.monotonic()
        self.on_progress(share, text)

    def classical(self, method: str) -> MachineFromLabels:
        """Return what RPNI or EDSM gives."""
        self.report(0.0, f"merging states, {method.upper()}" + _SLOW)
        search = Search(self.sample, max_states=self.max_states)
        table = merged_machine(self.sample, way=method, max_states=self.max_states, go_on=self.go_on)
        if table is None:
            constant = search.measured(np.zeros((1, self.sample.letters), dtype=np.int32))
            limit = f"{self.seconds:g} seconds" if self.cut_short else f"{self.max_states} states"
            return self._answer(
                constant,
                (f"{method.upper()} did not end within {limit}; if some labels are wrong, use 'description_length'.",),
                supported=False,
            )
        candidate = search.measured(table)
        held_out = longest_tenth(self.sample, self.seed)
        shorter = self._classical_part(method, self.sample.part(~held_out)) if held_out.any() else None
        return self._answer(candidate, *self._judged(candidate, shorter))

    def _classical_part(self, method: str, part: Sample) -> Candidate | None:
        """Return what RPNI or EDSM gives on a part of the sample."""
        self.report(0.6, "the same from the shorter words")
        table = merged_machine(part, way=method, max_states=self.max_states, go_on=self.go_on) if part.labels else None
        return None if table is None else Search(part, max_states=self.max_states).measured(table)

    def described(self) -> MachineFromLabels:
        """Return the machine with the shortest description."""
        best = self._best(self.sample, 0.0, 0.7)
        held_out = longest_tenth(self.sample, self.seed)
        shorter = None
        if held_out.any() and self.go_on(0.8) and best.states > 1:
            part = self.sample.part(~held_out)
            if part.labels:
                shorter = self._best(part, 0.7, 1.0, start=best)
                # What the shorter words give is one more start.
                search = Search(self.sample, max_states=self.max_states, go_on=self.go_on)
                best = best_of([best, search.improved(search.measured(shorter.table, shorter.start))])
                if not self.sample.tagged and self.go_on():
                    self.report(self._share, f"evidence from letters, {best.states} states so far{_SLOW}")
                    after = by_letters(self.sample, search, best)
                    if after is not best:
                        best, shorter = after, self._best(part, 0.9, 1.0, start=after)
        return self._answer(best, *self._judged(best, shorter))

    def begun_with(self, machines: Sequence[MooreMachine]) -> MachineFromLabels:
        """Return the machine with the shortest description that local search finds from these."""
        best = self._searched(self.sample, machines)
        held_out = longest_tenth(self.sample, self.seed)
        shorter = None
        if held_out.any() and self.go_on() and best.states > 1:
            part = self.sample.part(~held_out)
            if part.labels:
                shorter = self._searched(part, [*machines, minimal(best)])
        return self._answer(best, *self._judged(best, shorter))

    def _searched(self, sample: Sample, machines: Sequence[MooreMachine]) -> Candidate:
        search = Search(sample, max_states=self.max_states, go_on=self.go_on)
        begun = (search.measured(each.transitions.astype(np.int32), each.start) for each in machines)
        return best_of([search.measured(np.zeros((1, sample.letters), dtype=np.int32)), *map(search.improved, begun)])

    def _best(self, sample: Sample, begin: float, end: float, start: Candidate | None = None) -> Candidate:
        """Return the best candidate of all starts; ``start`` is one of them, and others are fewer then."""
        part = end if self.seconds is not None else 1.0
        search = Search(sample, max_states=self.max_states, go_on=lambda: self.go_on(part))
        results = [search.measured(np.zeros((1, sample.letters), dtype=np.int32))]
        if start is not None:
            results.append(search.improved(search.measured(start.table, start.start)))
        if sample.letters >= MANY and not sample.tagged:
            # Merging states over so many letters takes long, and rarely leads anywhere.
            self.report(begin, f"{sample.letters} letters in groups{_SLOW}")
            begun = from_groups(sample, self.seed, lambda: self.go_on(0.9 * part)) if start is None else start
            if begun is not None:
                results.append(search.improved(search.measured(begun.table, begun.start)))
                if results[-1].errors <= _FEW * sample.labels:
                    return best_of(results)
        # Where no label is wrong the classical way is quick, and with a label at every letter hard to beat.
        classical = None
        if self.classical_ends:
            classical = merged_machine(
                sample, way="edsm", max_states=min(self.max_states, _CLASSICAL), go_on=lambda: self.go_on(part)
            )
        self.classical_ends = classical is not None
        if classical is not None:
            results.append(search.improved(search.measured(classical)))
            if sample.tagged and results[-1].errors == 0:
                return best_of(results) if start is not None else self._shaken(search, best_of(results))
        for number, rule in enumerate(starts(results, tagged=sample.tagged, brief=start is not None)):
            if not self.go_on(part):
                break
            share = begin + (end - begin) * (1 - 0.8**number)  # how many there will be depends on their results
            self.report(share, f"start {number + 1}, {best_of(results).states} states so far{_SLOW}")
            most = self.max_states if sample.tagged else min(self.max_states, rule.most)
            table = merged_machine(
                sample,
                way="bayes",
                noise=rule.noise,
                shape=rule.shape,
                trust=rule.trust,
                max_states=most,
                go_on=lambda: self.go_on(part),
            )
            if table is not None:
                results.append(search.improved(search.measured(table)))
        best = best_of(results) if len(results) > 1 else search.improved(results[0])  # grow from one state
        return best if start is not None or agreeing(results) >= 3 else self._shaken(search, best)

    def _shaken(self, search: Search, best: Candidate) -> Candidate:
        """Return what changes by lot make of the best candidate, where the starts do not agree on it."""
        self.report(self._share, f"changes by lot, {best.states} states so far{_SLOW}")
        return search.shaken(best, np.random.default_rng(self.seed))

    def _judged(self, best: Candidate, shorter: Candidate | None) -> tuple[tuple[str, ...], bool]:
        """Return the sentences about a machine, and whether the data support it; ``shorter`` saw the shorter words."""
        against = self._objections(best, shorter)
        if against:
            return tuple(against), False
        share = f"{best.errors} of {self.sample.labels} labels contradict it ({best.errors / self.sample.labels:.1%})"
        return (
            f"The same {best.states} states come out of the shorter nine tenths of the words.",
            f"{share}, no more on the longest words than on the others, and no state more than chance allows.",
            f"Machine and labels take {best.plain_bits:.0f} bits, the labels alone {bits_of_labels(self.sample):.0f}.",
        ), True

    def _objections(self, best: Candidate, shorter: Candidate | None) -> list[str]:
        sample = self.sample
        if int((sample.counts > 0).sum()) == 1:
            return ["All labels are the same class: there is nothing to tell apart. Add words of another class."]
        # One state tells only how frequent the labels are, in other bits.
        gain = bits_of_labels(sample) - best.plain_bits if best.states > 1 else 0.0
        if gain < GAIN:
            return [
                f"No machine describes the labels clearly better than their frequencies do ({max(gain, 0):.0f} bits; "
                f"{GAIN:.0f} are asked for): the labels may not depend on the words through finitely many states, or "
                "there are too few words. Check the labels, or give more words, short ones above all."
            ]
        if shorter is None:
            limit = "the time ran out" if self.cut_short else "there are too few words"
            return [f"The machine could not be checked on words held out: {limit}. Give more seconds or more words."]
        against = []
        if best.errors > MOST_NOISE * sample.labels:
            against.append(
                f"{best.errors / sample.labels:.0%} of the labels contradict the machine; beyond {MOST_NOISE:.0%}, "
                "wrong labels cannot be told from a machine that is too small. Give more words, or check the labels."
            )
        kinds = examples(sample, best, EXAMPLES * best.states)
        if len(kinds) and min(kinds.values()) < EXAMPLES * best.states:
            label = min(kinds, key=lambda each: kinds[each])
            against.append(
                f"Only {kinds[label]} different words of class {label} are there, fewer than {EXAMPLES} for each of "
                f"the {best.states} states: repeated words settle nothing. Give more different words of that class."
            )
        doubt = Search(sample, max_states=self.max_states).doubt(best)
        if doubt > DOUBT:
            against.append(
                "Some arc may as well lead elsewhere: the machines that differ in one arc have "
                f"{min(doubt, 1.0):.0%} of the credit of this one together ({DOUBT:.0%} are allowed). "
                "Give more words, above all such that walk the rare arcs."
            )
        one, other = minimal(best), minimal(shorter)
        at_once = not sample.tagged and one.outputs[0] != other.outputs[0]  # per letter, the empty word has no label
        word = () if at_once else one.separating_word(other)
        if word is not None:
            against.append(
                f"The shorter nine tenths of the words give another machine ({other.states} states instead of "
                f"{one.states}; the two differ on a word of {len(word)} letters): the data do not settle it. Give more "
                "words; if that does not help, no finite machine may be right, and a model with attention may be."
            )
        rival = None if sample.tagged else rival_by_letters(sample, best, self.go_on)
        if rival is not None:
            against.append(
                f"If it counts for more which letters follow one another, another machine of {rival.states} states is "
                "better: the words of a class have a rule that this machine does not know. Give more words, above all "
                "such that are just outside the class."
            )
        checked = Search(sample, max_states=self.max_states).measured(shorter.table, shorter.start)
        wrong = wrong_prefixes(sample, checked)
        if more_often_wrong(sample, wrong, longest_tenth(sample, self.seed)) < LEVEL:
            against.append(
                "The machine of the shorter words is wrong more often on the longest tenth: what it learned does not "
                "carry over to longer words. No machine with so few states may be right; a counter or a stack may be."
            )
        if unevenly_wrong(sample, best, wrong_prefixes(sample, best), self.seed) < LEVEL:
            against.append(
                "Labels that contradict the machine gather in some of its states, as mistakes of the machine do and "
                "accidents do not. Give more words: more states may be needed than these can show."
            )
        return against

    def _answer(self, candidate: Candidate, reasons: tuple[str, ...], supported: bool) -> MachineFromLabels:
        self.report(1.0, f"{candidate.states} states")
        return MachineFromLabels(
            machine=minimal(candidate),
            errors=candidate.errors,
            labels=self.sample.labels,
            noise=candidate.errors / self.sample.labels,
            bits=candidate.plain_bits,
            bits_alone=bits_of_labels(self.sample),
            supported=supported,
            reasons=reasons,
        )


_SLOW = "" if COMPILES else " (slowly: pip install 'transductor[cpu]' compiles the loops)"
