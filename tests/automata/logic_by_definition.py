"""What formulas over words mean, by trying every position and every set of positions."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import reduce
from itertools import chain, combinations, product

from transductor.automata.logic.formula_tree import Not, Truth, is_set_variable
from transductor.automata.logic.second_order_syntax import (
    Compared,
    End,
    Formula,
    Joined,
    Letter,
    Member,
    Quantified,
    Subset,
    Successor,
)
from transductor.automata.logic.weighted_syntax import Aggregated, Combined, Iverson, Weight, WeightedFormula

Place = int | frozenset[int]
RELATIONS = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge
}  # fmt: skip


def words_up_to(length: int, alphabet: Sequence[str] = "ab") -> Iterator[tuple[str, ...]]:
    return chain.from_iterable(product(alphabet, repeat=n) for n in range(length + 1))


def places(variable: str, word: Sequence[str]) -> Iterator[Place]:
    positions = range(len(word))
    if not is_set_variable(variable):
        yield from positions
        return
    for size in range(len(word) + 1):
        yield from map(frozenset, combinations(positions, size))


def holds(formula: Formula, word: Sequence[str], at: dict[str, Place]) -> bool:
    match formula:
        case Truth(value):
            return value
        case Letter(letter, x):
            return word[at[x]] == letter
        case End(end, x):
            return at[x] == (0 if end == "first" else len(word) - 1)
        case Compared(x, relation, y):
            return RELATIONS[relation](at[x], at[y])
        case Successor(later, earlier):
            return at[later] == at[earlier] + 1
        case Member(x, container):
            return at[x] in at[container]
        case Subset(inner, outer):
            return at[inner] <= at[outer]
        case Not(operand):
            return not holds(operand, word, at)
        case Joined(connective, operands):
            return joined(connective, [holds(operand, word, at) for operand in operands])
        case Quantified(quantifier, variable, body):
            decide = any if quantifier == "exists" else all
            return decide(holds(body, word, at | {variable: place}) for place in places(variable, word))


def joined(connective: str, values: list[bool]) -> bool:
    match connective:
        case "&":
            return all(values)
        case "|":
            return any(values)
        case "<->":
            return reduce(operator.eq, values)
        case _:
            return reduce(lambda after, before: not before or after, reversed(values))


def value(formula: WeightedFormula, word: Sequence[str], at: dict[str, Place]) -> Fraction:
    match formula:
        case Weight(weight):
            return weight
        case Iverson(condition):
            return Fraction(holds(condition, word, at))
        case Combined(sign, operands):
            values = (value(operand, word, at) for operand in operands)
            return sum(values, Fraction(0)) if sign == "+" else math.prod(values, start=Fraction(1))
        case Aggregated(aggregator, variable, body):
            values = (value(body, word, at | {variable: place}) for place in places(variable, word))
            return sum(values, Fraction(0)) if aggregator == "sum" else math.prod(values, start=Fraction(1))
