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

A variable for a set starts with an upper-case letter, any other with a letter that is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, final

from transductor.automata.logic.formula_text import FormulaError, Reader, chained

SYMBOLS = ("!", "&", "|", "->", "<->", "(", ")", ".", ",", "=", "!=", "<", "<=", ">", ">=", "+")
CONNECTIVES = ("<->", "->", "|", "&")  # from the loosest to the tightest
RELATIONS = ("=", "!=", "<", "<=", ">", ">=")
QUANTIFIERS = ("exists", "forall")
ENDS = ("first", "last")
RESERVED = frozenset((*QUANTIFIERS, *ENDS, "true", "false", "in", "sub", "sum", "prod"))


class _Written:
    """Values that print as the text they are read from."""

    __slots__ = ()

    def __str__(self) -> str:
        return _written(self)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class _Atom(_Written):
    position: int | None = field(default=None, compare=False, repr=False, kw_only=True)


@final
@dataclass(frozen=True, slots=True)
class Truth(_Atom):
    """``true`` or ``false``."""

    value: bool


@final
@dataclass(frozen=True, slots=True)
class Letter(_Atom):
    """``a(x)``: the letter at position ``x`` is ``a``."""

    letter: str
    variable: str

    def __post_init__(self) -> None:
        _check_kind("variable", self.variable, of_sets=False)


@final
@dataclass(frozen=True, slots=True)
class End(_Atom):
    """``first(x)`` or ``last(x)``."""

    end: str
    variable: str

    def __post_init__(self) -> None:
        _check_one_of("end", self.end, ENDS)
        _check_kind("variable", self.variable, of_sets=False)


@final
@dataclass(frozen=True, slots=True)
class Compared(_Atom):
    """``x < y`` and the other five relations between two positions."""

    left: str
    relation: str
    right: str

    def __post_init__(self) -> None:
        _check_one_of("relation", self.relation, RELATIONS)
        _check_kind("left", self.left, of_sets=False)
        _check_kind("right", self.right, of_sets=False)


@final
@dataclass(frozen=True, slots=True)
class Successor(_Atom):
    """``x = y + 1``: the position ``later`` comes right after ``earlier``."""

    later: str
    earlier: str

    def __post_init__(self) -> None:
        _check_kind("later", self.later, of_sets=False)
        _check_kind("earlier", self.earlier, of_sets=False)


@final
@dataclass(frozen=True, slots=True)
class Member(_Atom):
    """``x in X``."""

    element: str
    container: str

    def __post_init__(self) -> None:
        _check_kind("element", self.element, of_sets=False)
        _check_kind("container", self.container, of_sets=True)


@final
@dataclass(frozen=True, slots=True)
class Subset(_Atom):
    """``X sub Y``: every position of ``inner`` is one of ``outer``."""

    inner: str
    outer: str

    def __post_init__(self) -> None:
        _check_kind("inner", self.inner, of_sets=True)
        _check_kind("outer", self.outer, of_sets=True)


@final
@dataclass(frozen=True, slots=True)
class Not(_Written):
    """``!φ``."""

    operand: Formula


@final
@dataclass(frozen=True, slots=True)
class Joined(_Written):
    """Two or more operands and one connective; a chain of ``->`` groups to the right, of ``<->`` to the left."""

    connective: str
    operands: tuple[Formula, ...]

    def __post_init__(self) -> None:
        _check_one_of("connective", self.connective, CONNECTIVES)
        if len(self.operands) < 2:
            raise FormulaError(f"operands must be at least two; got {len(self.operands)}")


@final
@dataclass(frozen=True, slots=True)
class Quantified(_Written):
    """``exists x. φ`` or ``forall x. φ``, over positions or, when the variable is upper-case, over sets of them."""

    quantifier: str
    variable: str
    body: Formula

    def __post_init__(self) -> None:
        _check_one_of("quantifier", self.quantifier, QUANTIFIERS)
        if not is_variable(self.variable):
            raise FormulaError(f"variable must be a name that is not reserved; got {self.variable!r}")


Formula: TypeAlias = Truth | Letter | End | Compared | Successor | Member | Subset | Not | Joined | Quantified


def logic_formula(text: str) -> Formula:
    """Read a formula; :class:`FormulaError` says what is wrong and where."""
    reader = Reader(text, SYMBOLS)
    formula = read_formula(reader)
    reader.finish()
    return formula


def read_formula(reader: Reader) -> Formula:
    """Read as much of a formula as there is, inside a larger text."""
    return chained(reader, CONNECTIVES, _operand, Joined)


def is_set_variable(name: str) -> bool:
    """Whether a variable stands for a set of positions rather than for one."""
    return name[:1].isupper()


def is_variable(name: str) -> bool:
    """Whether a variable may be called so: a name that is no word of the language."""
    return name.isidentifier() and name not in RESERVED


def free_variables(formula: Formula) -> dict[str, int | None]:
    """The variables no quantifier binds, each with the place of its first use where that is known."""
    match formula:
        case Not(operand):
            return free_variables(operand)
        case Joined(_, operands):
            return first_uses(map(free_variables, operands))
        case Quantified(_, variable, body):
            return {name: place for name, place in free_variables(body).items() if name != variable}
        case Letter(_, x) | End(_, x):
            return {x: formula.position}
        case Compared(x, _, y) | Successor(x, y) | Member(x, y) | Subset(x, y):
            return {x: formula.position, y: formula.position}
        case Truth():
            return {}


def letters_used(formula: Formula) -> dict[str, int | None]:
    """The letters a formula asks for, each with the place of its first use where that is known."""
    match formula:
        case Letter(letter):
            return {letter: formula.position}
        case Not(operand) | Quantified(_, _, operand):
            return letters_used(operand)
        case Joined(_, operands):
            return first_uses(map(letters_used, operands))
        case _:
            return {}


