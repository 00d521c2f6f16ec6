"""Formulas as text: tokens, and errors that point at a place.

Boolean formulas, logic over words, and weighted logic read their text with this.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

# Formulas are read by recursion; seven calls a level stay well within Python's own bound.
NESTING_LIMIT = 64

Kind: TypeAlias = Literal["name", "number", "quoted", "symbol", "end"]
T = TypeVar("T")


class FormulaError(ValueError):
    """A formula that cannot be read or understood.

    ``reason`` says why, ``position`` counts characters from 0 (None for a formula that was not read from text), and
    the message shows the place when the text is known.
    """

    def __init__(self, reason: str, position: int | None = None, text: str | None = None) -> None:
        self.reason, self.position = reason, position
        message = reason if position is None else f"{reason}, at position {position}"
        if position is not None and text is not None:
            on_one_line = text.replace("\n", " ")
            message += f"\n  {on_one_line}\n  {' ' * position}^"
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of text and where it starts; the content of a quoted piece is without its quotes."""

    kind: Kind
    content: str
    position: int

    def __str__(self) -> str:
        return "the end" if self.kind == "end" else repr(self.content)


class Reader:
    """Takes a formula's tokens one after the other.

    Names are letters, digits and underscores, not starting with a digit; numbers have decimal digits and perhaps a
    fraction part; quoted pieces stand in single or double quotes; ``symbols`` are the signs of the grammar.
    """

    def __init__(self, text: str, symbols: Iterable[str]) -> None:
        if not isinstance(text, str):
            raise TypeError(f"a formula must be text; got {text!r}")
        self.text = text
        self._tokens = list(_tokens(text, symbols))
        self._next = 0
        self._nesting = 0

    @property
    def coming(self) -> Token:
        """The next token, which is not taken yet."""
        return self._tokens[self._next]

    @property
    def after(self) -> Token:
        """The token after the next one."""
        return self._tokens[min(self._next + 1, len(self._tokens) - 1)]

    def take(self) -> Token:
        """Take the next token and return it."""
        token = self.coming
        if token.kind != "end":
            self._next += 1
        return token

    def at(self, *words: str) -> bool:
        """Whether the next token is one of these names or symbols."""
        return self.coming.kind in ("name", "symbol") and self.coming.content in words

    def accept(self, word: str) -> bool:
        """Take the next token if it is this name or symbol, and say whether it was."""
        is_next = self.at(word)
        if is_next:
            self.take()
        return is_next

    def expect(self, word: str, where: str) -> None:
        """Take this name or symbol, or refuse what stands in its place."""
        if not self.accept(word):
            raise self.refused(f"expected {word!r} {where}, found {self.coming}")

    def finish(self) -> None:
        """Refuse anything that is left."""
        if self.coming.kind != "end":
            raise self.refused(f"expected the end of the formula, found {self.coming}")

    def refused(self, reason: str, token: Token | None = None) -> FormulaError:
        """Return the error to raise because of a token, by default the next one."""
        return FormulaError(reason, (token or self.coming).position, self.text)

    @contextmanager
    def nested(self, levels: int = 1) -> Iterator[None]:
        """Go some levels deeper, as far as that is allowed."""
        self._nesting += levels
        if self._nesting > NESTING_LIMIT:
            raise self.refused(f"a formula may be nested {NESTING_LIMIT} levels deep, this one is deeper")
        yield
        self._nesting -= levels


def read_completely(text: str, symbols: Iterable[str], formula: Callable[[Reader], T]) -> T:
    """Read a text that is one formula and nothing else."""
    reader = Reader(text, symbols)
    result = formula(reader)
    reader.finish()
    return result


def bracketed(reader: Reader, inside: Callable[[Reader], T], closing: str = ")") -> T:
    """Read an opening bracket, what is inside, and the closing bracket."""
    opening = reader.take()
    with reader.nested():
        content = inside(reader)
    reader.expect(closing, f"for the {opening} at position {opening.position}")
    return content


def chained(
    reader: Reader,
    connectives: Sequence[str],
    operand: Callable[[Reader], T],
    joined: Callable[[str, tuple[T, ...]], T],
) -> T:
    """Read operands between connectives, which are given from the loosest to the tightest.

    A chain of one connective becomes one call ``joined(connective, operands)``, so long chains are not deep.
    """
    if not connectives:
        return operand(reader)
    connective, *tighter = connectives
    operands = [chained(reader, tighter, operand, joined)]
    while reader.accept(connective):
        operands.append(chained(reader, tighter, operand, joined))
    return operands[0] if len(operands) == 1 else joined(connective, tuple(operands))


def _tokens(text: str, symbols: Iterable[str]) -> Iterator[Token]:
    longest_first = sorted(symbols, key=len, reverse=True)
    pattern = re.compile(
        r"(?P<name>[^\W\d]\w*)|(?P<number>[0-9]+(?:\.[0-9]+)?)|(?P<quoted>'[^']+'|\"[^\"]+\")"
        rf"|(?P<symbol>{'|'.join(map(re.escape, longest_first))})|(?P<blank>\s+)"
    )
    position = 0
    while position < len(text):
        match = pattern.match(text, position)
        if match is None:
            raise FormulaError(f"unknown sign {text[position]!r}", position, text)
        content = match.group()
        match match.lastgroup:
            case "quoted":
                yield Token("quoted", content[1:-1], position)
            case "name" | "number" | "symbol" as kind:
                yield Token(kind, content, position)
            case _:
                pass
        position = match.end()
    yield Token("end", "", position)
