"""Regular expressions as trees: simplified as they are built, measured, and written in Python's syntax.

Equal expressions are one object, so that rules compare by identity, and sizes are known before anything is written: a
shared part of an expression that would fill a library costs nothing until then.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, final

Kind: TypeAlias = Literal["none", "empty", "letters", "sequence", "choice", "star"]

_CONTROLS: Final = {"\n": r"\n", "\t": r"\t", "\r": r"\r", "\f": r"\f", "\v": r"\v"}
_LEAST_RANGE: Final = 4  # fewer letters in a row are written one by one


@final
@dataclass(frozen=True, slots=True, eq=False)
class Expression:
    """One expression; ``letters`` are the numbers of all letters in it, ``size`` counts its letters and operators.

    ``nullable`` says whether the empty word is among its words, ``depth`` how deep its brackets are nested at most.
    """

    kind: Kind
    parts: tuple[Expression, ...]
    letters: frozenset[int]
    nullable: bool
    size: int
    depth: int

    @property
    def factors(self) -> tuple[Expression, ...]:
        """The expressions that follow one another in it: itself alone, unless it is a sequence."""
        return self.parts if self.kind == "sequence" else () if self.kind == "empty" else (self,)

    @property
    def options(self) -> tuple[Expression, ...]:
        """The expressions that it chooses from: itself alone, unless it is a choice."""
        return self.parts if self.kind == "choice" else () if self.kind == "none" else (self,)


class Expressions:
    """Makes expressions; equal ones are the same object.

    The rules are those that elimination of states asks for: neutral elements, one class for letters side by side,
    ``x y | x z = x (y | z)``, ``ε | x x* = x*``, ``x* x = x x*``, ``(x* | y)* = (x | y)*``, and whatever a star of
    letters already holds is left out beside it.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[Kind, tuple[int, ...]], Expression] = {}
        self.none = self._made("none", (), frozenset())
        self.empty = self._made("empty", (), frozenset())

    def _made(self, kind: Kind, parts: Sequence[Expression], letters: Iterable[int]) -> Expression:
        own = frozenset(letters)
        key = kind, tuple(map(id, parts)) if parts else tuple(sorted(own))
        if key not in self._known:
            letters_within = own.union(*(part.letters for part in parts))
            nullable = {
                "sequence": all(part.nullable for part in parts),
                "choice": any(part.nullable for part in parts),
            }.get(kind, kind in ("empty", "star"))
            size = sum(part.size for part in parts) + (len(own) if kind == "letters" else max(1, len(parts) - 1))
            depth = max((part.depth for part in parts), default=0) + (kind in ("star", "choice"))
            self._known[key] = Expression(kind, tuple(parts), letters_within, nullable, size, depth)
        return self._known[key]

    def one_of(self, letters: Iterable[int]) -> Expression:
        """Return the expression of any one of these letters."""
        own = frozenset(letters)
        return self._made("letters", (), own) if own else self.none

    def sequence(self, *parts: Expression) -> Expression:
        """Return one expression after the other."""
        if any(part is self.none for part in parts):
            return self.none
        factors: list[Expression] = []
        for factor in (factor for part in parts for factor in part.factors):
            factors.append(factor)
            self._settle(factors)
        if len(factors) < 2:
            return factors[0] if factors else self.empty
        return self._made("sequence", factors, ())

    def _settle(self, factors: list[Expression]) -> None:
        """Simplify around the last factor: what a star beside it holds, and ``x* x`` written as ``x x*``."""
        while len(factors) > 1 and _held(factors[-2], factors[-1]):
            factors.pop()
        while len(factors) > 1 and _held(factors[-1], factors[-2]):
            del factors[-2]
        for count in range(1, len(factors)):
            star = factors[-count - 1]
            if star.kind == "star" and star.parts[0].factors == tuple(factors[-count:]):
                factors[-count - 1 :] = [*star.parts[0].factors, star]
                break

    def choice(self, *parts: Expression) -> Expression:
        """Return either of these expressions."""
        options = list(dict.fromkeys(option for part in parts for option in part.options))
        letters = [option for option in options if option.kind == "letters"]
        if len(letters) > 1:
            options = [option for option in options if option.kind != "letters"]
            options.insert(0, self.one_of(frozenset[int]().union(*(option.letters for option in letters))))
        with_empty = self.empty in options
        options = [option for option in options if option is not self.empty]
        if with_empty:
            options = [self._with_empty(option) for option in options]
            with_empty = not any(option.nullable for option in options)
        options = _without_held(list(dict.fromkeys(options)))
        for end in (0, -1):
            shared = self._factored(options, end)
            if shared is not None:
                return self.choice(*shared, *[self.empty] * with_empty)
        if with_empty:
            options = [self.empty, *options]
        if len(options) < 2:
            return options[0] if options else self.none
        return self._made("choice", options, ())

    def _with_empty(self, option: Expression) -> Expression:
        """Return ``x*`` for ``x x*``, where the empty word is added anyway."""
        *before, last = option.factors
        return last if last.kind == "star" and last.parts[0].factors == tuple(before) else option

    def _factored(self, options: list[Expression], end: int) -> list[Expression] | None:
        """Return the options with a common first (or last) factor written once; None where none is shared."""
        groups: dict[Expression, list[Expression]] = {}
        for option in options:
            groups.setdefault(option.factors[end], []).append(option)
        if len(groups) == len(options):
            return None
        shared = []
        for factor, group in groups.items():
            if len(group) == 1:
                shared += group
                continue
            rests = [self.sequence(*(each.factors[1:] if end == 0 else each.factors[:-1])) for each in group]
            rest = self.choice(*rests)
            shared.append(self.sequence(factor, rest) if end == 0 else self.sequence(rest, factor))
        return shared

    def star(self, part: Expression) -> Expression:
        """Return any number of words of an expression one after the other."""
        options = [bare for option in part.options for bare in self._under_star(option)]
        single = {option for option in options if len(option.factors) == 1}
        letters = frozenset[int]().union(*(option.letters for option in single if option.kind == "letters"))

        def repeated(option: Expression) -> bool:
            """Whether an option is made of other options alone."""
            return len(option.factors) > 1 and all(
                factor in single or (factor.kind == "star" and factor.parts[0] in single) or factor.letters <= letters
                for factor in option.factors
            )

        inner = self.choice(*(option for option in options if not repeated(option)))
        if inner.options != tuple(options) and inner is not part:
            return self.star(inner)
        return self.empty if inner in (self.none, self.empty) else self._made("star", (inner,), ())

    def _under_star(self, option: Expression) -> list[Expression]:
        """Return what may stand for an option below a star."""
        if option is self.empty:
            return []
        if option.kind == "star":
            return list(option.parts[0].options)
        short = self._with_empty(option)
        if short is not option:
            return list(short.parts[0].options)
        if option.kind == "sequence" and option.nullable:
            return [bare for factor in option.parts for each in factor.options for bare in self._under_star(each)]
        return [option]


