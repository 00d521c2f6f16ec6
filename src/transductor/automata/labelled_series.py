"""Moore machines as series: the value of a word is its label, so every format that holds numbers holds them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from transductor.automata.boolean import as_dfa
from transductor.automata.finite_automata import DFA
from transductor.automata.moore import IGNORED, MooreMachine
from transductor.automata.weighted import WeightedAutomaton


def series_of_labels(machine: MooreMachine, alphabet: Sequence[Hashable] | None = None) -> WeightedAutomaton:
    """Return the automaton whose value on a word is the machine's label, ``IGNORED`` included.

    The empty word gets the label of the start, which no model shows.  Without an alphabet, letters are numbers.
    """
    states = np.eye(machine.states, dtype=np.int64)
    matrices = states[machine.transitions.T].transpose(0, 2, 1)  # [letter, from, to] → [letter, to, from]
    letters = tuple(range(machine.letters)) if alphabet is None else tuple(alphabet)
    return WeightedAutomaton(states[machine.start].tolist(), matrices.tolist(), machine.outputs.tolist(), letters)


def labels_of_series(automaton: WeightedAutomaton) -> DFA | MooreMachine | None:
    """Return the finite machine whose labels are the values of a series; None where its weights do not show one.

    Truth values are a language, as a minimal DFA.  Numbers must have one initial state, at most one step of weight 1
    for each state and letter, and labels (0, 1, 2, … or ``IGNORED``) as final weights; where there is no step, the
    label is 0 from there on.
    """
    if automaton.weights.name == "boolean":
        return as_dfa(automaton)
    initial, matrices, final = automaton.initial, automaton.matrices, automaton.final
    if not automaton.weights.field or not len(initial):
        return None
    steps = np.array(matrices == 1)
    states = (np.array(initial == 1), np.array(initial != 0))
    labels = [value for value in final if value == int(value) and (value >= 0 or value == IGNORED)]
    deterministic = ((steps | (matrices == 0)).all(), (steps.sum(1) <= 1).all(), len(labels) == len(final))
    if not all(deterministic) or states[0].sum() != 1 or states[1].sum() != 1:
        return None
    sink = len(final)
    table = np.where(steps.any(1), steps.argmax(1), sink).T
    outputs = np.array([int(label) for label in labels])
    if (table == sink).any():
        table = np.concatenate((table, np.full((1, table.shape[1]), sink)))
        outputs = np.append(outputs, 0)
    return MooreMachine(table, outputs, int(states[0].argmax()))
