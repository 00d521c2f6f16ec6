"""Automata as linear recurrences: a start, one matrix per letter, and what a state means.

*regular*: coordinate q is state q, so a finite machine has 0/1 matrices and its state is a one-hot vector at every
length: a sum of zeros and a single one is never rounded, whatever the order of the products.  *smallest*: as few
coordinates as are known to suffice, with real entries, hence with rounding.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from transductor.automata.boolean import as_dfa
from transductor.automata.finite_automata import DFA, NFA, determinised
from transductor.automata.graphs import breadth_first
from transductor.automata.library import NamedMachine
from transductor.automata.moore import IGNORED, MooreMachine
from transductor.automata.reduction import minimised
from transductor.automata.weighted import WeightedAutomaton
from transductor.checks import one_of

Automaton: TypeAlias = DFA | NFA | MooreMachine | WeightedAutomaton
Reals: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]

REALISATIONS: Final = ("regular", "smallest")


class CannotCompile(ValueError):
    """No exact compilation of this automaton in this form; the message says why and what can hold it.

    Attributes:
        instead: Families that hold the same automaton, where another family is the remedy.
    """

    def __init__(self, reason: str, instead: tuple[str, ...] = ()) -> None:
        self.instead = instead
        super().__init__(f"{reason}; {' and '.join(map(repr, instead))} can" if instead else reason)


@dataclass(frozen=True)
class Realisation:
    """The linear recurrence ``h_t = M_{x_t} h_{t−1}`` from ``initial``.

    Attributes:
        alphabet: The letters; token v stands for ``alphabet[v]``.
        initial: ``h_0 (D)``.
        matrices: ``M[letter, to, from]``, ``(V, D, D)``.
        final: ``(D)``, where the value of a word is ``final · h``; None for a finite machine.
        machine: The finite machine, where there is one.
        vectors: ``(states, D)``, the vector that stands for each of its states.
        classes: How many labels it may give; 2 for a language.
    """

    alphabet: tuple[Hashable, ...]
    initial: Reals
    matrices: Reals
    final: Reals | None = None
    machine: MooreMachine | None = None
    vectors: Reals | None = None
    classes: int = 1

    @property
    def letters(self) -> int:
        """The number V of letters."""
        return len(self.alphabet)

    @property
    def dim(self) -> int:
        """The dimension D of a state."""
        return len(self.initial)

    @property
    def deterministic(self) -> bool:
        """Whether every letter sends every coordinate to one coordinate, with weight 1."""
        zero_one = np.isin(self.matrices, (0.0, 1.0)).all()
        return bool(zero_one and (self.matrices.sum(1) == 1).all())

    @property
    def permutes(self) -> bool:
        """Whether every letter is a permutation of the coordinates."""
        return self.deterministic and bool((self.matrices.sum(2) == 1).all())


def realised(automaton: Automaton, realisation: str = "regular") -> Realisation:
    """Return the linear recurrence of an automaton.

    Truth-valued automata and NFAs are languages: they are determinised.  Numbers are kept as they are.

    Raises:
        CannotCompile: For costs and log-probabilities, which another semiring multiplies; for ``"smallest"``, if the
            letters do not generate a cyclic group.
    """
    one_of("realisation", realisation, REALISATIONS)
    if isinstance(automaton, NamedMachine):
        raise TypeError(
            "automaton must be an automaton, and a NamedMachine has two: give its .dfa (a language) or its .automaton "
            "(a series)"
        )
    if not isinstance(automaton, DFA | NFA | MooreMachine | WeightedAutomaton):
        raise TypeError(
            "automaton must be a DFA, an NFA, a MooreMachine or a WeightedAutomaton (a pattern is compiled as "
            f"regex(pattern)); got {type(automaton).__name__}"
        )
    if isinstance(automaton, WeightedAutomaton) and automaton.weights.name == "boolean":
        automaton = as_dfa(automaton)
    if isinstance(automaton, WeightedAutomaton):
        _check_letters(len(automaton.alphabet))
        return _weighted(automaton, realisation)
    if isinstance(automaton, NFA):
        automaton = determinised(automaton)
    alphabet: tuple[Hashable, ...]
    if isinstance(automaton, DFA):
        machine, alphabet, classes = MooreMachine.from_dfa(automaton), automaton.alphabet, 2
    else:
        machine, alphabet = automaton, tuple(range(automaton.letters))
        classes = max(1, int(automaton.outputs.max()) + 1)
        wrong = [int(label) for label in automaton.outputs if label < 0 and label != IGNORED]
        if wrong:
            raise CannotCompile(f"automaton must have labels of at least 0, or IGNORED; got {wrong[0]}")
    _check_letters(machine.letters)
    realise = _regular if realisation == "regular" else _rotation
    return realise(machine, alphabet, classes)


def _check_letters(letters: int) -> None:
    if letters == 0:
        raise CannotCompile("automaton must have at least one letter: without tokens there is nothing to read")


def _weighted(automaton: WeightedAutomaton, realisation: str) -> Realisation:
    if not automaton.weights.field:
        raise CannotCompile(
            f"automaton has weights {automaton.weights.name!r}, and heads add and multiply real numbers; compile one "
            "with weights 'rational', 'float' or 'boolean', or scan it with semiring= as it is"
        )
    if realisation == "smallest":
        automaton = minimised(automaton)
    if automaton.dim == 0:  # the series 0
        zero = np.zeros(1)
        return Realisation(automaton.alphabet, zero, np.zeros((len(automaton.alphabet), 1, 1)), zero)
    try:
        initial, matrices, final = (
            np.array(part, dtype=np.float64) for part in (automaton.initial, automaton.matrices, automaton.final)
        )
    except OverflowError:
        raise CannotCompile("automaton has weights beyond the range of float64 (about 1e308)") from None
    return Realisation(automaton.alphabet, initial, matrices, final)


def _regular(machine: MooreMachine, alphabet: tuple[Hashable, ...], classes: int) -> Realisation:
    states = np.eye(machine.states)
    matrices = states[machine.transitions.T].transpose(0, 2, 1)  # [letter, from, to] → [letter, to, from]
    return Realisation(alphabet, states[machine.start], np.ascontiguousarray(matrices), None, machine, states, classes)


def _rotation(machine: MooreMachine, alphabet: tuple[Hashable, ...], classes: int) -> Realisation:
    """Return a cyclic machine as turns of the plane: state ``gᵏ(start)`` at the angle ``2πk/n``; ±1 when n ≤ 2."""
    machine = _reachable(machine)
    count, phases = machine.states, _phases(machine)
    turns = phases[machine.transitions[machine.start]]
    if count <= 2:
        signs = np.array([1.0, -1.0])
        vectors, matrices = signs[phases][:, None], signs[turns][:, None, None]
    else:
        vectors = np.array([_direction(int(phase), count) for phase in phases])
        cosines, sines = np.array([_direction(int(turn), count) for turn in turns]).T
        matrices = np.stack((np.stack((cosines, -sines), -1), np.stack((sines, cosines), -1)), -2)
    return Realisation(alphabet, vectors[machine.start], matrices, None, machine, vectors, classes)


def _direction(phase: int, count: int) -> tuple[float, float]:
    """Return cosine and sine of ``2π phase / count``; quarter turns do not round."""
    quarters, rest = divmod(4 * (phase % count), count)
    cosine, sine = math.cos(math.pi * rest / (2 * count)), math.sin(math.pi * rest / (2 * count))
    for _ in range(quarters):
        cosine, sine = -sine, cosine
    return cosine + 0.0, sine + 0.0  # no −0


def _phases(machine: MooreMachine) -> Integers:
    """Return ``phases[gᵏ(start)] = k`` for a generator g of the group of the letters, or refuse."""
    count, letters = machine.states, machine.transitions.T
    advice = "realisation='smallest' needs letters that generate a cyclic group, such as a counter's"
    if any(len(set(letter)) < count for letter in letters.tolist()):
        raise CannotCompile(f"{advice}, and here a letter merges states; use realisation='regular'")
    if any((a[b] != b[a]).any() for a in letters for b in letters):
        raise CannotCompile(f"{advice}, and here two letters do not commute; use realisation='regular'")
    # Commuting and transitive, the group has one element for every state, and a letter's order is the start's orbit.
    # It is cyclic when the least common multiple of the orders is all of it, and then a short word generates it.
    if math.lcm(*(len(_orbit(letter, machine.start)) for letter in letters)) < count:
        raise CannotCompile(f"{advice}, and here no word has order {count}; use realisation='regular'")
    words, met = [np.arange(count)], {machine.start}
    for word in words:
        orbit = _orbit(word, machine.start)
        if len(orbit) == count:
            break
        for longer in (letter[word] for letter in letters):
            if (reached := int(longer[machine.start])) not in met:
                met.add(reached)
                words.append(longer)
    phases = np.empty(count, dtype=np.int64)
    phases[orbit] = np.arange(count)
    return phases


def _orbit(permutation: Integers, start: int) -> list[int]:
    """Return the states that a permutation leads to from the start, in turn."""
    steps, orbit = permutation.tolist(), [start]
    while (after := steps[orbit[-1]]) != start:
        orbit.append(after)
    return orbit


def _reachable(machine: MooreMachine) -> MooreMachine:
    """Return the machine with only the states that words lead to, breadth-first."""
    states, table = breadth_first(machine.transitions, machine.start)
    return MooreMachine(table, machine.outputs[states])


def mealy_merged(machine: MooreMachine) -> tuple[MooreMachine, Integers]:
    """Return the machine with the fewest states that tell the *next* label, and ``labels (states, letters)``.

    Long addition is two carries here, and two carries beside every digit as a Moore machine.  The merged machine has no
    labels of its own.
    """
    machine = _reachable(machine)
    labels = machine.outputs[machine.transitions]
    classes = np.unique(labels, axis=0, return_inverse=True)[1].reshape(-1)
    while True:
        both = np.column_stack((classes, classes[machine.transitions]))
        finer = np.unique(both, axis=0, return_inverse=True)[1].reshape(-1)
        if finer.max() == classes.max():
            break
        classes = finer
    first = np.unique(classes, return_index=True)[1]
    merged = classes[machine.transitions[first]]
    unlabelled = np.full(len(first), IGNORED)
    return MooreMachine(merged, unlabelled, int(classes[machine.start])), labels[first]