def _held(star: Expression, other: Expression) -> bool:
    """Whether nothing is added by an expression beside this star: all its words are there, and the empty one is."""
    if star.kind != "star" or not other.nullable:
        return False
    inner = star.parts[0]
    return other is star or (inner.kind == "letters" and other.letters <= inner.letters)


def _without_held(options: list[Expression]) -> list[Expression]:
    """Leave out options all of whose words are those of a star among the others."""
    stars = [option for option in options if option.kind == "star"]

    def held(option: Expression) -> bool:
        for star in stars:
            inner = star.parts[0]
            if option is star:
                continue
            if inner.kind == "letters" and option.letters <= inner.letters:
                return True
            if all(factor is star or factor is inner for factor in option.factors) or option.factors == inner.factors:
                return True
        return False

    return [option for option in options if not held(option)]


@dataclass(frozen=True, slots=True)
class _Text:
    """Written text, and how tightly it holds together: 0 a choice, 1 a sequence, 2 what an operator may follow."""

    text: str
    tightness: int

    def within(self, least: int) -> str:
        return self.text if self.tightness >= least else f"({self.text})"


def written(expression: Expression, spelling: Callable[[frozenset[int]], str], between: str = "") -> str:
    """Return the text of an expression in Python's syntax.

    Args:
        expression: What is written; its depth is the depth of recursion.
        spelling: Gives the text of a set of letters.
        between: What separates one letter from the next: nothing, or a blank where letters are names.
    """
    known: dict[Expression, _Text] = {}

    def text_of(part: Expression) -> _Text:
        if part not in known:
            known[part] = _text(part)
        return known[part]

    def _text(part: Expression) -> _Text:
        match part.kind:
            case "none":
                return _Text("(?!)", 2)
            case "empty":
                return _Text("", 1)
            case "letters":
                return _Text(spelling(part.letters), 2)
            case "star":
                return _Text(f"{text_of(part.parts[0]).within(2)}*", 1)
            case "choice" if part.parts[0].kind == "empty" and len(part.parts) == 2:
                return _Text(f"{text_of(part.parts[1]).within(2)}?", 1)
            case "choice" if part.parts[0].kind == "empty":
                rest = "|".join(text_of(option).text for option in part.parts[1:])
                return _Text(f"({rest})?", 1)
            case "choice":
                return _Text("|".join(text_of(option).text for option in part.parts), 0)
            case _:
                return _Text(_in_sequence(part.parts, text_of, between), 1)

    return text_of(expression).text


