"""Ben-Or and Cleve's theorem: an arithmetic formula of depth d is a product of at most 4^d integer 3 × 3 matrices.

Three registers start at (1, 0, 0) and the second ends at the value of the formula.  A program for f adds ``f · source``
to ``target``, or subtracts it, and changes nothing else; each factor is the identity with one more entry.  A sum is one
program after the other.  A product ``g h`` takes the third register along: ``target −= rest · h``,
``rest += source · g``, ``target += rest · h``, ``rest −= source · g``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, TypeAlias, final

import numpy as np

from transductor.automata.barrington import Variable
from transductor.automata.logic.formula_text import FormulaError, Reader, bracketed, chained, read_completely
from transductor.automata.logic.formula_tree import Chain, Node, wrapped
from transductor.automata.weighted import WeightedAutomaton

Letter: TypeAlias = tuple[int, int, int]
"""``(target, source, weight)``: the matrix that adds ``weight`` times register ``source`` to register ``target``."""


@final
@dataclass(frozen=True, slots=True)
class Constant(Node):
    """An integer of the formula."""

    template: ClassVar[str] = "{0.value}"
    bare: ClassVar[bool] = True

    value: int


@final
@dataclass(frozen=True, slots=True)
class Operation(Chain):
    """Two or more operands joined by ``+``, ``-`` or ``*``; ``a - b - c`` is one chain and means ``(a - b) - c``."""

    # A difference binds tighter than a sum here: a − b + c is (a − b) + c, and a + b − c is a + (b − c).
    connectives: ClassVar[tuple[str, ...]] = ("+", "-", "*")

    operands: tuple[ArithmeticFormula, ...]


@final
@dataclass(frozen=True, slots=True)
class Negative(Node):
    """``-f``: the negative of the operand."""

    bare: ClassVar[bool] = True

    operand: ArithmeticFormula

    def __str__(self) -> str:
        return f"-{wrapped(str(self.operand), isinstance(self.operand, Operation))}"

    @property
    def parts(self) -> tuple[ArithmeticFormula, ...]:
        """The operand alone."""
        return (self.operand,)


ArithmeticFormula: TypeAlias = Constant | Variable | Negative | Operation


def arithmetic_formula(text: str) -> ArithmeticFormula:
    """Read a formula over the integers such as ``(x + 2) * y - 3``."""
    return read_completely(text, "+-*()", _chain)


def evaluated(formula: ArithmeticFormula, assignment: Mapping[str, int]) -> int:
    """Return the value, straight from the definition."""
    match formula:
        case Constant(value):
            return value
        case Variable(name):
            return _looked_up(name, assignment)
        case Negative(operand):
            return -evaluated(operand, assignment)
        case Operation(connective, operands):
            first, *others = (evaluated(operand, assignment) for operand in operands)
            for other in others:
                first = {"+": first + other, "-": first - other, "*": first * other}[connective]
            return first


@final
@dataclass(frozen=True, slots=True)
class Addition:
    """One factor: add ``coefficient · value · source`` to ``target``, where ``value`` is that of a variable or 1."""

    target: int
    source: int
    coefficient: int
    variable: str | None = None

    def letter(self, assignment: Mapping[str, int]) -> Letter:
        """Return the matrix that an assignment makes of it."""
        value = 1 if self.variable is None else _looked_up(self.variable, assignment)
        return self.target, self.source, self.coefficient * value


@final
@dataclass(frozen=True)
class ArithmeticProgram:
    """A linear branching program of width 3 over the integers: call it on an assignment to get the formula's value.

    ``depth`` is the longest path of operations in the formula, chains balanced and negations free, and there are never
    more than ``4 ** depth`` instructions.
    """

    instructions: tuple[Addition, ...]
    depth: int

    width: ClassVar[int] = 3

    def __post_init__(self) -> None:
        if len(self.instructions) > 4**self.depth:
            raise ValueError(f"instructions must be at most 4 ** depth = {4**self.depth}; got {len(self.instructions)}")

    def __len__(self) -> int:
        return len(self.instructions)

    def __call__(self, assignment: Mapping[str, int]) -> int:
        """Return the value of the formula: the second register in the end."""
        registers = [1, 0, 0]
        for target, source, weight in self.reading(assignment):
            registers[target] += weight * registers[source]
        return registers[1]

    @cached_property
    def variables(self) -> tuple[str, ...]:
        """The variables the program looks at, sorted."""
        return tuple(sorted({step.variable for step in self.instructions if step.variable is not None}))

    def reading(self, assignment: Mapping[str, int]) -> tuple[Letter, ...]:
        """Return the word that :meth:`automaton` reads: one matrix for each instruction."""
        return tuple(step.letter(assignment) for step in self.instructions)

    def automaton(self, *assignments: Mapping[str, int]) -> WeightedAutomaton:
        """Return the automaton of three states over the letters of these assignments' readings.

        Its value at the reading of an assignment is the formula's.  ``compile_model`` makes a head of it, whose tokens
        are the places of letters in its alphabet.
        """
        letters = sorted({letter for assignment in assignments for letter in self.reading(assignment)})
        matrices = np.tile(np.eye(3, dtype=np.int64), (len(letters), 1, 1)).astype(object)
        for matrix, (target, source, weight) in zip(matrices, letters, strict=True):
            matrix[target, source] += weight
        return WeightedAutomaton([1, 0, 0], matrices, [0, 1, 0], letters)


def arithmetic_program(formula: str | ArithmeticFormula, *, limit: int = 4**8) -> ArithmeticProgram:
    """Compile a formula into a program of at most ``4 ** depth`` instructions.

    Args:
        formula: Text for :func:`arithmetic_formula`, or its value.
        limit: The most instructions allowed; a program over it is refused before it is built.
    """
    compiled = _balanced(arithmetic_formula(formula) if isinstance(formula, str) else formula)
    depth, length = _measured(compiled)
    if length > limit:
        raise ValueError(f"formula needs {length} instructions at depth {depth}; limit allows {limit}")
    return ArithmeticProgram(tuple(_instructions(compiled, 1, 0, 1)), depth)


def _chain(reader: Reader) -> ArithmeticFormula:
    return chained(reader, Operation.connectives, _operand, Operation)


def _operand(reader: Reader) -> ArithmeticFormula:
    if reader.at("("):
        return bracketed(reader, _chain)
    token = reader.take()
    if token.kind == "name":
        return Variable(token.content)
    if token.kind == "number" and token.content.isdecimal():
        return Constant(int(token.content))
    if token.content == "-" and token.kind == "symbol":
        with reader.nested():
            return Negative(_operand(reader))
    raise reader.refused(f"expected a variable, an integer, '-' or '(', found {token}", token)


def _looked_up(name: str, assignment: Mapping[str, int]) -> int:
    if name not in assignment:
        raise ValueError(f"assignment must give a value to {name!r}; it gives one to {sorted(assignment)}")
    value = assignment[name]
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ValueError(f"assignment must give an integer to {name!r}; got {value!r}")
    return int(value)


def _balanced(formula: ArithmeticFormula) -> ArithmeticFormula:
    """Return the same value with two operands an operation: halves of a chain; a − b − c is a − (b + c)."""
    match formula:
        case Negative(operand):
            return Negative(_balanced(operand))
        case Operation("-", (first, *others)) if len(others) > 1:
            return Operation("-", (_balanced(first), _balanced(Operation("+", tuple(others)))))
        case Operation(connective, operands):
            half = len(operands) // 2
            parts = (operands[:half], operands[half:])
            return Operation(
                connective,
                tuple(_balanced(part[0] if len(part) == 1 else Operation(connective, part)) for part in parts),
            )
        case _:
            return formula


def _measured(formula: ArithmeticFormula) -> tuple[int, int]:
    """Return the depth and the number of instructions, without writing them down."""
    match formula:
        case Negative(operand):
            return _measured(operand)
        case Operation(connective, operands):
            depths, lengths = zip(*map(_measured, operands), strict=True)
            return max(depths) + 1, (2 if connective == "*" else 1) * sum(lengths)
        case _:
            return 0, 1


def _instructions(formula: ArithmeticFormula, target: int, source: int, sign: int) -> Iterator[Addition]:
    """Yield what adds ``sign · formula · source`` to ``target`` and leaves the other registers as they were."""
    match formula:
        case Constant(value):
            yield Addition(target, source, sign * value)
        case Variable(name):
            yield Addition(target, source, sign, name)
        case Negative(operand):
            yield from _instructions(operand, target, source, -sign)
        case Operation("*", (left, right)):
            rest = 3 - target - source
            yield from _instructions(right, target, rest, -sign)
            yield from _instructions(left, rest, source, 1)
            yield from _instructions(right, target, rest, sign)
            yield from _instructions(left, rest, source, -1)
        case Operation(connective, (left, right)):
            yield from _instructions(left, target, source, sign)
            yield from _instructions(right, target, source, sign if connective == "+" else -sign)
        case _:
            raise FormulaError(f"no instructions for {formula!r}")
