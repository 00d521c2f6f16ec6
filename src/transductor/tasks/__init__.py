"""Tasks to learn: each owns its tokens, its sampler, its exact labels and its adversarial inputs."""

from transductor.automata.moore import IGNORED, MooreMachine
from transductor.tasks.associative_recall import AssociativeRecall
from transductor.tasks.base import AutomatonTask, Task
from transductor.tasks.base_value import BaseValue
from transductor.tasks.boolean_formula import BooleanFormula
from transductor.tasks.chess import Chess
from transductor.tasks.copying import Copying
from transductor.tasks.cycle_navigation import CycleNavigation
from transductor.tasks.even_pairs import EvenPairs
from transductor.tasks.flip_flop import FlipFlop, FlipFlopWithUndo
from transductor.tasks.group_word_problem import GroupWordProblem
from transductor.tasks.held_count import HeldCount
from transductor.tasks.hidden_process import HiddenProcess
from transductor.tasks.hidden_swaps import HiddenSwaps
from transductor.tasks.long_addition import LongAddition
from transductor.tasks.modular_arithmetic import ModularArithmetic, ModularArithmeticLeftToRight
from transductor.tasks.modular_counting import ModularCounting
from transductor.tasks.parity import Parity
from transductor.tasks.partly_observed import PartlyObserved
from transductor.tasks.registry import TASKS, task_named
from transductor.tasks.repl_traces import ReplTraces
from transductor.tasks.source_code import SourceCode
from transductor.tasks.text_addition import TextAddition
from transductor.tasks.tomita import Tomita

__all__ = [
    "IGNORED",
    "TASKS",
    "AssociativeRecall",
    "AutomatonTask",
    "BaseValue",
    "BooleanFormula",
    "Chess",
    "Copying",
    "CycleNavigation",
    "EvenPairs",
    "FlipFlop",
    "FlipFlopWithUndo",
    "GroupWordProblem",
    "HeldCount",
    "HiddenProcess",
    "HiddenSwaps",
    "LongAddition",
    "ModularArithmetic",
    "ModularArithmeticLeftToRight",
    "ModularCounting",
    "MooreMachine",
    "Parity",
    "PartlyObserved",
    "ReplTraces",
    "SourceCode",
    "Task",
    "TextAddition",
    "Tomita",
    "task_named",
]
