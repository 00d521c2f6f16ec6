"""Looking for the machine behind labels, from the surest way on, and judging what is found.

*From the labels alone*: states of their prefix tree are merged (:func:`~transductor.automata.learned_from_labels`).
Where that is enough, no network is needed: the machine is compiled into a model.  *From a trained model*: the machine
that its head is near to, or that its answers are those of (:func:`~transductor.extraction.harden`).

A candidate is refused for any of these reasons:

* it is refused by the way that led to it;
* on the sequences that were kept back it is wrong more often than on the others can explain: if wrong labels were as
  frequent there, so many errors would occur with a probability below ``LEVEL``;
* it takes more bits to write the machine and its errors than to write the labels without any machine;
* it was read off a model, or the search began with one, and it contradicts a label that some machine could give,
  because then nothing tells wrong labels from a wrong machine: a model that is nearly right is near to a machine that
  is nearly right.

Of two candidates the one that takes fewer bits is better.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np

from transductor.automata import MachineFromLabels, MooreMachine, TokenAlphabet, learned_from_labels
from transductor.automata.moore import IGNORED
from transductor.compilation import CannotCompile, compile_model
from transductor.extraction import NoMachineNearby, harden
from transductor.learning.divided_data import DividedData, LabelledWords
from transductor.learning.selection import Measured
from transductor.model import RationalReadout, RationalTransductor, SequenceModel

LEVEL: Final = 1e-3

# Ways that lead to a machine, and how a sentence names them.
WAYS: Final = {
    "labels": "from the labels alone, by merging states",
    "begun": "from the labels, by a search that began with a small trained model",
    "walk": "from the states of the trained model",
    "reduced walk": "from the states of the trained model, after spare dimensions were taken away",
    "questions": "from the answers of the trained model",
}


@dataclass(frozen=True)
class Candidate:
    """A machine over the user's letters, and how it is judged.

    Attributes:
        machine: The label of its start is the empty word's, where labels are of sequences.
        way: How it was found, one of ``WAYS``.
        recipe: The model it was read off; empty where there was none.
        model: The model that was hardened to it, if one was.
        shorter: How right it is on everything that was not kept back for its length.
        kept_back: How right it is on what was kept back.
        noise: The estimated share of wrong labels.
        bits: How long machine and errors are, written down.
        bits_alone: How long the labels are without a machine.
        refusals: Why it is not believed; empty where it is.
        reasons: What else was said about it.
        agreement: How many labels of what was kept back the chosen model gives alike, if there is a model.
    """

    machine: MooreMachine
    way: str
    recipe: str
    model: SequenceModel[Any] | None
    shorter: Measured
    kept_back: Measured
    noise: float
    bits: float
    bits_alone: float
    refusals: tuple[str, ...]
    reasons: tuple[str, ...] = ()
    agreement: Measured | None = None

    @property
    def believed(self) -> bool:
        """Whether nothing speaks against it."""
        return not self.refusals

    def plain(self) -> dict[str, Any]:
        """Return what a record says about it."""
        return {
            "way": self.way,
            "how": WAYS[self.way],
            "recipe": self.recipe,
            "states": self.machine.states,
            "shorter": self.shorter.plain(),
            "kept_back": self.kept_back.plain(),
            "noise": self.noise,
            "bits": self.bits,
            "bits_alone": self.bits_alone,
            "refusals": list(self.refusals),
            "reasons": list(self.reasons),
            "agreement": None if self.agreement is None else self.agreement.plain(),
        }


def machine_labels(machine: MooreMachine, words: Sequence[Sequence[int]], *, tags: bool) -> list[Any]:
    """Return the machine's label of every word, or with ``tags`` the labels after each of its letters."""
    table, outputs = machine.transitions.tolist(), machine.outputs.tolist()
    results: list[Any] = []
    for word in words:
        state = machine.start
        labels = []
        for letter in word:
            state = table[state][letter]
            labels.append(outputs[state])
        results.append(tuple(labels) if tags else outputs[state])
    return results


def right_labels(said: Sequence[Any], given: Sequence[Any]) -> Measured:
    """Return how many of the given labels are among those said; a position without a label does not count."""
    count = right = 0
    for one, other in zip(said, given, strict=True):
        pairs = zip(one, other, strict=True) if isinstance(other, tuple) else ((one, other),)
        for mine, label in pairs:
            if label != IGNORED:
                count += 1
                right += mine == label
    return Measured(count, right, sequences=len(given))


