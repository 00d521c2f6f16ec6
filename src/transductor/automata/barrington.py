"""Barrington's theorem: a Boolean formula of depth d is a product of at most 4^d permutations of five points.

The product is a fixed 5-cycle when the formula is true and the identity when it is false.  A variable is one factor;
negation undoes the cycle and costs nothing; conjunction is the commutator ``a b a⁻¹ b⁻¹``, which is a 5-cycle for
suitable 5-cycles ``a`` and ``b`` and vanishes when one of the two is missing.  Five points are the fewest for which
such commutators exist at every depth: S5 is not solvable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property, reduce
from itertools import permutations, product
from typing import ClassVar, TypeAlias, final

import numpy as np

from transductor.automata.decomposition.permutation_groups import Permutation, composed, inverse
from transductor.automata.finite_automata import DFA
from transductor.automata.logic.formula_text import FormulaError, Reader, bracketed, chained, read_completely
from transductor.automata.logic.formula_tree import Chain, Node, Not, Truth

IDENTITY: Permutation = (0, 1, 2, 3, 4)
CYCLE: Permutation = (1, 2, 3, 4, 0)
CONSTANTS = {"0": False, "1": True, "false": False, "true": True}


@final
@dataclass(frozen=True, slots=True)
class Variable(Node):
    """A formula that is true when the assignment says so."""

    template: ClassVar[str] = "{0.name}"
    bare: ClassVar[bool] = True

    name: str


@final
@dataclass(frozen=True, slots=True)
class Gate(Chain):
    """Two or more operands joined by ``&``, ``^`` or ``|``."""

    connectives: ClassVar[tuple[str, ...]] = ("|", "^", "&")

    operands: tuple[BooleanFormula, ...]


BooleanFormula: TypeAlias = Truth | Not | Variable | Gate


def boolean_formula(text: str) -> BooleanFormula:
    """Read a formula such as ``x1 & (x2 | !x3) ^ 1``.

    ``!`` binds tightest, then ``&``, ``^`` and ``|``; constants are ``0``, ``1``, ``false`` and ``true``.
    """
    return read_completely(text, "!&^|()", _chain)


def evaluated(formula: BooleanFormula, assignment: Mapping[str, bool]) -> bool:
    """Return the truth value, straight from the definition."""
    match formula:
        case Truth(value):
            return value
        case Variable(name):
            return _looked_up(name, assignment)
        case Not(operand):
            return not evaluated(operand, assignment)
        case Gate(connective, operands):
            values = [evaluated(operand, assignment) for operand in operands]
            return {"&": all(values), "|": any(values), "^": sum(values) % 2 == 1}[connective]


@final
@dataclass(frozen=True, slots=True)
class Instruction:
    """One factor of the product, chosen by one variable; ``None`` where both choices are the same."""

    variable: str | None
    if_true: Permutation
    if_false: Permutation


@final
@dataclass(frozen=True)
class PermutationProgram:
    """A width-5 permutation branching program: call it on an assignment to get the formula's value.

    ``depth`` is the longest path of gates in the formula that was compiled (chains balanced, constants folded, a
    negation free, an exclusive or counted twice), and there are never more than ``4 ** depth`` instructions.
    """

    instructions: tuple[Instruction, ...]
    depth: int

    def __post_init__(self) -> None:
        if len(self.instructions) > 4**self.depth:
            raise ValueError(f"instructions must be at most 4 ** depth = {4**self.depth}; got {len(self.instructions)}")

    def __len__(self) -> int:
        return len(self.instructions)

    def __call__(self, assignment: Mapping[str, bool]) -> bool:
        """Whether the product is the 5-cycle rather than the identity."""
        return self.product(assignment) != IDENTITY

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables the program looks at, sorted."""
        return tuple(sorted({step.variable for step in self.instructions if step.variable is not None}))

    @cached_property
    def letters(self) -> tuple[Permutation, ...]:
        """The identity and the distinct permutations of the instructions, sorted."""
        used = {choice for step in self.instructions for choice in (step.if_true, step.if_false)}
        return tuple(sorted(used | {IDENTITY}))

    def chosen(self, assignment: Mapping[str, bool]) -> tuple[Permutation, ...]:
        """Return the permutation that each instruction contributes, in order."""
        values = {name: _looked_up(name, assignment) for name in self.variables}
        return tuple(
            step.if_true if step.variable is None or values[step.variable] else step.if_false
            for step in self.instructions
        )

    def product(self, assignment: Mapping[str, bool]) -> Permutation:
        """Return the product of all factors, the first instruction acting first: the 5-cycle or the identity."""
        return reduce(composed, self.chosen(assignment), IDENTITY)

    def reading(self, assignment: Mapping[str, bool]) -> tuple[str, ...]:
        """Return the word that :meth:`automaton` reads: one permutation such as ``"12340"`` per instruction."""
        return tuple(_written(permutation) for permutation in self.chosen(assignment))

    def automaton(self) -> DFA:
        """Return the automaton with the five points as states, moved by the permutations as letters.

        It starts in point 0 and accepts the other four.  A 5-cycle leaves no point in place, so the reading of an
        assignment is accepted exactly when the formula is true.
        """
        table = np.array(self.letters, dtype=np.int64).T  # [point, letter]
        return DFA(tuple(map(_written, self.letters)), table, 0, frozenset({1, 2, 3, 4}))


