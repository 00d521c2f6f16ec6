"""Formulas as trees: what the formulas of plain logic, of weighted logic and of Boolean circuits have in common.

A variable that begins with an upper-case letter stands for a set of positions, any other for one position.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias, final

from transductor.automata.logic.formula_text import FormulaError, Reader

RESERVED = frozenset(("exists", "forall", "first", "last", "true", "false", "in", "sub", "sum", "prod"))

TextPositions: TypeAlias = dict[str, int | None]
"""Names, each with the place in the text where it is first used; None where that is not known."""

_KIND = {False: "a variable for a position (lower-case)", True: "a variable for a set (upper-case)"}


class Node:
    """A formula, which prints as the text it is read from."""

    __slots__ = ()

    template: ClassVar[str]
    """The text, as a format string of the node."""
    bare: ClassVar[bool] = False
    """Whether a negation of this formula needs no parentheses."""

    def __str__(self) -> str:
        return self.template.format(self)

    @property
    def parts(self) -> tuple[Any, ...]:
        """The formulas inside this one."""
        return ()


@dataclass(frozen=True, slots=True)
class Atom(Node):
    """A formula without parts; ``position`` is its place in the text it was read from."""

    of_positions: ClassVar[tuple[str, ...]] = ()
    """Fields that hold a variable for a position."""
    of_sets: ClassVar[tuple[str, ...]] = ()
    """Fields that hold a variable for a set."""
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """The values that other fields may have."""

    position: int | None = field(default=None, compare=False, repr=False, kw_only=True)

    def __post_init__(self) -> None:
        for name, allowed in self.choices.items():
            check_one_of(name, getattr(self, name), allowed)
        for name in (*self.of_positions, *self.of_sets):
            variable = getattr(self, name)
            if not is_variable(variable) or is_set_variable(variable) is not (name in self.of_sets):
                raise FormulaError(f"{name} must be {_KIND[name in self.of_sets]}; got {variable!r}")

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables of the formula."""
        return tuple(getattr(self, name) for name in (*self.of_positions, *self.of_sets))


@final
@dataclass(frozen=True, slots=True)
class Truth(Atom):
    """``true`` or ``false``."""

    bare: ClassVar[bool] = True

    value: bool

    def __str__(self) -> str:
        return "true" if self.value else "false"


@final
@dataclass(frozen=True, slots=True)
class Not(Node):
    """``!φ``: the operand is false."""

    bare: ClassVar[bool] = True

    operand: Any

    def __str__(self) -> str:
        return f"!{wrapped(str(self.operand), not self.operand.bare)}"

    @property
    def parts(self) -> tuple[Any, ...]:
        """The operand alone."""
        return (self.operand,)


@dataclass(frozen=True, slots=True)
class Chain(Node):
    """Two or more operands and the connective between them."""

    connectives: ClassVar[tuple[str, ...]]
    """Those that are allowed, from the loosest to the tightest."""

    connective: str
    operands: tuple[Any, ...]

    def __post_init__(self) -> None:
        check_one_of("connective", self.connective, self.connectives)
        if len(self.operands) < 2:
            raise FormulaError(f"operands must be at least two; got {len(self.operands)}")

    def __str__(self) -> str:
        return f" {self.connective} ".join(wrapped(str(part), self._is_looser(part)) for part in self.operands)

    @property
    def parts(self) -> tuple[Any, ...]:
        """The operands in order."""
        return self.operands

    def _is_looser(self, part: Node) -> bool:
        """Whether a part must stand in parentheses; a quantifier takes all there is to its right."""
        if isinstance(part, Chain):
            return self.connectives.index(part.connective) <= self.connectives.index(self.connective)
        return isinstance(part, Quantifier)


@dataclass(frozen=True, slots=True)
class Quantifier(Node):
    """A quantifier, the variable that it binds, and its body."""

    quantifiers: ClassVar[tuple[str, ...]]
    """Those that are allowed."""
    template: ClassVar[str] = "{0.quantifier} {0.variable}. {0.body}"

    quantifier: str
    variable: str
    body: Any

    def __post_init__(self) -> None:
        check_one_of("quantifier", self.quantifier, self.quantifiers)
        if not is_variable(self.variable):
            raise FormulaError(f"variable must be a name that is not reserved; got {self.variable!r}")

    @property
    def parts(self) -> tuple[Any, ...]:
        """The body alone."""
        return (self.body,)


def is_set_variable(name: str) -> bool:
    """Whether a variable stands for a set of positions rather than for one."""
    return name[:1].isupper()


def is_variable(name: str) -> bool:
    """Whether a variable may have this name: one that is no word of the language."""
    return name.isidentifier() and name not in RESERVED


def free_variables(formula: Node) -> TextPositions:
    """Return the variables that no quantifier binds."""
    if isinstance(formula, Atom):
        return dict.fromkeys(formula.variables, formula.position)
    free = first_uses(formula, free_variables)
    if isinstance(formula, Quantifier):
        free.pop(formula.variable, None)
    return free


def first_uses(formula: Node, names_in: Callable[[Node], TextPositions]) -> TextPositions:
    """Join the names in the parts of a formula; of two uses of a name, the place of the first is kept."""
    first: TextPositions = {}
    for part in formula.parts:
        first = names_in(part) | first
    return first


def read_quantified(reader: Reader, kind: type[Quantifier], body: Callable[[Reader], Any]) -> Any:
    """Read a quantifier, its variables as in ``x, y.``, and its body."""
    quantifier = reader.take()
    names = [read_variable(reader, f"after {quantifier}")]
    while reader.accept(","):
        names.append(read_variable(reader, "after ','"))
    reader.expect(".", f"behind the variables of {quantifier}")
    with reader.nested(len(names)):
        formula = body(reader)
    for name in reversed(names):
        formula = kind(quantifier.content, name, formula)
    return formula


def read_variable(reader: Reader, where: str, *, of_sets: bool | None = None) -> str:
    """Read a variable, for a set or for a position where ``of_sets`` says which."""
    token = reader.take()
    if token.kind != "name" or not is_variable(token.content):
        raise reader.refused(f"expected a variable {where}, found {token}", token)
    if of_sets is not None and is_set_variable(token.content) is not of_sets:
        raise reader.refused(f"expected {_KIND[of_sets]} {where}, found {token}", token)
    return token.content


def wrapped(text: str, when: bool) -> str:
    """Put the text in parentheses where they are needed."""
    return f"({text})" if when else text


def check_one_of(argument: str, value: str, allowed: Sequence[str]) -> None:
    """Refuse a value that is not allowed."""
    if value not in allowed:
        raise FormulaError(f"{argument} must be one of {', '.join(map(repr, allowed))}; got {value!r}")
