"""Letters are matched by their names: an automaton in the order of a model's tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from transductor.automata.finite_automata import DFA
from transductor.automata.moore import MooreMachine
from transductor.automata.weighted import WeightedAutomaton

_Automaton = TypeVar("_Automaton", MooreMachine, WeightedAutomaton)


def in_token_order(
    automaton: MooreMachine | DFA | WeightedAutomaton, names: Sequence[str], letters: Sequence[str]
) -> MooreMachine | WeightedAutomaton:
    """Return the automaton whose letter v is called ``letters[v]``; a DFA becomes a machine with label 1 if it accepts.

    Args:
        automaton: Its letters are called ``names``, in their order.
        names: One name for each letter of the automaton.
        letters: One name for each token of the model: the same names, in any order.
    """
    machine = MooreMachine.from_dfa(automaton) if isinstance(automaton, DFA) else automaton
    if len(set(names)) != len(names) or set(names) != set(letters):
        raise ValueError(
            f"the automaton must have the letters of the model, by name; it has {_listed(names)}, and the model "
            f"{_listed(letters)}"
        )
    places = {name: place for place, name in enumerate(names)}
    order = [places[letter] for letter in letters]
    if isinstance(machine, MooreMachine):
        return MooreMachine(machine.transitions[:, order], machine.outputs, machine.start)
    return WeightedAutomaton(
        machine.initial, machine.matrices[order], machine.final, tuple(letters), weights=machine.weights
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:12])) + (f", … ({len(names)} in all)" if len(names) > 12 else "")