def permutation_program(formula: str | BooleanFormula, *, limit: int = 4**8) -> PermutationProgram:
    """Compile a formula into a program of at most ``4 ** depth`` instructions.

    Args:
        formula: Text for :func:`boolean_formula`, or its value.
        limit: The most instructions allowed; a program over it is refused before it is built.
    """
    compiled = _binary(boolean_formula(formula) if isinstance(formula, str) else formula)
    if isinstance(compiled, Truth):
        always = (Instruction(None, CYCLE, CYCLE),)
        return PermutationProgram(always if compiled.value else (), depth=0)
    depth, length = _measured(compiled)
    if length > limit:
        raise ValueError(f"formula needs {length} instructions at depth {depth}; limit allows {limit}")
    return PermutationProgram(tuple(_instructions(compiled, CYCLE)), depth)


def _chain(reader: Reader) -> BooleanFormula:
    return chained(reader, Gate.connectives, _operand, Gate)


def _operand(reader: Reader) -> BooleanFormula:
    if reader.at("("):
        return bracketed(reader, _chain)
    token = reader.take()
    if token.content in CONSTANTS and token.kind in ("name", "number"):
        return Truth(CONSTANTS[token.content])
    if token.kind == "name":
        return Variable(token.content)
    if token.content == "!" and token.kind == "symbol":
        with reader.nested():
            return Not(_operand(reader))
    if token.kind == "number":
        raise reader.refused(f"the constants are 0 and 1, found {token}", token)
    raise reader.refused(f"expected a variable, a constant, '!' or '(', found {token}", token)


def _looked_up(name: str, assignment: Mapping[str, bool]) -> bool:
    if name not in assignment:
        raise ValueError(f"assignment must give a value to {name!r}; it gives one to {sorted(assignment)}")
    if assignment[name] not in (False, True):
        raise ValueError(f"assignment must give True or False to {name!r}; got {assignment[name]!r}")
    return bool(assignment[name])


def _binary(formula: BooleanFormula) -> BooleanFormula:
    """Return the same formula with two operands a gate, chains balanced, and constants folded."""
    match formula:
        case Not(operand):
            return _negated(_binary(operand))
        case Gate(connective, operands):
            half = len(operands) // 2
            left, right = (
                _binary(part[0] if len(part) == 1 else Gate(connective, part))
                for part in (operands[:half], operands[half:])
            )
            return _joined(connective, left, right)
        case _:
            return formula


def _negated(formula: BooleanFormula) -> BooleanFormula:
    match formula:
        case Truth(value):
            return Truth(not value)
        case Not():
            operand: BooleanFormula = formula.operand
            return operand
        case _:
            return Not(formula)


def _joined(connective: str, left: BooleanFormula, right: BooleanFormula) -> BooleanFormula:
    if isinstance(right, Truth):
        left, right = right, left
    if not isinstance(left, Truth):
        return Gate(connective, (left, right))
    if connective == "^":
        return _negated(right) if left.value else right
    decides = connective == "|"  # the constant that settles the gate: true for "or", false for "and"
    return left if left.value is decides else right


def _measured(formula: BooleanFormula) -> tuple[int, int]:
    """Return the depth and the number of instructions, without writing them down."""
    match formula:
        case Not(operand):
            return _measured(operand)
        case Gate(connective, operands):
            depths, lengths = zip(*map(_measured, operands), strict=True)
            levels, copies = (2, 8) if connective == "^" else (1, 2)
            return max(depths) + levels, copies * sum(lengths)
        case _:
            return 0, 1


def _instructions(formula: BooleanFormula, cycle: Permutation) -> list[Instruction]:
    """Return a program whose product is ``cycle`` when the formula is true and the identity when it is false."""
    match formula:
        case Variable(name):
            return [Instruction(name, cycle, IDENTITY)]
        case Not(operand):
            *steps, last = _instructions(operand, inverse(cycle))
            return [*steps, Instruction(last.variable, composed(last.if_true, cycle), composed(last.if_false, cycle))]
        case Gate("&", (left, right)):
            a, b = _commutator(cycle)
            return [
                *_instructions(left, a),
                *_instructions(right, b),
                *_instructions(left, inverse(a)),
                *_instructions(right, inverse(b)),
            ]
        case Gate("|", (left, right)):
            neither = Gate("&", (_negated(left), _negated(right)))
            return _instructions(Not(neither), cycle)
        case Gate("^", (left, right)):
            only_left, only_right = Gate("&", (left, _negated(right))), Gate("&", (_negated(left), right))
            return _instructions(Gate("|", (only_left, only_right)), cycle)
    raise FormulaError(f"no instructions for {formula!r}")


@cache
def _commutator(cycle: Permutation) -> tuple[Permutation, Permutation]:
    """Return two 5-cycles ``a, b`` for which ``a``, then ``b``, ``a⁻¹`` and ``b⁻¹``, is ``cycle``."""
    cycles = [_cycle_through((0, *rest)) for rest in permutations(range(1, 5))]
    for a, b in product(cycles, repeat=2):
        if reduce(composed, (a, b, inverse(a), inverse(b))) == cycle:
            return a, b
    raise ValueError(f"cycle must be a 5-cycle; got {cycle}")


def _cycle_through(points: tuple[int, ...]) -> Permutation:
    successor = dict(zip(points, (*points[1:], points[0]), strict=True))
    return tuple(successor[point] for point in range(len(points)))


def _written(permutation: Permutation) -> str:
    return "".join(map(str, permutation))
