"""From arcs, which files list, to matrices, which automata hold, and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from transductor.automata.finite_automata import DFA, NFA
from transductor.automata.formats.epsilon import EpsilonCycleError, without_epsilon
from transductor.automata.formats.errors import AutomatonFormatError
from transductor.automata.formats.limits import MAX_ARCS, MAX_STEPS, Budget, check_size
from transductor.automata.weighted import WeightedAutomaton
from transductor.automata.weights import Array, Weights, weights_named
from transductor.automata.words import Symbol

Arc: TypeAlias = tuple[int, Symbol | None, int, Any]
"""The state an arc comes from, its letter (None is ε), the state it goes to, and its weight."""


@dataclass(frozen=True, eq=False)
class ArcList:
    """What a file lists: states by number, arcs, and the weights of starting and stopping.

    ``alphabet`` gives the order of the letters and adds letters that no arc reads; without it, those that arcs
    read are sorted.  ``names`` are the states as the file calls them, for messages.
    """

    source: str
    weights: Weights
    states: int
    arcs: Sequence[Arc]
    initial: Mapping[int, Any]
    final: Mapping[int, Any]
    alphabet: Sequence[Symbol] | None = None
    names: Sequence[object] | None = None

    def letters(self) -> tuple[Symbol, ...]:
        """Return the letters, and refuse more arcs than are read and letters that the alphabet lacks."""
        if len(self.arcs) > MAX_ARCS:
            reason = f"there are {len(self.arcs)} arcs; at most {MAX_ARCS} are read"
            raise AutomatonFormatError(self.source, None, reason)
        read = dict.fromkeys(letter for _, letter, _, _ in self.arcs if letter is not None)
        letters = tuple(sorted(read, key=_by_kind) if self.alphabet is None else self.alphabet)
        for letter in set(read) - set(letters):
            reason = f"the letter {letter!r} is not in the alphabet that was given"
            raise AutomatonFormatError(self.source, None, reason)
        return letters


def language_of_arcs(listed: ArcList) -> NFA:
    """Return the automaton of the words that an unweighted list of arcs accepts; no matrix is made.

    Arcs and ends of weight zero are left out; any other weight than one is refused.
    """
    zero, one, letters = listed.weights.zero, listed.weights.one, listed.letters()
    for weight in (*(weight for *_, weight in listed.arcs), *listed.final.values()):
        if weight not in (zero, one):
            reason = (
                f"the weight {weight} is neither one nor zero of {listed.weights.name!r}: read_dfa reads no weights"
            )
            raise AutomatonFormatError(listed.source, None, reason)
    edges = frozenset((source, letter, to) for source, letter, to, weight in listed.arcs if weight == one)
    starts, ends = (
        frozenset(state for state, weight in entries.items() if weight == one)
        for entries in (listed.initial, listed.final)
    )
    try:
        return NFA(letters, listed.states, edges, starts, ends)
    except ValueError as error:
        raise AutomatonFormatError(listed.source, None, str(error)) from None


def assembled(listed: ArcList) -> WeightedAutomaton:
    """Return the automaton with these arcs; parallel arcs are summed and ε arcs are removed exactly."""
    source, weights, states, names = listed.source, listed.weights, listed.states, listed.names
    letters = listed.letters()
    index = {letter: number for number, letter in enumerate(letters)}
    check_size(source, None, weights, states, len(letters))
    budget = Budget(MAX_STEPS)
    try:
        start, table, epsilon = _summed(weights, states, index, listed.arcs, listed.initial, budget)
        if epsilon:
            start, table = without_epsilon(weights, epsilon, start, table, budget)
        return WeightedAutomaton(start, table, _vector(weights, states, listed.final), letters, weights=weights)
    except EpsilonCycleError as error:
        state = error.state if names is None else names[error.state]
        reason = str(error).replace(f"state {error.state}", f"state {state}")
        raise AutomatonFormatError(source, None, reason) from None
    except ValueError as error:
        raise AutomatonFormatError(source, None, str(error)) from None


def _by_kind(letter: Any) -> tuple[bool, Any]:
    return isinstance(letter, str), letter


def _summed(
    weights: Weights,
    states: int,
    index: Mapping[Symbol, int],
    arcs: Iterable[Arc],
    initial: Mapping[int, Any],
    budget: Budget,
) -> tuple[Array, Array, dict[tuple[int, int], Any]]:
    table = weights.zeros(len(index), states, states)
    epsilon: dict[tuple[int, int], Any] = {}
    exact = weights.name == "rational"
    for source, letter, to, weight in arcs:
        if weight == weights.zero:
            continue
        if letter is None:
            total = weights.plus(epsilon.get((to, source), weights.zero), weight)
            epsilon[to, source] = total
        else:
            place = (index[letter], to, source)
            total = weights.plus(table[place], weight)
            table[place] = total
        if exact:
            budget.spend_on([total])
    return _vector(weights, states, initial), table, epsilon


def _vector(weights: Weights, states: int, entries: Mapping[int, Any]) -> Array:
    vector = weights.zeros(states)
    for state, weight in entries.items():
        vector[state] = weight
    return vector


def arcs_of(automaton: WeightedAutomaton) -> Iterator[tuple[int, int, int, Any]]:
    """Yield the arcs that are not zero as ``(from, letter number, to, weight)``, by source, target, then letter."""
    present = ~automaton.weights.is_zero(automaton.matrices)
    for source, to, letter in np.argwhere(present.transpose(2, 1, 0)).tolist():
        yield source, letter, to, automaton.matrices[letter, to, source]


def edges_of(automaton: WeightedAutomaton) -> dict[tuple[int, int], list[tuple[int, Any]]]:
    """Return the letter numbers and weights of the arcs that are not zero, by ``(from, to)``."""
    edges: dict[tuple[int, int], list[tuple[int, Any]]] = {}
    for source, letter, to, weight in arcs_of(automaton):
        edges.setdefault((source, to), []).append((letter, weight))
    return edges


def with_one_start(automaton: WeightedAutomaton) -> tuple[int, WeightedAutomaton]:
    """Return a start state of weight one, and the same series as an automaton that starts only there.

    Several initial states, or a weight other than one, become a new last state: its arcs are the first steps of the
    old initial states together, its final weight is the weight of the empty word.  No ε arc is needed.
    """
    ring, dim = automaton.weights, automaton.dim
    begun = np.flatnonzero(~ring.is_zero(automaton.initial)).tolist()
    if len(begun) == 1 and automaton.initial[begun[0]] == ring.one:
        return begun[0], automaton
    initial, final = ring.zeros(dim + 1), ring.zeros(dim + 1)
    initial[dim] = ring.one
    final[:dim] = automaton.final
    matrices = ring.zeros(len(automaton.alphabet), dim + 1, dim + 1)
    matrices[:, :dim, :dim] = automaton.matrices
    if dim:
        final[dim] = ring.product(automaton.final[None, :], automaton.initial)[0]
        for letter, matrix in enumerate(automaton.matrices):
            matrices[letter, :dim, dim] = ring.product(matrix, automaton.initial)
    return dim, WeightedAutomaton(initial, matrices, final, automaton.alphabet, weights=ring)


def as_weighted(automaton: object) -> WeightedAutomaton:
    """Return a weighted automaton itself; a DFA or an NFA as one with truth values for weights."""
    if isinstance(automaton, WeightedAutomaton):
        return automaton
    arcs: list[Arc]
    if isinstance(automaton, DFA):
        starts = [automaton.start]
        arcs = [
            (source, letter, int(to), True)
            for source, row in enumerate(automaton.transitions)
            for letter, to in zip(automaton.alphabet, row, strict=True)
        ]
    elif isinstance(automaton, NFA):
        starts = list(automaton.starts)
        arcs = [(source, letter, to, True) for source, letter, to in automaton.edges]
    else:
        raise TypeError(f"automaton must be a WeightedAutomaton, a DFA or an NFA; got {type(automaton).__name__}")
    initial, final = dict.fromkeys(starts, True), dict.fromkeys(automaton.accepting, True)
    ring = weights_named("boolean")
    return assembled(ArcList("automaton", ring, automaton.states, arcs, initial, final, automaton.alphabet))
