"""Weighted formulas over words: values, how they are read, and which of them an automaton is promised for.

=====================  ==============================================================================
``2``, ``-1/2``        the same weight for every word; ``0.1`` is exactly one tenth
``[φ]``                1 where the Boolean formula ``φ`` is true and 0 elsewhere
``φ + ψ``, ``φ * ψ``   sum and product of values; ``*`` binds tighter
``sum x. φ``           sum over all positions, ``sum X. φ`` over all sets of positions
``prod x. φ``          product over all positions, in order
=====================  ==============================================================================

Boolean formulas are those of :mod:`transductor.automata.logic.second_order_syntax`; only they can be negated.

Without a restriction the logic is stronger than automata: ``prod x. prod y. 2`` is 2^(n²), which grows too fast for any
of them.  The fragment for which logic and automata are the same has ``prod x. φ`` only when ``φ`` is a *step function*,
built from weights and ``[…]`` with ``+`` and ``*``, so that it has finitely many values, and it has no ``prod X. φ``.
The weights are rationals, which commute: hence ``*`` may join any two formulas.  Everything outside is refused, and a
formula is judged by its shape alone: ``prod x. prod y. 1`` is refused as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias, final

from transductor.automata.logic.formula_text import FormulaError, Reader, Token, chained
from transductor.automata.logic.second_order_syntax import (
    SYMBOLS,
    Formula,
    bound_variables,
    first_uses,
    free_variables,
    is_set_variable,
    is_variable,
    letters_used,
    read_formula,
    wrapped,
)

OPERATORS = ("+", "*")  # from the loosest to the tightest
AGGREGATORS = ("sum", "prod")


class OutsideFragment(ValueError):
    """A formula that no weighted automaton is promised for; ``subformula`` is the part that is to blame."""

    def __init__(self, reason: str, subformula: str) -> None:
        self.reason, self.subformula = reason, subformula
        super().__init__(f"{reason}: {subformula}")


class _Written:
    """Values that print as the text they are read from."""

    __slots__ = ()

    def __str__(self) -> str:
        return _written(self)  # type: ignore[arg-type]


@final
@dataclass(frozen=True, slots=True)
class Weight(_Written):
    """The same value for every word."""

    value: Fraction


@final
@dataclass(frozen=True, slots=True)
class Iverson(_Written):
    """``[φ]``: 1 where a Boolean formula is true, 0 elsewhere."""

    condition: Formula


@final
@dataclass(frozen=True, slots=True)
class Combined(_Written):
    """Two or more operands joined by ``+`` or ``*``."""

    operator: str
    operands: tuple[WeightedFormula, ...]

    def __post_init__(self) -> None:
        if self.operator not in OPERATORS:
            raise FormulaError(f"operator must be '+' or '*'; got {self.operator!r}")
        if len(self.operands) < 2:
            raise FormulaError(f"operands must be at least two; got {len(self.operands)}")


@final
@dataclass(frozen=True, slots=True)
class Aggregated(_Written):
    """``sum x. φ`` or ``prod x. φ``, over positions or, when the variable is upper-case, over sets of them."""

    aggregator: str
    variable: str
    body: WeightedFormula

    def __post_init__(self) -> None:
        if self.aggregator not in AGGREGATORS:
            raise FormulaError(f"aggregator must be 'sum' or 'prod'; got {self.aggregator!r}")
        if not is_variable(self.variable):
            raise FormulaError(f"variable must be a name that is not reserved; got {self.variable!r}")


WeightedFormula: TypeAlias = Weight | Iverson | Combined | Aggregated


def weighted_formula(text: str) -> WeightedFormula:
    """Read a weighted formula; :class:`FormulaError` says what is wrong and where."""
    reader = Reader(text, (*SYMBOLS, "*", "/", "-", "[", "]"))
    formula = _chain(reader)
    reader.finish()
    return formula


def free_weighted_variables(formula: WeightedFormula) -> dict[str, int | None]:
    """The variables nothing binds, each with the place of its first use where that is known."""
    match formula:
        case Weight():
            return {}
        case Iverson(condition):
            return free_variables(condition)
        case Combined(_, operands):
            return first_uses(map(free_weighted_variables, operands))
        case Aggregated(_, variable, body):
            return {name: place for name, place in free_weighted_variables(body).items() if name != variable}


def weighted_letters_used(formula: WeightedFormula) -> dict[str, int | None]:
    """The letters a formula asks for, each with the place of its first use where that is known."""
    match formula:
        case Weight():
            return {}
        case Iverson(condition):
            return letters_used(condition)
        case Combined(_, operands):
            return first_uses(map(weighted_letters_used, operands))
        case Aggregated(_, _, body):
            return weighted_letters_used(body)


def check_fragment(formula: WeightedFormula) -> None:
    """Refuse what is outside the restricted fragment, naming the subformula."""
    match formula:
        case Combined(_, operands):
            for operand in operands:
                check_fragment(operand)
        case Aggregated("sum", _, body):
            check_fragment(body)
        case Aggregated(_, variable, body):
            if is_set_variable(variable):
                raise OutsideFragment("a product over sets is outside the restricted fragment", str(formula))
            culprit = _not_a_step_function(body)
            if culprit is not None:
                raise OutsideFragment(
                    f"a product over positions needs a step function, which {str(culprit)!r} is not", str(formula)
                )
        case _:
            pass


def _not_a_step_function(formula: WeightedFormula) -> WeightedFormula | None:
    """The first part that is neither a weight nor a condition, nor a sum or product of such."""
    match formula:
        case Combined(_, operands):
            return next((part for part in map(_not_a_step_function, operands) if part is not None), None)
        case Aggregated():
            return formula
        case _:
            return None


def _chain(reader: Reader) -> WeightedFormula:
    return chained(reader, OPERATORS, _operand, Combined)


def _operand(reader: Reader) -> WeightedFormula:
    token = reader.coming
    if reader.accept("["):
        with reader.nested():
            condition = read_formula(reader)
        reader.expect("]", f"for the '[' at position {token.position}")
        return Iverson(condition)
    if reader.accept("("):
        with reader.nested():
            inside = _chain(reader)
        reader.expect(")", f"for the '(' at position {token.position}")
        return inside
    if reader.at(*AGGREGATORS):
        names = bound_variables(reader)
        with reader.nested(len(names)):
            body = _chain(reader)
        for name in reversed(names):
            body = Aggregated(token.content, name, body)
        return body
    if reader.accept("!"):
        with reader.nested():
            operand = _operand(reader)
        raise OutsideFragment("only a Boolean formula may be negated, inside its brackets", f"!{_grouped(operand)}")
    if token.kind == "number" or reader.at("-"):
        return _weight(reader)
    hint = "; a Boolean formula stands in brackets: [a(x)]" if token.kind in ("name", "quoted") else ""
    raise reader.refused(f"expected a weight, '[', '(', 'sum' or 'prod', found {token}{hint}")


def _weight(reader: Reader) -> Weight:
    sign = -1 if reader.accept("-") else 1
    numerator = Fraction(_number(reader).content)
    denominator = Fraction(1)
    if reader.accept("/"):
        token = _number(reader)
        denominator = Fraction(token.content)
        if denominator == 0:
            raise reader.refused("a weight must not be divided by 0", token)
    return Weight(sign * numerator / denominator)


def _number(reader: Reader) -> Token:
    token = reader.take()
    if token.kind != "number":
        raise reader.refused(f"expected a number, found {token}", token)
    return token


def _written(formula: WeightedFormula) -> str:
    match formula:
        case Weight(value):
            return str(value)
        case Iverson(condition):
            return f"[{condition}]"
        case Combined(operator, operands):
            own = OPERATORS.index(operator)
            return f" {operator} ".join(wrapped(str(part), _binds(part) <= own) for part in operands)
        case Aggregated(aggregator, variable, body):
            return f"{aggregator} {variable}. {body}"


def _binds(formula: WeightedFormula) -> int:
    """How tightly, by the order of the operators; an aggregator takes all there is to its right."""
    if isinstance(formula, Combined):
        return OPERATORS.index(formula.operator)
    return -1 if isinstance(formula, Aggregated) else len(OPERATORS)


def _grouped(formula: WeightedFormula) -> str:
    return wrapped(str(formula), isinstance(formula, Combined | Aggregated))