def contradicted(machine: MooreMachine, labelled: LabelledWords) -> list[tuple[tuple[int, ...], int, int]]:
    """Return the words whose label is not the machine's, shortest first, each with the label given and the machine's.

    Where labels are of letters, it is the beginning of the word up to the letter.
    """
    tags = any(isinstance(label, tuple) for label in labelled.labels)
    said = machine_labels(machine, labelled.words, tags=tags)
    wrong = []
    for word, given, own in zip(labelled.words, labelled.labels, said, strict=True):
        each = zip(range(1, len(word) + 1), given, own, strict=True) if tags else [(len(word), given, own)]
        wrong += [(word[:end], label, mine) for end, label, mine in each if label not in (IGNORED, mine)]
    return sorted(set(wrong), key=lambda one: (len(one[0]), one))


def agreement_on(machine: MooreMachine, labelled: LabelledWords) -> Measured:
    """Return how many labels of these words are the machine's."""
    tags = any(isinstance(label, tuple) for label in labelled.labels)
    return right_labels(machine_labels(machine, labelled.words, tags=tags), labelled.labels)


def learned(
    data: DividedData, *, seconds: float, seed: int, on_progress: Callable[[float, str], None] | None = None
) -> MachineFromLabels:
    """Learn a machine from the labels of all sequences but those kept back for their length."""
    letters, classes = sizes(data)
    shorter, opening = data.shorter, _opening(data)
    words = shorter.words if opening is None else [word[1:] for word in shorter.words]
    if on_progress is not None:
        on_progress(0.0, "compiling, the first time")
    _compile_the_search(tags=data.source.goal == "tagging")
    search = partial(learned_from_labels, words, shorter.labels, letters=letters, classes=classes, seed=seed)
    if data.source.goal == "tagging":
        # Labels after every letter leave little to search for, unless some are wrong: the classical way is quicker.
        result = search(method="edsm", seconds=seconds / 4, on_progress=on_progress)
        if result.supported and not result.errors:
            return result
    result = search(seconds=seconds, on_progress=on_progress)
    if opening is None:
        return result
    again = any(opening in word for word in words)
    return replace(result, machine=_opened(result.machine, opening, again=again))


def _opening(data: DividedData) -> int | None:
    """Return the letter that every word begins with, where labels are of words; None if there is none.

    It says nothing, and no label shows where it leads: with labels exchanged it may lead to any state.
    """
    first = {word[0] if word else None for word in data.shorter.words}
    return first.pop() if len(first) == 1 and data.source.goal == "recognition" else None


def _opened(machine: MooreMachine, opening: int, *, again: bool) -> MooreMachine:
    """Return the machine that reads a letter and then goes on as this one; ``again`` says whether it occurs later."""
    table, start = machine.transitions.copy(), machine.start
    before = np.flatnonzero(table[:, opening] == start)
    if not again:
        table[start, opening] = start
        return MooreMachine(table, machine.outputs, start)
    if len(before):
        return MooreMachine(table, machine.outputs, int(before[0])).minimised(empty_word=True)
    fresh = np.full((1, table.shape[1]), len(table))
    fresh[0, opening] = start
    outputs = np.append(machine.outputs, machine.outputs[start])
    return MooreMachine(np.concatenate([table, fresh]), outputs, len(table)).minimised(empty_word=True)


def _compile_the_search(*, tags: bool) -> None:
    """Run the search once on a few words, so that the time it takes to compile is not taken from the search."""
    words = [tuple(map(int, f"{number:b}")) for number in range(32)]
    counts = [[sum(word[: end + 1]) % 2 for end in range(len(word))] for word in words]
    for method in ("edsm", "description_length") if tags else ("description_length",):
        labels = counts if tags else [count[-1] for count in counts]
        learned_from_labels(words, labels, letters=2, classes=2, method=method)


def from_labels(result: MachineFromLabels, data: DividedData, *, way: str = "labels") -> Candidate:
    """Return the machine that was learned from labels, judged on what was kept back."""
    assert data.source.vocabulary is not None
    names = data.source.vocabulary.classes
    reasons = tuple(
        re.sub(r"\bclass (\d+)", lambda one: f"class {names[int(one[1])]}", each) for each in result.reasons
    )
    candidate = _judged(result.machine, way, data, () if result.supported else reasons)
    return replace(candidate, noise=result.noise, reasons=reasons if result.supported else ())


def from_model(recipe: str, model: SequenceModel[Any], data: DividedData, alphabet: TokenAlphabet) -> Candidate | str:
    """Return the machine that a trained model is near to, judged; or the reason why there is none."""
    if not isinstance(model, RationalReadout | RationalTransductor):
        return f"{recipe}: no machine can be read off a model of this kind"
    words = [row.tolist() for row in data.training.examples.tokens]
    try:
        hardened: Any = harden(model, words=words, alphabet=alphabet)
    except (NoMachineNearby, ImportError) as error:
        return f"{recipe}: {error}"
    extraction = hardened.extraction
    if not extraction.labelled:
        return f"{recipe}: its labels are no function of the state of its head"
    machine = extraction.machine
    candidate = contradicting(_judged(machine, extraction.way, data, ()), data, "that is read off a model")
    return replace(candidate, recipe=recipe, model=hardened.model)


