"""The registry of tasks: every task by its name on the command line."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from transductor.tasks.associative_recall import AssociativeRecall
from transductor.tasks.base import Task
from transductor.tasks.base_value import BaseValue
from transductor.tasks.boolean_formula import BooleanFormula
from transductor.tasks.chess import Chess
from transductor.tasks.copying import Copying
from transductor.tasks.cycle_navigation import CycleNavigation
from transductor.tasks.even_pairs import EvenPairs
from transductor.tasks.flip_flop import FlipFlop, FlipFlopWithUndo
from transductor.tasks.group_word_problem import GroupWordProblem
from transductor.tasks.held_count import HeldCount
from transductor.tasks.hidden_swaps import HiddenSwaps
from transductor.tasks.long_addition import LongAddition
from transductor.tasks.modular_arithmetic import ModularArithmetic, ModularArithmeticLeftToRight
from transductor.tasks.modular_counting import ModularCounting
from transductor.tasks.parity import Parity
from transductor.tasks.partly_observed import PartlyObserved
from transductor.tasks.repl_traces import ReplTraces
from transductor.tasks.text_addition import TextAddition
from transductor.tasks.tomita import Tomita

TASKS: Final[dict[str, Callable[..., Task]]] = {
    "parity": Parity,
    "counting": ModularCounting,
    "even_pairs": EvenPairs,
    "cycle": CycleNavigation,
    "arithmetic": ModularArithmetic,
    "arithmetic_left_to_right": ModularArithmeticLeftToRight,
    "addition": LongAddition,
    "addition_carry_in": partial(LongAddition, carry_in=1),
    "addition_carry_letter": partial(LongAddition, carry_in="letter"),
    "text_addition": TextAddition,
    "text_addition_reversed": partial(TextAddition, reversed_digits=True),
    "value": BaseValue,
    "value_last_digit_first": partial(BaseValue, most_significant_first=False),
    "flip_flop": FlipFlop,
    "flip_flop_sparse": partial(FlipFlop, 0.98),
    "flip_flop_dense": partial(FlipFlop, 0.1),
    "flip_flop_undo": FlipFlopWithUndo,
    "held_count": HeldCount,
    "group": GroupWordProblem,
    "tomita": Tomita,
    "boolean": BooleanFormula,
    "copying": Copying,
    "recall": AssociativeRecall,
    "partly_observed": PartlyObserved,
    "hidden_swaps": HiddenSwaps,
    "repl_traces": ReplTraces,
    "repl_traces_observed": partial(ReplTraces, hidden=0.0),
    "chess": Chess,
}

# Tasks that take one integer after a colon, their first parameter.
_NUMBERED: Final = (
    "counting",
    "cycle",
    "arithmetic",
    "arithmetic_left_to_right",
    "addition",
    "addition_carry_in",
    "addition_carry_letter",
    "value",
    "value_last_digit_first",
    "held_count",
    "tomita",
    "boolean",
    "copying",
    "partly_observed",
    "hidden_swaps",
    "repl_traces",
    "repl_traces_observed",
    "chess",
)


def task_named(name: str) -> Task:
    """Return the task of a name in ``TASKS``, with parameters after colons.

    ``"parity"``, ``"counting:7"``, ``"tomita:4"``, ``"addition:2"``, ``"group:S5"``, ``"group:A5:named"``, and
    ``"group:S5:2:7"`` for two random generators drawn with seed 7.
    """
    kind, *parameters = name.split(":")
    if kind not in TASKS:
        raise ValueError(f"name must begin with one of {', '.join(TASKS)}; got {name!r}")
    if not parameters:
        return TASKS[kind]()
    if kind == "group" and len(parameters) <= 3:
        group, letters, seed = (*parameters, *("S5", "all", "0")[len(parameters) :])
        return GroupWordProblem(group, int(letters) if _is_number(letters) else letters, _number(name, seed))
    if kind not in _NUMBERED or len(parameters) > 1:
        raise ValueError(f"name must not have {':'.join(parameters)!r} after {kind}; got {name!r}")
    return TASKS[kind](_number(name, parameters[0]))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _number(name: str, text: str) -> int:
    if not _is_number(text):
        raise ValueError(f"name must have an integer where it has {text!r}; got {name!r}")
    return int(text)
