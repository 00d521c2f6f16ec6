"""Automata over truth values are languages: to and from DFAs, and equality."""

from __future__ import annotations

import numpy as np

from transductor.automata.finite_algebra import determinised, separating_word
from transductor.automata.finite_algebra import minimised as minimised_dfa
from transductor.automata.finite_automata import DFA, NFA, weights01
from transductor.automata.reduction import Equivalence
from transductor.automata.weighted import WeightedAutomaton


def as_dfa(automaton: WeightedAutomaton) -> DFA:
    """The words of weight True, as a minimal DFA."""
    if automaton.weights.name != "boolean":
        raise ValueError(f"automaton must have weights 'boolean'; got {automaton.weights.name!r}")
    if automaton.dim == 0:
        return DFA(automaton.alphabet, np.zeros((1, len(automaton.alphabet)), dtype=np.int64), 0, frozenset())
    edges = {
        (int(source), automaton.alphabet[letter], int(to)) for letter, to, source in np.argwhere(automaton.matrices)
    }
    starts, accepting = (frozenset(map(int, np.flatnonzero(ends))) for ends in (automaton.initial, automaton.final))
    return minimised_dfa(determinised(NFA(automaton.alphabet, automaton.dim, frozenset(edges), starts, accepting)))


def from_dfa(dfa: DFA, weights: str = "boolean") -> WeightedAutomaton:
    """The 0/1 automaton of a language: weight one on its words."""
    initial, matrices, final = weights01(dfa)
    return WeightedAutomaton(initial, matrices, final, dfa.alphabet, weights=weights)


def deterministic(automaton: WeightedAutomaton) -> WeightedAutomaton:
    """The least deterministic automaton of the language."""
    return from_dfa(as_dfa(automaton))


def separated(a: WeightedAutomaton, b: WeightedAutomaton) -> Equivalence:
    """Whether two languages are equal; if not, a shortest word of one alone."""
    first, second = as_dfa(a), as_dfa(b)
    word = separating_word(first, second)
    weights = None if word is None else (first(word), second(word))
    return Equivalence(word is None, word, weights, exact=True, tolerance=0.0, checked=first.states + second.states)