def contradicting(candidate: Candidate, data: DividedData, which: str) -> Candidate:
    """Return a candidate that is refused if it contradicts a label that some machine could give."""
    errors = candidate.shorter.count - candidate.shorter.right
    if candidate.machine.states == 1 or errors <= data.shorter.unavoidable_errors():
        return candidate
    refusal = (
        f"it contradicts {errors:,} of {candidate.shorter.count:,} labels: a machine {which} must give all of them, "
        "because nothing tells wrong labels from a wrong machine"
    )
    return replace(candidate, refusals=(*candidate.refusals, refusal))


def sizes(data: DividedData) -> tuple[int, int]:
    """Return how many letters and how many classes there are."""
    vocabulary = data.source.vocabulary
    assert vocabulary is not None
    return len(vocabulary.letters), len(vocabulary.classes)


def _judged(machine: MooreMachine, way: str, data: DividedData, refusals: tuple[str, ...]) -> Candidate:
    bits, bits_alone = description(machine, data.shorter, sizes(data)[1])
    if machine.states == 1 and not refusals:
        refusals = ("it gives the same label to everything",)
    shorter, kept_back = (agreement_on(machine, words) for words in (data.shorter, data.held_out.words))
    # One error more than there are, so that a sample without any does not forbid the first.
    rate = (shorter.count - shorter.right + 1) / (shorter.count + 2)
    errors = kept_back.count - kept_back.right
    # Of a constant label nothing else needs to be said.
    compared = machine.states > 1
    if compared and data.longer is not None and (chance := at_least(errors, kept_back.count, rate)) < LEVEL:
        refusals += (
            f"it is wrong on {errors} of {kept_back.count} labels of the longer sequences that were kept back, and on "
            f"{shorter.count - shorter.right} of {shorter.count} of the others: by chance that happens with a "
            f"probability of {chance:.1g}, so it does not hold for longer sequences",
        )
    if compared and bits >= bits_alone:
        refusals += (
            f"machine and errors take {bits:,.0f} bits to write, the labels alone {bits_alone:,.0f}: the data do not "
            f"support {machine.states} states",
        )
    noise = 1 - shorter.share
    return Candidate(machine, way, "", None, shorter, kept_back, noise, bits, bits_alone, refusals)


def at_least(errors: int, count: int, rate: float) -> float:
    """Return the probability of at least so many errors among ``count``, each with probability ``rate``."""
    if errors <= 0:
        return 1.0
    logs = [
        math.lgamma(count + 1)
        - math.lgamma(each + 1)
        - math.lgamma(count - each + 1)
        + each * math.log(rate)
        + (count - each) * math.log1p(-rate)
        for each in range(errors, count + 1)
    ]
    return min(1.0, math.fsum(math.exp(each) for each in logs))


def description(machine: MooreMachine, labelled: LabelledWords, classes: int) -> tuple[float, float]:
    """Return the bits of machine and errors, and those of the labels without a machine.

    The errors of N labels with share e take N·H(e) + eN·log₂(K − 1) bits, the machine's arcs log₂(states) each and its
    labels log₂ K; arcs that no word of the data takes are free, as nothing is claimed about them.  Labels alone take
    N times the entropy of their frequencies.
    """
    result = agreement_on(machine, labelled)
    count, errors = result.count, result.count - result.right
    arcs = len(walked(machine, labelled)) * math.log2(max(1, machine.states)) + machine.states * math.log2(classes)
    wrong = count * _entropy([errors, count - errors]) + errors * math.log2(max(1, classes - 1))
    return arcs + wrong, count * _entropy(list(Counter(labelled.classes()).values()))


def walked(machine: MooreMachine, labelled: LabelledWords) -> set[tuple[int, int]]:
    """Return the steps that these words take: a state and the letter that is read there."""
    table, steps = machine.transitions.tolist(), set()
    for word in labelled.words:
        state = machine.start
        for letter in word:
            steps.add((state, letter))
            state = table[state][letter]
    return steps


def _entropy(counts: Sequence[int]) -> float:
    total = sum(counts)
    return -math.fsum(each / total * math.log2(each / total) for each in counts if each) if total else 0.0


def compiled(machine: MooreMachine, alphabet: TokenAlphabet, classes: int) -> SequenceModel[Any] | str:
    """Return a model that is this machine, over the tokens of the data; or why there is none.

    It reads ``<start>`` first, and passes over tokens that are no letters.
    """
    outputs = np.where(machine.outputs == IGNORED, 0, machine.outputs)
    complete = MooreMachine(machine.transitions, outputs, machine.start)
    try:
        return compile_model(alphabet.idle(complete, before=False), output_size=classes)
    except CannotCompile as error:
        return str(error)
