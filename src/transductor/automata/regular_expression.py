"""Regular expressions to automata: Python's own syntax, and the language of ``re.fullmatch``.

Python's parser reads the pattern and Python's matcher says which single characters a class matches; only the automaton
is built here.
"""

from __future__ import annotations

import importlib
import re
import string
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from transductor.automata.finite_algebra import inverse_image, minimised
from transductor.automata.finite_automata import DFA, NFA, determinised
from transductor.automata.graphs import explored

_parser: Any = importlib.import_module("re._parser")
_compiler: Any = importlib.import_module("re._compiler")
_constants: Any = importlib.import_module("re._constants")

POSITION_LIMIT = 20_000  # states before determinisation: repeats write their body out
STATE_LIMIT = 50_000  # states after it, unless the caller says how many
DEFAULT_ALPHABET_LIMIT = 1 << 16

# What a category stands for when the alphabet is not given.
_CATEGORIES = {"DIGIT": string.digits, "WORD": string.ascii_letters + string.digits + "_", "SPACE": string.whitespace}
_REFUSED = {
    "ATOMIC_GROUP": ("an atomic group", ("(?>",)),
    "GROUPREF": ("a back-reference", ("(?P=", *(f"\\{digit}" for digit in "123456789"))),
    "GROUPREF_EXISTS": ("a conditional", ("(?(",)),
    "POSSESSIVE_REPEAT": ("a possessive quantifier", ("*+", "++", "?+", "}+")),
    "LOOKAHEAD": ("a look-ahead", ("(?=", "(?!")),
    "LOOKBEHIND": ("a look-behind", ("(?<=", "(?<!")),
    "AT_BOUNDARY": ("a word boundary", ("\\b",)),
    "AT_NON_BOUNDARY": ("a non-boundary", ("\\B",)),
}


class RegexNotRegular(ValueError):
    """The pattern uses a construct that is outside regular expressions proper, and is refused."""


def regex(pattern: str, alphabet: Sequence[str] | None = None, flags: int = 0, *, limit: int = STATE_LIMIT) -> DFA:
    r"""Return the minimal automaton of the words over ``alphabet`` that ``re.fullmatch(pattern, word, flags)`` matches.

    All of Python's syntax is understood except look-around, back-references, conditionals, ``\b``, ``\B``, atomic
    groups and possessive quantifiers, which raise :class:`RegexNotRegular`.

    Without ``alphabet`` it is, sorted: the characters that the pattern writes or spans by a range; for ``\d \w \s``
    the ASCII characters of that category; both cases where IGNORECASE is set; and, if there is a dot or a negated
    class, also the 100 printable characters of ASCII (``string.printable``): a dot then means any of these but the
    newline.  ``limit`` bounds the deterministic states before minimisation.
    """
    if limit < 1:
        raise ValueError(f"limit must be at least 1; got {limit}")
    if not isinstance(pattern, str):
        raise TypeError(f"pattern must be a str; got {type(pattern).__name__}")
    with _explained():
        tree = _parser.parse(pattern, int(flags) & ~re.DEBUG)
        symbols = _default_alphabet(tree) if alphabet is None else _checked(alphabet)
        graph = _Graph(pattern, symbols)
        end = graph.sequence(tree, tree.state.flags, graph.new_state())
    class_of_symbol = _letter_classes(graph, symbols)
    nfa = _in_context(graph, end, class_of_symbol)
    try:
        small = minimised(determinised(nfa, limit=limit))
    except ValueError as error:
        raise ValueError(f"pattern must need at most limit = {limit} deterministic states; it needs more") from error
    return inverse_image(small, symbols, class_of_symbol)


def written_letters(pattern: str, flags: int = 0) -> tuple[str, ...]:
    """Return the alphabet that :func:`regex` takes for ``pattern`` if none is given; no automaton is built."""
    with _explained():
        return _default_alphabet(_parser.parse(pattern, int(flags) & ~re.DEBUG))


@contextmanager
def _explained() -> Iterator[None]:
    """Say in one kind of error what Python's parser, or the depth of its stack, has against a pattern."""
    try:
        yield
    except re.error as error:
        raise ValueError(f"pattern is not valid at position {error.pos}: {error.msg}") from error
    except OverflowError as error:
        raise ValueError(f"pattern is not valid: {error}") from error
    except RecursionError as error:
        raise ValueError("pattern must not be nested so deeply") from error


