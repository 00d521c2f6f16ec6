"""Weighted formulas over words: values, how they are read, and for which of them there always is an automaton.

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
from typing import ClassVar, TypeAlias, final

from transductor.automata.logic.formula_text import Reader, Token, bracketed, chained, read_completely
from transductor.automata.logic.formula_tree import Chain, Node, Quantifier, is_set_variable, read_quantified, wrapped
from transductor.automata.logic.second_order_syntax import SYMBOLS, Formula, read_formula


class OutsideFragment(ValueError):
    """A formula for which there may be no weighted automaton; ``subformula`` is the part that is to blame."""

    def __init__(self, reason: str, subformula: str) -> None:
        self.reason, self.subformula = reason, subformula
        super().__init__(f"{reason}: {subformula}")


@final
@dataclass(frozen=True, slots=True)
class Weight(Node):
    """The same value for every word."""

    template: ClassVar[str] = "{0.value}"

    value: Fraction


@final
@dataclass(frozen=True, slots=True)
class Iverson(Node):
    """``[φ]``: 1 where a Boolean formula is true, 0 elsewhere."""

    template: ClassVar[str] = "[{0.condition}]"

    condition: Formula

    @property
    def parts(self) -> tuple[Formula, ...]:
        """The condition alone."""
        return (self.condition,)


@final
@dataclass(frozen=True, slots=True)
class Combined(Chain):
    """Two or more operands joined by ``+`` or ``*``."""

    connectives: ClassVar[tuple[str, ...]] = ("+", "*")

    operands: tuple[WeightedFormula, ...]


@final
@dataclass(frozen=True, slots=True)
class Aggregated(Quantifier):
    """``sum x. φ`` or ``prod x. φ``, over positions or, when the variable is upper-case, over sets of them."""

    quantifiers: ClassVar[tuple[str, ...]] = ("sum", "prod")

    body: WeightedFormula


WeightedFormula: TypeAlias = Weight | Iverson | Combined | Aggregated


def weighted_formula(text: str) -> WeightedFormula:
    """Read a weighted formula; :class:`FormulaError` says what is wrong and where."""
    return read_completely(text, (*SYMBOLS, "*", "/", "-", "[", "]"), _chain)


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
                reason = f"a product over positions needs a step function, which {str(culprit)!r} is not"
                raise OutsideFragment(reason, str(formula))
        case _:
            pass


def _not_a_step_function(formula: WeightedFormula) -> WeightedFormula | None:
    """Return the first part that is neither a weight nor a condition, nor a sum or product of such."""
    match formula:
        case Combined(_, operands):
            return next((part for part in map(_not_a_step_function, operands) if part is not None), None)
        case Aggregated():
            return formula
        case _:
            return None


def _chain(reader: Reader) -> WeightedFormula:
    return chained(reader, Combined.connectives, _operand, Combined)


def _operand(reader: Reader) -> WeightedFormula:
    token = reader.coming
    if reader.at("["):
        return Iverson(bracketed(reader, read_formula, "]"))
    if reader.at("("):
        return bracketed(reader, _chain)
    if reader.at(*Aggregated.quantifiers):
        aggregated: Aggregated = read_quantified(reader, Aggregated, _chain)
        return aggregated
    if reader.accept("!"):
        with reader.nested():
            operand = _operand(reader)
        negated = wrapped(str(operand), isinstance(operand, Combined | Aggregated))
        raise OutsideFragment("only a Boolean formula may be negated, inside its brackets", f"!{negated}")
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