def _in_sequence(factors: tuple[Expression, ...], text_of: Callable[[Expression], _Text], between: str) -> str:
    """Write factors one after the other: ``x x*`` as ``x+``, and what repeats as ``(…){n}`` where that is shorter."""
    pieces: list[_Text] = []
    place = 0
    while place < len(factors):
        best, period, times = 0, 0, 0
        for length in range(1, (len(factors) - place) // 2 + 1):
            count = 1
            while factors[place + count * length : place + (count + 1) * length] == factors[place : place + length]:
                count += 1
            block = between.join(text_of(each).within(1) for each in factors[place : place + length])
            bracketed = len(block) + (0 if length == 1 and text_of(factors[place]).tightness == 2 else 2)
            saved = count * len(block) - bracketed - len(f"{{{count}}}")
            if count > 1 and saved > best:
                best, period, times = saved, length, count
        if best:
            block_text = _in_sequence(factors[place : place + period], text_of, between)
            tight = period == 1 and text_of(factors[place]).tightness == 2
            pieces.append(_Text(f"{block_text if tight else f'({block_text})'}{{{times}}}", 1))
            place += period * times
            continue
        pieces.append(text_of(factors[place]))
        place += 1
        star = factors[place] if place < len(factors) else None
        if star is not None and star.kind == "star":
            body = star.parts[0].factors
            begun = place - len(body)
            if begun >= 0 and factors[begun:place] == body and len(pieces) >= len(body):
                alone = [text_of(each) for each in body]
                if [each.text for each in pieces[-len(body) :]] == [each.text for each in alone]:
                    inner = between.join(each.within(1) for each in alone)
                    single = len(body) == 1 and alone[0].tightness == 2
                    pieces[-len(body) :] = [_Text(f"{inner if single else f'({inner})'}+", 1)]
                    place += 1
    return between.join(piece.within(1) for piece in pieces)


def character_class(characters: Sequence[str]) -> str:
    """Return the text that matches any one of these characters, each quoted where Python needs it."""
    if len(characters) == 1:
        return _escaped(characters[0])
    codes = sorted(map(ord, characters))
    runs: list[list[int]] = []
    for code in codes:
        if runs and code == runs[-1][-1] + 1:
            runs[-1].append(code)
        else:
            runs.append([code])
    pieces = [
        f"{_escaped(chr(run[0]))}-{_escaped(chr(run[-1]))}"
        if len(run) >= _LEAST_RANGE
        else "".join(_escaped(chr(code)) for code in run)
        for run in runs
    ]
    return f"[{''.join(pieces)}]"


def _escaped(character: str) -> str:
    if character in _CONTROLS:
        return _CONTROLS[character]
    if character.isprintable():
        return re.escape(character)
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
