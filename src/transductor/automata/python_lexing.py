"""The lexical machine of Python source: strings, comments, bracket depth and indentation, byte by byte.

It follows what a tokenizer has to know to cut a text: whether a byte lies in a string or a comment, how many brackets
are open, and how far the logical line is indented.  It sees no further:

* more than eight open brackets count as eight, and bracket types are not compared;
* a nested quotation mark inside an f-string ends it, as it did before Python 3.12;
* lines end with a line feed, and a NUL begins a new file.

It is exact otherwise: ``tests/automata/test_python_lexing.py`` compares it with ``tokenize``.
"""

from __future__ import annotations

from functools import cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from transductor.automata.moore import MooreMachine
from transductor.automata.table_loops import walked

CONTEXTS: Final = ("code", "comment", "'", '"', "'''", '"""')
DEEPEST: Final = 8
"""Open brackets that are told apart; more count as this many."""

LEVELS: Final = ("0", "1 to 4", "5 to 8", "9 to 12", "13 to 16", "17 or more")
"""Classes of columns at which a logical line may begin."""

_WIDEST: Final = 17  # columns that are told apart
_TAB: Final = 8
# Letters: bytes that the machine treats alike.
_SPECIAL: Final = (b" ", b"\t", b"\n", b"\f", b"\0", b"#", b"'", b'"', b"\\", b"([{", b")]}")
_SPACE, _TABULATOR, _LINE, _FEED, _FILE, _HASH, _SINGLE, _DOUBLE, _BACKSLASH, _OPEN, _CLOSE, _OTHER = range(12)


class _Node(NamedTuple):
    """What is remembered: a mode, the quotation mark of a string, open brackets, the line's class, a column."""

    mode: str = "begin"
    quote: int = 0
    depth: int = 0
    level: int = 0
    column: int = 0


class Lexing(NamedTuple):
    """What is known after a byte.

    Attributes:
        context: Place in ``CONTEXTS``; after two quotation marks in a row, that of a string which may be over.
        depth: Open brackets, up to ``DEEPEST``.
        level: Place in ``LEVELS`` of the column at which the logical line began.
        column: Place in ``LEVELS`` of the column reached, while the white space before a logical line is read; else -1.
    """

    context: int
    depth: int
    level: int
    column: int


