"""Formulas of monadic second-order logic over words: values, how they are read, and how they are written.

=========================  =============================================================================
``a(x)``, ``'#'(x)``       the letter at position ``x``; quotes for letters that are not names or numbers
``x < y``                  order of positions: also ``<=``, ``>``, ``>=``, ``=`` and ``!=``
``x = y + 1``              ``x`` comes right after ``y``
``first(x)``, ``last(x)``  the ends of the word
``x in X``, ``X sub Y``    membership and inclusion
``true``, ``false``        constants
``! & | -> <->``           from the tightest to the loosest; ``->`` groups to the right
``exists x. φ``            there is a position; for a set of positions ``exists X. φ``
``forall x, y. φ``         all positions; the body reaches as far to the right as it can
=========================  =============================================================================

A variable for a set begins with an upper-case letter, any other with a letter that is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeAlias, final

from transductor.automata.logic import formula_tree as tree
from transductor.automata.logic.formula_text import Reader, bracketed, chained, read_completely
from transductor.automata.logic.formula_tree import Not, Truth

SYMBOLS = ("!", "&", "|", "->", "<->", "(", ")", ".", ",", "=", "!=", "<", "<=", ">", ">=", "+")
RELATIONS = ("=", "!=", "<", "<=", ">", ">=")
ENDS = ("first", "last")


@final
@dataclass(frozen=True, slots=True)
class Letter(tree.Atom):
    """``a(x)``: the letter at position ``x`` is ``a``."""

    bare: ClassVar[bool] = True
    of_positions: ClassVar[tuple[str, ...]] = ("variable",)

    letter: str
    variable: str

    def __str__(self) -> str:
        bare = self.letter.isidentifier() and self.letter not in tree.RESERVED
        quote = "" if bare or self.letter.isdecimal() else '"' if "'" in self.letter else "'"
        return f"{quote}{self.letter}{quote}({self.variable})"


@final
@dataclass(frozen=True, slots=True)
class End(tree.Atom):
    """``first(x)`` or ``last(x)``: the position ``x`` is an end of the word."""

    bare: ClassVar[bool] = True
    of_positions: ClassVar[tuple[str, ...]] = ("variable",)
    template: ClassVar[str] = "{0.end}({0.variable})"
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"end": ENDS}

    end: str
    variable: str


@final
@dataclass(frozen=True, slots=True)
class Compared(tree.Atom):
    """``x < y`` and the other five relations between two positions."""

    of_positions: ClassVar[tuple[str, ...]] = ("left", "right")
    template: ClassVar[str] = "{0.left} {0.relation} {0.right}"
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"relation": RELATIONS}

    left: str
    relation: str
    right: str


@final
@dataclass(frozen=True, slots=True)
class Successor(tree.Atom):
    """``x = y + 1``: the position ``later`` comes right after ``earlier``."""

    of_positions: ClassVar[tuple[str, ...]] = ("later", "earlier")
    template: ClassVar[str] = "{0.later} = {0.earlier} + 1"

    later: str
    earlier: str


@final
@dataclass(frozen=True, slots=True)
class Member(tree.Atom):
    """``x in X``: the position ``element`` is in the set ``container``."""

    of_positions: ClassVar[tuple[str, ...]] = ("element",)
    of_sets: ClassVar[tuple[str, ...]] = ("container",)
    template: ClassVar[str] = "{0.element} in {0.container}"

    element: str
    container: str


@final
@dataclass(frozen=True, slots=True)
class Subset(tree.Atom):
    """``X sub Y``: every position of ``inner`` is one of ``outer``."""

    of_sets: ClassVar[tuple[str, ...]] = ("inner", "outer")
    template: ClassVar[str] = "{0.inner} sub {0.outer}"

    inner: str
    outer: str


@final
@dataclass(frozen=True, slots=True)
class Joined(tree.Chain):
    """Two or more operands and one connective; a chain of ``->`` groups to the right, of ``<->`` to the left."""

    connectives: ClassVar[tuple[str, ...]] = ("<->", "->", "|", "&")

    operands: tuple[Formula, ...]


@final
@dataclass(frozen=True, slots=True)
class Quantified(tree.Quantifier):
    """``exists x. φ`` or ``forall x. φ``, over positions or, when the variable is upper-case, over sets of them."""

    quantifiers: ClassVar[tuple[str, ...]] = ("exists", "forall")

    body: Formula


Formula: TypeAlias = Truth | Letter | End | Compared | Successor | Member | Subset | Not | Joined | Quantified


def logic_formula(text: str) -> Formula:
    """Read a formula; :class:`FormulaError` says what is wrong and where."""
    return read_completely(text, SYMBOLS, read_formula)


def read_formula(reader: Reader) -> Formula:
    """Read as much of a formula as there is, inside a larger text."""
    return chained(reader, Joined.connectives, _operand, Joined)


def letters_used(formula: tree.Node) -> tree.TextPositions:
    """Return the letters that a formula asks for."""
    if isinstance(formula, Letter):
        return {formula.letter: formula.position}
    return tree.first_uses(formula, letters_used)


def _operand(reader: Reader) -> Formula:
    token = reader.coming
    if reader.accept("!"):
        with reader.nested():
            return Not(_operand(reader))
    if reader.at("("):
        return bracketed(reader, read_formula)
    if reader.at(*Quantified.quantifiers):
        quantified: Quantified = tree.read_quantified(reader, Quantified, read_formula)
        return quantified
    if reader.at("true", "false"):
        return Truth(reader.take().content == "true", position=token.position)
    if token.kind in ("name", "number", "quoted") and reader.after.content == "(":
        return _predicate(reader)
    if token.kind == "name":
        return _relation(reader)
    raise reader.refused(f"expected a formula, found {token}")


def _predicate(reader: Reader) -> Formula:
    token = reader.take()
    if token.kind == "name" and token.content in tree.RESERVED.difference(ENDS):
        raise reader.refused(f"{token} is a word of the language; a letter of that name is quoted", token)
    reader.expect("(", f"after {token}")
    variable = tree.read_variable(reader, f"in {token.content}(…)", of_sets=False)
    reader.expect(")", f"after {token.content}({variable}")
    if token.kind == "name" and token.content in ENDS:
        return End(token.content, variable, position=token.position)
    return Letter(token.content, variable, position=token.position)


def _relation(reader: Reader) -> Formula:
    place = reader.coming.position
    left = tree.read_variable(reader, "or a formula")
    if tree.is_set_variable(left):
        reader.expect("sub", f"after the set {left}")
        return Subset(left, tree.read_variable(reader, "after 'sub'", of_sets=True), position=place)
    if reader.accept("in"):
        return Member(left, tree.read_variable(reader, "after 'in'", of_sets=True), position=place)
    if not reader.at(*RELATIONS):
        raise reader.refused(f"expected 'in' or one of {' '.join(RELATIONS)} after {left!r}, found {reader.coming}")
    relation = reader.take().content
    right = tree.read_variable(reader, f"after {relation!r}", of_sets=False)
    if not reader.at("+"):
        return Compared(left, relation, right, position=place)
    if relation != "=" or reader.after.content != "1":
        raise reader.refused(f"only {left} = {right} + 1 may add, and only 1")
    reader.take()
    reader.take()
    return Successor(left, right, position=place)