@dataclass
class _Graph:
    """States, and edges between them that read a character of a set or pass for free, perhaps under an anchor."""

    pattern: str
    symbols: tuple[str, ...]
    states: int = 0
    reads: list[tuple[int, frozenset[str], int]] = field(default_factory=list)
    passes: list[tuple[int, str | None, int]] = field(default_factory=list)
    _matched: dict[tuple[str, int], frozenset[str]] = field(default_factory=dict)

    def new_state(self) -> int:
        if self.states >= POSITION_LIMIT:
            raise ValueError(f"pattern must need at most {POSITION_LIMIT} positions with repeats written out")
        self.states += 1
        return self.states - 1

    def sequence(self, items: Iterable[Any], flags: int, start: int) -> int:
        """Append ``items`` after the state ``start`` and return the state behind them."""
        for node in items:
            start = self.node(node, flags, start)
        return start

    def node(self, node: tuple[Any, Any], flags: int, start: int) -> int:
        """Append one node of Python's syntax tree and return the state behind it."""
        name, argument = node[0].name, node[1]
        match name:
            case "LITERAL" | "NOT_LITERAL" | "ANY" | "IN":
                end = self.new_state()
                self.reads.append((start, self.matched(node, flags), end))
                return end
            case "BRANCH":
                end = self.new_state()
                for branch in argument[1]:
                    self.passes.append((self.sequence(branch, flags, start), None, end))
                return end
            case "SUBPATTERN":
                _, added, removed, body = argument
                return self.sequence(body, _combined(flags, added, removed), start)
            case "MAX_REPEAT" | "MIN_REPEAT":
                least, most, body = argument
                return self.repeat(least, most, body, flags, start)
            case "AT":
                return self.anchor(argument.name, flags, start)
            case "FAILURE":  # (?!) as later versions of the parser write it
                return self.new_state()
            case "ASSERT_NOT" if not len(argument[1]):
                return self.new_state()
            case "ASSERT" | "ASSERT_NOT":
                raise self.refusal("LOOKAHEAD" if argument[0] > 0 else "LOOKBEHIND")
            case _:
                raise self.refusal(name)

    def repeat(self, least: int, most: int, body: Iterable[Any], flags: int, start: int) -> int:
        """Append ``body`` from ``least`` to ``most`` times."""
        for _ in range(least):
            start = self.sequence(body, flags, start)
        if most == _constants.MAXREPEAT:
            hub = self.new_state()
            self.passes += [(start, None, hub), (self.sequence(body, flags, hub), None, hub)]
            return hub
        end = self.new_state()
        for _ in range(most - least):
            self.passes.append((start, None, end))
            start = self.sequence(body, flags, start)
        self.passes.append((start, None, end))
        return end

    def anchor(self, name: str, flags: int, start: int) -> int:
        """Append an edge that only passes where the anchor ``name`` holds."""
        if name in _REFUSED:
            raise self.refusal(name)
        if name in ("AT_BEGINNING", "AT_END") and flags & re.MULTILINE:
            name += "_LINE"
        end = self.new_state()
        self.passes.append((start, name, end))
        return end

    def matched(self, node: tuple[Any, Any], flags: int) -> frozenset[str]:
        """Return the symbols that a node for one character matches, as Python's matcher decides."""
        key = (repr(node), flags)
        if key not in self._matched:
            state = _parser.State()
            state.str, state.flags = "", flags
            fullmatch = _compiler.compile(_parser.SubPattern(state, [node]), flags).fullmatch
            self._matched[key] = frozenset(symbol for symbol in self.symbols if fullmatch(symbol))
        return self._matched[key]

    def refusal(self, construct: str) -> RegexNotRegular:
        """Return the error that names a construct and where it first stands."""
        if construct not in _REFUSED:
            return RegexNotRegular(f"pattern has {construct}, which is not understood")
        named, tokens = _REFUSED[construct]
        place = _first_place(self.pattern, tokens)
        return RegexNotRegular(f"pattern has {named} at position {place}, which is refused")


def _combined(flags: int, added: int, removed: int) -> int:
    if added & _parser.TYPE_FLAGS:
        flags &= ~_parser.TYPE_FLAGS
    combined: int = (flags | added) & ~removed
    return combined


def _letter_classes(graph: _Graph, symbols: tuple[str, ...]) -> dict[str, int]:
    """Number the letters so that those which no edge tells apart share a number."""
    sets = list({matched for _, matched, _ in graph.reads})
    numbers: dict[tuple[bool, ...], int] = {}
    # A newline is always its own letter: anchors look at it.
    signatures = {symbol: (symbol == "\n", *(symbol in matched for matched in sets)) for symbol in symbols}
    return {symbol: numbers.setdefault(signature, len(numbers)) for symbol, signature in signatures.items()}


# Where in a word a run stands, as far as anchors ask: what came before (START, LINE: a newline, INSIDE: another
# character) and what an anchor was promised to come next.
_START, _LINE, _INSIDE = "start", "line", "inside"
_ANYTHING, _NEWLINE, _LAST_NEWLINE, _NOTHING = "anything", "newline", "last newline", "nothing"
_AFTER_READING = {_NEWLINE: _ANYTHING, _LAST_NEWLINE: _NOTHING}
_SETTLED = {_LAST_NEWLINE: (_LAST_NEWLINE,), _NOTHING: (_NOTHING,)}
_PROMISES_AT_END: dict[str, dict[str, tuple[str, ...]]] = {  # anchor → promise so far → promises with which it holds
    "AT_END_STRING": {_ANYTHING: (_NOTHING,), _NOTHING: (_NOTHING,)},
    "AT_END": {_ANYTHING: (_NOTHING, _LAST_NEWLINE), _NEWLINE: (_LAST_NEWLINE,), **_SETTLED},
    "AT_END_LINE": {_ANYTHING: (_NOTHING, _NEWLINE), _NEWLINE: (_NEWLINE,), **_SETTLED},
}