def first_uses(places: Iterable[dict[str, int | None]]) -> dict[str, int | None]:
    """Several records of where names are used as one; of two uses the earlier record's is kept."""
    first: dict[str, int | None] = {}
    for found in places:
        first = found | first
    return first


def bound_variables(reader: Reader) -> list[str]:
    """Read ``x, y.`` behind a quantifier."""
    quantifier = reader.take()
    names = [_variable(reader, f"after {quantifier}")]
    while reader.accept(","):
        names.append(_variable(reader, "after ','"))
    reader.expect(".", f"behind the variables of {quantifier}")
    return names


def wrapped(text: str, when: bool) -> str:
    """The text, in parentheses where they are needed."""
    return f"({text})" if when else text


def _operand(reader: Reader) -> Formula:
    token = reader.coming
    if reader.accept("!"):
        with reader.nested():
            return Not(_operand(reader))
    if reader.accept("("):
        with reader.nested():
            inside = read_formula(reader)
        reader.expect(")", f"for the '(' at position {token.position}")
        return inside
    if reader.at(*QUANTIFIERS):
        names = bound_variables(reader)
        with reader.nested(len(names)):
            body = read_formula(reader)
        for name in reversed(names):
            body = Quantified(token.content, name, body)
        return body
    if reader.at("true", "false"):
        return Truth(reader.take().content == "true", position=token.position)
    if token.kind in ("name", "number", "quoted") and reader.after.content == "(":
        return _predicate(reader)
    if token.kind == "name":
        return _relation(reader)
    raise reader.refused(f"expected a formula, found {token}")


def _predicate(reader: Reader) -> Formula:
    token = reader.take()
    if token.kind == "name" and token.content in RESERVED.difference(ENDS):
        raise reader.refused(f"{token} is a word of the language; a letter of that name is quoted", token)
    reader.expect("(", f"after {token}")
    variable = _position(reader, f"in {token.content}(…)")
    reader.expect(")", f"after {token.content}({variable}")
    if token.kind == "name" and token.content in ENDS:
        return End(token.content, variable, position=token.position)
    return Letter(token.content, variable, position=token.position)


def _relation(reader: Reader) -> Formula:
    place = reader.coming.position
    left = _variable(reader, "or a formula")
    if is_set_variable(left):
        reader.expect("sub", f"after the set {left}")
        return Subset(left, _set(reader, "after 'sub'"), position=place)
    if reader.accept("in"):
        return Member(left, _set(reader, "after 'in'"), position=place)
    if not reader.at(*RELATIONS):
        raise reader.refused(f"expected 'in' or one of {' '.join(RELATIONS)} after {left!r}, found {reader.coming}")
    relation = reader.take().content
    right = _position(reader, f"after {relation!r}")
    if not reader.at("+"):
        return Compared(left, relation, right, position=place)
    if relation != "=" or reader.after.content != "1":
        raise reader.refused(f"only {left} = {right} + 1 may add, and only 1")
    reader.take()
    reader.take()
    return Successor(left, right, position=place)


def _variable(reader: Reader, where: str) -> str:
    token = reader.take()
    if token.kind != "name" or not is_variable(token.content):
        raise reader.refused(f"expected a variable {where}, found {token}", token)
    return token.content


def _position(reader: Reader, where: str) -> str:
    return _of_kind(reader, where, of_sets=False)


def _set(reader: Reader, where: str) -> str:
    return _of_kind(reader, where, of_sets=True)


def _of_kind(reader: Reader, where: str, *, of_sets: bool) -> str:
    token = reader.coming
    name = _variable(reader, where)
    if is_set_variable(name) is not of_sets:
        raise reader.refused(f"expected {_KIND[of_sets]} {where}, found {token}", token)
    return name


_KIND = {False: "a variable for a position (lower-case)", True: "a variable for a set (upper-case)"}


def _check_kind(argument: str, name: str, *, of_sets: bool) -> None:
    if not is_variable(name) or is_set_variable(name) is not of_sets:
        raise FormulaError(f"{argument} must be {_KIND[of_sets]}; got {name!r}")


def _check_one_of(argument: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise FormulaError(f"{argument} must be one of {', '.join(map(repr, allowed))}; got {value!r}")


def _written(formula: Formula) -> str:
    match formula:
        case Truth(value):
            return "true" if value else "false"
        case Letter(letter, x):
            bare = letter.isidentifier() and letter not in RESERVED
            quote = '"' if "'" in letter else "'"
            return f"{letter if bare or letter.isdecimal() else quote + letter + quote}({x})"
        case End(end, x):
            return f"{end}({x})"
        case Compared(x, relation, y):
            return f"{x} {relation} {y}"
        case Successor(later, earlier):
            return f"{later} = {earlier} + 1"
        case Member(x, container):
            return f"{x} in {container}"
        case Subset(inner, outer):
            return f"{inner} sub {outer}"
        case Not(operand):
            return f"!{wrapped(str(operand), not isinstance(operand, Truth | Letter | End | Not))}"
        case Joined(connective, operands):
            own = CONNECTIVES.index(connective)
            return f" {connective} ".join(wrapped(str(part), _binds(part) <= own) for part in operands)
        case Quantified(quantifier, variable, body):
            return f"{quantifier} {variable}. {body}"


def _binds(formula: Formula) -> int:
    """How tightly, by the order of the connectives; a quantifier takes all there is to its right."""
    if isinstance(formula, Joined):
        return CONNECTIVES.index(formula.connective)
    return -1 if isinstance(formula, Quantified) else len(CONNECTIVES)
