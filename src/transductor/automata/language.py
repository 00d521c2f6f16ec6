"""The language of anything that has one: machines, automata with truth values, exact series of zeros and ones."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from transductor.automata.boolean import as_dfa
from transductor.automata.finite_algebra import minimised
from transductor.automata.finite_automata import DFA, NFA, determinised
from transductor.automata.graphs import explored
from transductor.automata.reduction import reduced
from transductor.automata.weighted import WeightedAutomaton
from transductor.automata.words import Symbol

Machine: TypeAlias = DFA | NFA | WeightedAutomaton
_State: TypeAlias = tuple[Fraction, ...]


def language(machine: Machine, *, limit: int = 20_000) -> DFA:
    """Return the language of a machine as a minimal DFA.

    A series over the rationals is a language if it gives 0 or 1 to every word, whatever its matrices look like: its
    minimal automaton then reaches finitely many states, and all of them are visited.

    Args:
        machine: A DFA, an NFA, an automaton with truth values, or a series over the rationals.
        limit: The most states that are visited.

    Raises:
        ValueError: If a value of the series is neither 0 nor 1, with the word; if the weights are neither truth values
            nor exact numbers; or if there are more than ``limit`` states.
    """
    if isinstance(machine, DFA):
        return minimised(machine)
    if isinstance(machine, NFA):
        return minimised(determinised(machine, limit=limit))
    if not isinstance(machine, WeightedAutomaton):
        raise TypeError(f"machine must be a DFA, an NFA or a WeightedAutomaton; got {type(machine).__name__}")
    if machine.weights.name == "boolean":
        return as_dfa(machine)
    if machine.weights.name != "rational":
        raise ValueError(
            f"machine must have boolean or rational weights to be a language; it has {machine.weights.name} weights"
        )
    return as_dfa(_without_numbers(machine)) if _is_deterministic(machine) else _language_of_series(machine, limit)


def _is_deterministic(series: WeightedAutomaton) -> bool:
    """Whether a series is a DFA as it stands: one state at a time, and 0 or 1 at the end."""
    parts = (series.initial[:, None], *series.matrices)
    numbers = bool(np.isin(series.final, (0, 1)).all()) and all(bool(np.isin(part, (0, 1)).all()) for part in parts)
    return numbers and all(bool((part.sum(0) == 1).all()) for part in parts)


def _without_numbers(series: WeightedAutomaton) -> WeightedAutomaton:
    initial, matrices, final = (np.asarray(part == 1) for part in (series.initial, series.matrices, series.final))
    return WeightedAutomaton(initial, matrices, final, series.alphabet, weights="boolean")


def _language_of_series(series: WeightedAutomaton, limit: int) -> DFA:
    # States of the minimal automaton are told apart by finitely many suffixes, so finitely many values are finitely
    # many states.
    smallest = reduced(series).automaton
    matrices = smallest.matrices.tolist()
    start = tuple(map(Fraction, smallest.initial))
    words: dict[_State, tuple[Symbol, ...]] = {start: ()}
    accepting: list[bool] = []

    def following(state: _State) -> list[_State]:
        value = _product(smallest.final, state)
        if value not in (0, 1):
            spelled = " ".join(map(str, words[state])) or "ε, the empty word"
            raise ValueError(f"machine must give 0 or 1 to every word to be a language; it gives {value} to {spelled}")
        accepting.append(value == 1)
        after = [tuple(_product(row, state) for row in matrix) for matrix in matrices]
        for letter, reached in zip(smallest.alphabet, after, strict=True):
            words.setdefault(reached, (*words[state], letter))
        return after

    too_many = f"machine must have at most limit = {limit} states as a language; it has more"
    _, rows = explored([start], following, limit=limit, refusal=too_many)
    table = np.array(rows, dtype=np.int64).reshape(len(rows), len(smallest.alphabet))
    return minimised(DFA(smallest.alphabet, table, 0, frozenset(np.flatnonzero(accepting).tolist())))


def _product(row: Iterable[Fraction], state: _State) -> Fraction:
    return sum((weight * part for weight, part in zip(row, state, strict=True)), Fraction(0))