def _promises(anchor: str | None, before: str, promise: str) -> tuple[str, ...]:
    """Return the promises with which a run may pass an edge under ``anchor``; none if it may not."""
    if anchor is None:
        return (promise,)
    if anchor in ("AT_BEGINNING", "AT_BEGINNING_STRING"):
        return (promise,) if before == _START else ()
    if anchor == "AT_BEGINNING_LINE":
        return (promise,) if before in (_START, _LINE) else ()
    return _PROMISES_AT_END[anchor].get(promise, ())


def _in_context(graph: _Graph, end: int, class_of_symbol: dict[str, int]) -> NFA:
    """Yield the automaton over classes of letters whose states know where in the word they stand."""
    anchored = any(anchor for _, anchor, _ in graph.passes)
    newline = class_of_symbol.get("\n")
    readable: dict[int, list[tuple[set[int], int]]] = {}
    for source, matched, target in graph.reads:
        readable.setdefault(source, []).append(({class_of_symbol[symbol] for symbol in matched}, target))
    passable: dict[int, list[tuple[str | None, int]]] = {}
    for source, anchor, target in graph.passes:
        passable.setdefault(source, []).append((anchor, target))

    def following(state: int, before: str, promise: str) -> Iterator[tuple[int | None, tuple[int, str, str]]]:
        for anchor, target in passable.get(state, ()):
            for promised in _promises(anchor, before, promise):
                yield None, (target, before, promised)
        if promise == _NOTHING:
            return
        for classes, target in readable.get(state, ()):
            for letter in classes if promise == _ANYTHING else classes & {newline}:
                context = (_LINE if letter == newline else _INSIDE) if anchored else before
                yield letter, (target, context, _AFTER_READING.get(promise, promise))

    nodes, rows = explored([(0, _START, _ANYTHING)], lambda node: (successor for _, successor in following(*node)))
    edges = frozenset(
        (number, letter, target)
        for number, (node, row) in enumerate(zip(nodes, rows, strict=True))
        for (letter, _), target in zip(following(*node), row, strict=True)
    )
    accepting = frozenset(
        number for number, (state, _, promise) in enumerate(nodes) if state == end and promise in (_ANYTHING, _NOTHING)
    )
    letters = tuple(dict.fromkeys(class_of_symbol.values()))
    return NFA(letters, len(nodes), edges, frozenset({0}), accepting)


def _checked(alphabet: Sequence[str]) -> tuple[str, ...]:
    for position, symbol in enumerate(alphabet):
        if not isinstance(symbol, str) or len(symbol) != 1:
            raise ValueError(f"alphabet must hold single characters; got {symbol!r} at position {position}")
    return tuple(alphabet)


def _default_alphabet(tree: Any) -> tuple[str, ...]:
    letters: set[str] = set()
    flags, more = tree.state.flags, False
    for name, argument in _nodes(tree):
        if name in ("LITERAL", "NOT_LITERAL"):
            letters.add(chr(argument))
        elif name == "RANGE":
            if argument[1] - argument[0] >= DEFAULT_ALPHABET_LIMIT:
                raise ValueError(f"alphabet must be given where a range spans over {DEFAULT_ALPHABET_LIMIT} characters")
            letters.update(map(chr, range(argument[0], argument[1] + 1)))
        elif name == "CATEGORY":
            letters.update(_CATEGORIES[argument.name.split("_")[-1]])
        elif name == "SUBPATTERN":
            flags |= argument[1]
        more |= name in ("NOT_LITERAL", "ANY", "NEGATE") or (name == "CATEGORY" and "_NOT_" in argument.name)
    if flags & re.IGNORECASE:
        letters |= {cased for symbol in letters for cased in (symbol.lower(), symbol.upper()) if len(cased) == 1}
    if more:
        letters.update(string.printable)
    return tuple(sorted(letters))


def _nodes(part: Any) -> Iterator[tuple[str, Any]]:
    """Yield all nodes of a syntax tree by name, those inside classes too."""
    part = getattr(part, "data", part)
    if isinstance(part, tuple) and part and hasattr(part[0], "name"):
        yield part[0].name, part[1]
        yield from _nodes(part[1])
    elif isinstance(part, list | tuple):
        for inner in part:
            yield from _nodes(inner)


def _first_place(pattern: str, tokens: tuple[str, ...]) -> int:
    """Return where a token first stands outside classes, escapes and comments: the tree does not keep positions."""
    skipped = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?#[^)]*\)|.", re.DOTALL)
    position = 0
    while position < len(pattern) and not pattern.startswith(tokens, position):
        match = skipped.match(pattern, position)
        position = match.end() if match else position + 1
    return position