def level_of(column: int) -> int:
    """Return the place in ``LEVELS`` of a column."""
    return min((column + 3) // 4, len(LEVELS) - 1)


@cache
def letters_of_bytes() -> NDArray[np.int64]:
    """Return for every byte the letter that the machine reads, ``(256,)``."""
    letters = np.full(256, _OTHER)
    for letter, members in enumerate(_SPECIAL):
        letters[list(members)] = letter
    return letters


@cache
def python_lexing() -> MooreMachine:
    """Return the machine over the bytes 0 to 255; a label is a place in :func:`lexings`."""
    places = {lexing: place for place, lexing in enumerate(lexings())}
    small = MooreMachine.explored(_Node(), 12, _after, lambda node: places[_shown(node)])
    return MooreMachine(small.transitions[:, letters_of_bytes()], small.outputs)


@cache
def lexings() -> tuple[Lexing, ...]:
    """Return everything that can be known after a byte, in the order of the machine's labels."""
    columns = range(-1, len(LEVELS))
    return tuple(
        Lexing(context, depth, level, column)
        for context in range(len(CONTEXTS))
        for depth in range(DEEPEST + 1)
        for level in range(len(LEVELS))
        for column in columns
    )


def lexical_features() -> NDArray[np.float32]:
    """Return what is known after a byte as numbers, a row for each of :func:`lexings`.

    Contexts, depths, levels and columns are one-hot, side by side; no column is a block of zeros.
    """
    known = np.array(lexings())
    sizes = len(CONTEXTS), DEEPEST + 1, len(LEVELS), len(LEVELS)
    blocks = [(known[:, place, None] == np.arange(size)) for place, size in enumerate(sizes)]
    return np.concatenate(blocks, 1).astype(np.float32)


def lexed(text: bytes) -> NDArray[np.int64]:
    """Return what is known after each byte of a text, ``(T, 4)``: the fields of :class:`Lexing`."""
    machine, known = python_lexing(), np.array(lexings())
    letters = np.frombuffer(text, dtype=np.uint8)
    labels: NDArray[np.int64] = machine.outputs[walked(len(letters), machine.transitions, letters, machine.start)]
    return known[labels]


def _shown(node: _Node) -> Lexing:
    if node.mode in ("opened", "twice", "single", "escaped"):
        context = 2 + node.quote
    elif node.mode in ("triple", "closing", "closing twice", "triple escaped"):
        context = 4 + node.quote
    else:
        context = int(node.mode in ("comment", "comment line"))
    column = level_of(node.column) if node.mode == "begin" else -1
    return Lexing(context, node.depth, node.level, column)


def _after(node: _Node, letter: int) -> _Node:
    """Return what is remembered after one more letter."""
    if letter == _FILE:
        return _Node()
    match node.mode:
        case "begin":
            return _before_a_line(node, letter)
        case "comment" | "comment line":
            return _line_ended(node) if letter == _LINE else node
        case "continued" if letter == _LINE:
            return node._replace(mode="code")
        case "opened" | "single" | "escaped" | "triple" | "closing" | "closing twice" | "triple escaped":
            return _in_a_string(node, letter)
        case "twice" if letter == _SINGLE + node.quote:
            return node._replace(mode="triple")
    return _in_code(node._replace(mode="code", quote=0), letter)


def _before_a_line(node: _Node, letter: int) -> _Node:
    """Measure the white space before a logical line; blank lines and comments do not count."""
    if letter == _SPACE:
        return node._replace(column=min(node.column + 1, _WIDEST))
    if letter == _TABULATOR:
        return node._replace(column=min((node.column // _TAB + 1) * _TAB, _WIDEST))
    if letter in (_LINE, _FEED):
        return node._replace(column=0)
    if letter == _HASH:
        return _Node("comment line", level=node.level)
    return _in_code(_Node("code", level=level_of(node.column)), letter)


def _line_ended(node: _Node) -> _Node:
    """Return what follows a line feed outside of strings: inside brackets the logical line goes on."""
    return _Node("code", depth=node.depth, level=node.level) if node.depth else _Node(level=node.level)


def _in_code(node: _Node, letter: int) -> _Node:
    if letter == _LINE:
        return _line_ended(node)
    if letter in (_OPEN, _CLOSE):
        change = 1 if letter == _OPEN else -1
        return node._replace(depth=min(max(node.depth + change, 0), DEEPEST))
    if letter in (_SINGLE, _DOUBLE):
        return node._replace(mode="opened", quote=letter - _SINGLE)
    return node._replace(mode={_HASH: "comment", _BACKSLASH: "continued"}.get(letter, "code"))


def _in_a_string(node: _Node, letter: int) -> _Node:
    """Follow a string; one in single quotation marks that is not closed ends with its line."""
    mark, over = letter == _SINGLE + node.quote, node._replace(mode="code", quote=0)
    if node.mode == "escaped":
        return node._replace(mode="single")
    if node.mode in ("opened", "single"):
        if mark:
            return node._replace(mode="twice") if node.mode == "opened" else over
        if letter == _LINE:
            return _line_ended(node)
        return node._replace(mode="escaped" if letter == _BACKSLASH else "single")
    if node.mode == "triple escaped":
        return node._replace(mode="triple")
    if letter == _BACKSLASH:
        return node._replace(mode="triple escaped")
    if not mark:
        return node._replace(mode="triple")
    if node.mode == "closing twice":
        return over
    return node._replace(mode="closing twice" if node.mode == "closing" else "closing")
