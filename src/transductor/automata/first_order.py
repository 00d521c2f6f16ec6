"""Star-free languages as sentences without sets: first-order logic over positions.

A language is star-free exactly where its minimal machine counts modulo nothing (Schützenberger, McNaughton and Papert).
Then the levels of its Krohn–Rhodes cascade have no groups: a letter, together with the levels above, either leaves the
coordinate of a level alone or resets it to one point.  So a coordinate before position x is p where the last reset
before x was to p, or where none was yet and p is its start: a formula with three variables, level by level.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from transductor.automata.decomposition.cascade import Action, Cascade
from transductor.automata.decomposition.krohn_rhodes import decomposed
from transductor.automata.decomposition.monoid import is_aperiodic
from transductor.automata.finite_automata import DFA
from transductor.automata.language import Machine, language
from transductor.automata.logic.formula_text import FormulaError
from transductor.automata.logic.formula_tree import Not, Truth
from transductor.automata.logic.runs import both, either, letter_names
from transductor.automata.logic.second_order_syntax import (
    Compared,
    End,
    Formula,
    Letter,
    Quantified,
    logic_formula,
)

_VARIABLES: Final = ("x", "y", "z")
_Context: TypeAlias = tuple[int, int, int]  # view before the letter, view after it, letter


def as_first_order(machine: Machine, *, limit: int = 20_000) -> str:
    """Return a sentence without sets that is true in exactly the words of a star-free language.

    ``mso(as_first_order(machine), alphabet)`` is the language again.  The sentence has three variables and needs no
    more than first-order logic with ``<``; it grows quickly with the levels of the cascade.

    Args:
        machine: A DFA, an NFA, an automaton with truth values, or an exact series all of whose values are 0 and 1.
        limit: The most atoms of the sentence.

    Raises:
        ValueError: If the language is not star-free, which :func:`~transductor.automata.logic.runs.as_mso` writes
            nevertheless; or if the sentence would be longer, or nested more deeply than it could be read.
    """
    if not isinstance(limit, int) or limit < 1:
        raise ValueError(f"limit must be a positive integer; got {limit!r}")
    dfa = language(machine)
    names = letter_names(dfa.alphabet)
    if not names:  # the empty word is the only one
        return str(Truth(dfa.start in dfa.accepting))
    verdict = is_aperiodic(dfa)
    if not verdict.aperiodic:
        raise ValueError(
            "machine is not star-free, it counts modulo a number, so no first-order sentence has its language; "
            "as_mso writes it with sets of positions"
        )
    layers, accepted = _explored(decomposed(dfa), dfa)
    sentence = _Writer(names, layers, limit).accepted(accepted)
    empty = dfa.start in dfa.accepting
    nonempty = Quantified("exists", "x", Truth(True))
    text = str(either([Not(nonempty), sentence]) if empty else sentence)
    try:
        logic_formula(text)
    except FormulaError as error:
        raise ValueError(
            f"machine of {dfa.states} states has no first-order sentence that can be read: {error.reason}; use as_mso"
        ) from None
    return text


@dataclass
class _Layer:
    """A level as far as words reach it: what each of its contexts does, and which one follows from where.

    ``following[point, context]`` is the context of the next level when this level stood at ``point`` before the letter;
    behind the last level it is the state after the letter.
    """

    start: int
    points: int
    contexts: dict[_Context, int] = field(default_factory=dict)
    actions: list[Action] = field(default_factory=list)
    following: dict[tuple[int, int], Hashable] = field(default_factory=dict)

    def number(self, context: _Context, action: Action) -> int:
        if context not in self.contexts:
            self.contexts[context] = len(self.contexts)
            self.actions.append(action)
        return self.contexts[context]

    def resets(self) -> dict[int, int]:
        """Return the contexts that reset the coordinate, and to which point; the others leave it alone."""
        identity = tuple(range(self.points))
        return {
            context: action[0]
            for context, action in enumerate(self.actions)
            if action != identity and len(set(action)) == 1
        }


def _explored(cascade: Cascade, dfa: DFA) -> tuple[list[_Layer], set[int]]:
    """Return the layers of a cascade without groups, following all letters, and the states that accept."""
    start = cascade.start(cascade.initial)
    layers = [_Layer(point, level.points) for point, level in zip(start, cascade.levels, strict=True)]
    letters = range(len(cascade.alphabet))
    seen, queue = {start}, [start]
    for coordinates in queue:
        for letter in letters:
            before = after = 0
            reached: list[int] = []
            key: tuple[int, int] | None = None
            for number, (level, layer, point) in enumerate(zip(cascade.levels, layers, coordinates, strict=True)):
                action = level.moves[before, after, letter]
                context = layer.number((before, after, letter), action)
                if key is not None:
                    layers[number - 1].following[key] = context
                key = point, context
                before, after = level.narrowed[before][point], level.narrowed[after][action[point]]
                reached.append(action[point])
            (successor,) = cascade.views[after]
            if key is not None:
                layers[-1].following[key] = successor
            if tuple(reached) not in seen:
                seen.add(tuple(reached))
                queue.append(tuple(reached))
    return layers, set(dfa.accepting)


class _Writer:
    """Writes which contexts and coordinates there are at a position, level by level."""

    def __init__(self, names: list[str], layers: list[_Layer], limit: int) -> None:
        self.names, self.layers, self.limit, self.atoms = names, layers, limit, 0

    def accepted(self, states: set[int]) -> Formula:
        """Say that the last letter leads to one of these states."""
        if not self.layers:  # one state, which accepts or does not
            return Truth(0 in states)
        here = self._following(len(self.layers) - 1, frozenset(states), "x")
        return Quantified("exists", "x", both([End("last", "x"), self._counted(here)]))

    def _following(self, level: int, wanted: frozenset[Hashable], variable: str) -> Formula:
        """Say that what follows from a level at a position, its context and its point before, is one of these."""
        layer = self.layers[level]
        cases: dict[frozenset[int], list[int]] = {}
        for point in range(layer.points):
            known = {context: layer.following.get((point, context)) for context in range(len(layer.actions))}
            if any(value is not None for value in known.values()):
                right = frozenset(context for context, value in known.items() if value in wanted)
                cases.setdefault(right, []).append(point)
        if len(cases) == 1:  # whatever the point is
            return self._contexts(level, next(iter(cases)), variable)
        return either(
            both([self._contexts(level, contexts, variable), self._points(level, frozenset(points), variable)])
            for contexts, points in cases.items()
            if contexts
        )

    def _contexts(self, level: int, wanted: frozenset[int], variable: str) -> Formula:
        """Say that the context of a level at a position is one of these."""
        layer = self.layers[level]
        if len(wanted) == len(layer.actions):
            return Truth(True)
        if level:
            return self._following(level - 1, frozenset(wanted), variable)
        letters = [letter for (_, _, letter), number in layer.contexts.items() if number in wanted]
        return either(self._counted(Letter(self.names[letter], variable)) for letter in letters)

    def _points(self, level: int, wanted: frozenset[int], variable: str) -> Formula:
        """Say that the coordinate of a level before a position is one of these points."""
        layer = self.layers[level]
        resets = layer.resets()
        right = frozenset(context for context, point in resets.items() if point in wanted)
        wrong = frozenset(resets) - right
        last, between = (name for name in _VARIABLES if name != variable)

        def some(name: str, *conditions: Formula) -> Formula:
            return Quantified("exists", name, both([*map(self._counted, conditions)]))

        before, since = Compared(last, "<", variable), Compared(last, "<", between)
        if layer.start not in wanted:
            later = some(between, since, Compared(between, "<", variable), self._contexts(level, wrong, between))
            good = some(last, before, self._contexts(level, right, last), *([Not(later)] if wrong else []))
            return good if right else Truth(False)
        # It is one of them unless a reset led elsewhere, and none came back since.
        later = some(between, since, Compared(between, "<", variable), self._contexts(level, right, between))
        bad = some(last, before, self._contexts(level, wrong, last), *([Not(later)] if right else []))
        return Not(bad) if wrong else Truth(True)

    def _counted(self, formula: Formula) -> Formula:
        self.atoms += 1
        if self.atoms > self.limit:
            raise ValueError(
                f"machine needs a first-order sentence of more than limit = {self.limit} atoms; raise limit, or use "
                "as_mso, which grows with the number of arcs only"
            )
        return formula
