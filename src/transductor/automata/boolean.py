"""Automata over truth values are languages: from weighted automata to DFAs and back."""

from __future__ import annotations

import numpy as np

from transductor.automata.finite_algebra import minimised
from transductor.automata.finite_automata import DFA, NFA, determinised, weights01
from transductor.automata.weighted import WeightedAutomaton


def as_dfa(automaton: WeightedAutomaton) -> DFA:
    """Return the minimal DFA of the words that have the weight True."""
    if automaton.weights.name != "boolean":
        raise ValueError(f"automaton must have weights 'boolean'; got {automaton.weights.name!r}")
    if automaton.dim == 0:
        return DFA(automaton.alphabet, np.zeros((1, len(automaton.alphabet)), dtype=np.int64), 0, frozenset())
    steps = np.argwhere(automaton.matrices).tolist()
    edges = frozenset((source, automaton.alphabet[letter], to) for letter, to, source in steps)
    starts, accepting = (frozenset(map(int, np.flatnonzero(ends))) for ends in (automaton.initial, automaton.final))
    return minimised(determinised(NFA(automaton.alphabet, automaton.dim, edges, starts, accepting)))


def from_dfa(dfa: DFA, weights: str = "boolean") -> WeightedAutomaton:
    """Return the automaton that gives the weight one to the words of a language and zero to all others."""
    return WeightedAutomaton(*weights01(dfa), dfa.alphabet, weights=weights)
