"""Monadic second-order logic over words, compiled to finite automata (Büchi, Elgot, Trakhtenbrot).

A formula with free variables is a language of marked words: every letter carries one bit per variable, and the bits of
a variable mark the positions it stands for.  Connectives are products and complements; a quantifier forgets its bits,
which makes the automaton nondeterministic, so that it is determinised and minimised again.  That a position is marked
exactly once is checked where its variable is bound; until then, automata may do anything on other markings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import product
from typing import TypeAlias, final

import numpy as np

from transductor.automata.finite_algebra import inverse_image, minimised
from transductor.automata.finite_automata import DFA, NFA, determinised
from transductor.automata.logic import second_order_syntax as syntax
from transductor.automata.logic.formula_text import FormulaError
from transductor.automata.logic.formula_tree import Node, Not, Truth, free_variables, is_set_variable
from transductor.automata.logic.second_order_syntax import Formula, letters_used, logic_formula
from transductor.automata.words import Symbol

# Every variable that is free at the same time doubles the number of marked letters.
VARIABLES_LIMIT = 12

# Which of the states "left came first", "right came first", "both at once" a relation accepts.
ORDERS = {"=": {3}, "!=": {1, 2}, "<": {1}, "<=": {1, 3}, ">": {2}, ">=": {2, 3}}

Bits: TypeAlias = tuple[int, ...]
Step: TypeAlias = Callable[[int, Symbol, dict[str, int]], int]


@final
@dataclass(frozen=True)
class Tracks:
    """The alphabet of marked words: each letter is a symbol and one bit for each variable."""

    symbols: tuple[Symbol, ...]
    variables: tuple[str, ...] = ()

    @cached_property
    def alphabet(self) -> tuple[tuple[Symbol, Bits], ...]:
        """All marked letters."""
        return tuple(product(self.symbols, self.markings))

    @property
    def markings(self) -> tuple[Bits, ...]:
        """All ways to mark one letter."""
        return tuple(product((0, 1), repeat=len(self.variables)))

    def having(self, names: Iterable[str]) -> Tracks:
        """Return the tracks with these variables as well."""
        return Tracks(self.symbols, tuple(sorted({*self.variables, *names})))

    def without(self, name: str) -> Tracks:
        """Return the tracks with one variable less."""
        return Tracks(self.symbols, tuple(other for other in self.variables if other != name))

    def onto(self, fewer: Tracks) -> dict[Symbol, Symbol]:
        """Return every marked letter with only the bits that ``fewer`` has."""
        kept = [self.variables.index(name) for name in fewer.variables]
        return {(symbol, bits): (symbol, tuple(bits[i] for i in kept)) for symbol, bits in self.alphabet}


def mso(formula: str | Formula, alphabet: Iterable[Symbol], *, limit: int = 20_000) -> DFA:
    """Return the minimal automaton of the words in which a sentence is true.

    In the empty word there is no position: ``exists x. true`` is false there and ``forall x. false`` is true.

    Args:
        formula: Text, in the syntax of :mod:`transductor.automata.logic.second_order_syntax`, or its value.
        alphabet: The letters of words; a formula names them as ``str`` does.
        limit: The most states that may come up on the way.  They can grow as a tower of exponentials with every
            alternation of quantifiers, so a sentence that needs more is refused.
    """
    symbols = tuple(alphabet)
    sentence = logic_formula(formula) if isinstance(formula, str) else formula
    check_sentence(sentence, symbols, formula if isinstance(formula, str) else None)
    dfa = marked(sentence, Tracks(symbols), limit=limit)
    return DFA(symbols, dfa.transitions, dfa.start, dfa.accepting)


def check_sentence(formula: Node, symbols: tuple[Symbol, ...], text: str | None) -> None:
    """Refuse a formula with a free variable, or with a letter that is not in the alphabet."""
    names = [str(symbol) for symbol in symbols]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"alphabet must have symbols of distinct names; {twice[0]!r} comes twice")
    for name, position in free_variables(formula).items():
        raise FormulaError(f"formula must bind every variable; {name!r} is free", position, text)
    for letter, position in letters_used(formula).items():
        if letter not in names:
            allowed = ", ".join(map(repr, names))
            raise FormulaError(f"formula names the letter {letter!r}; alphabet has {allowed}", position, text)


def marked(formula: Formula, tracks: Tracks, *, limit: int) -> DFA:
    """Return the minimal automaton of the marked words in which a formula is true."""
    if len(tracks.variables) > VARIABLES_LIMIT:
        names = ", ".join(tracks.variables)
        raise ValueError(f"at most {VARIABLES_LIMIT} variables may be free at once, not {names} in {formula}")
    own = Tracks(tracks.symbols, tuple(sorted(free_variables(formula))))
    dfa = minimised(_compiled(formula, own, limit))
    return dfa if own == tracks else inverse_image(dfa, tracks.alphabet, tracks.onto(own))


def marked_once(variable: str, tracks: Tracks) -> DFA:
    """Return the marked words in which a variable stands for exactly one position."""
    return tabulated(tracks, 3, lambda state, _, on: min(state + on[variable], 2), {1})


def forgetting(variable: str, tracks: Tracks, dfa: DFA, *, limit: int, within: object) -> DFA:
    """Return the words that some marking of ``variable`` takes into the language, over the other tracks."""
    fewer = tracks.without(variable)
    unmarked = tracks.onto(fewer)
    table = dfa.transitions.tolist()
    rejecting_sinks = {state for state, row in enumerate(table) if {*row} == {state} and state not in dfa.accepting}
    edges = frozenset(
        (source, unmarked[symbol], target)
        for source, row in enumerate(table)
        for symbol, target in zip(tracks.alphabet, row, strict=True)
        if target not in rejecting_sinks
    )
    try:
        return determinised(NFA(fewer.alphabet, dfa.states, edges, frozenset({dfa.start}), dfa.accepting), limit=limit)
    except ValueError:
        raise too_large(within, limit) from None


def too_large(formula: object, limit: int, argument: str = "limit") -> ValueError:
    """Return the error for a formula whose automaton outgrows the limit, which was given as ``argument``."""
    return ValueError(f"{argument} = {limit} states is too small for the subformula {formula}")


def check_pair(first: DFA, second: DFA, formula: object, limit: int) -> None:
    """Refuse a product of two automata that may outgrow the limit."""
    if first.states * second.states > limit:
        raise too_large(formula, limit)


def tabulated(tracks: Tracks, states: int, step: Step, accepting: set[int]) -> DFA:
    """Return the automaton with ``step(state, symbol, {variable: bit})`` as its next state."""
    table = [
        [int(step(state, symbol, dict(zip(tracks.variables, bits, strict=True)))) for symbol, bits in tracks.alphabet]
        for state in range(states)
    ]
    size = (states, len(tracks.alphabet))
    return DFA(tracks.alphabet, np.array(table, dtype=np.int64).reshape(size), 0, frozenset(accepting))


def _compiled(formula: Formula, tracks: Tracks, limit: int) -> DFA:
    match formula:
        case Not(operand):
            return ~marked(operand, tracks, limit=limit)
        case syntax.Joined(connective, operands):
            return _joined(formula, connective, [marked(operand, tracks, limit=limit) for operand in operands], limit)
        case syntax.Quantified("exists", variable, body):
            return _exists(formula, variable, marked(body, tracks.having([variable]), limit=limit), tracks, limit)
        case syntax.Quantified(_, variable, body):
            fails = ~marked(body, tracks.having([variable]), limit=limit)
            return ~_exists(formula, variable, fails, tracks, limit)
        case _:
            return _atom(formula, tracks)


def _exists(formula: Formula, variable: str, body: DFA, tracks: Tracks, limit: int) -> DFA:
    inner = tracks.having([variable])
    if not is_set_variable(variable):
        body = minimised(body & marked_once(variable, inner))
    return forgetting(variable, inner, body, limit=limit, within=formula)


def _joined(formula: Formula, connective: str, operands: list[DFA], limit: int) -> DFA:
    if connective == "->":
        operands = operands[::-1]

    def pair(first: DFA, second: DFA) -> DFA:
        check_pair(first, second, formula, limit)
        match connective:
            case "&":
                return minimised(first & second)
            case "|":
                return minimised(first | second)
            case "<->":
                return minimised(~(first ^ second))
            case _:
                return minimised(~second | first)

    return reduce(pair, operands)


def _atom(formula: Formula, tracks: Tracks) -> DFA:
    match formula:
        case Truth(value):
            return tabulated(tracks, 1, lambda state, symbol, on: 0, {0} if value else set())
        case syntax.Letter(letter, x):
            return tabulated(tracks, 2, lambda state, symbol, on: state | (on[x] and str(symbol) == letter), {1})
        case syntax.End("first", x):
            return tabulated(tracks, 3, lambda state, symbol, on: state or 2 - on[x], {1})
        case syntax.End(_, x):
            return tabulated(tracks, 2, lambda state, symbol, on: on[x], {1})
        case syntax.Compared(x, relation, y):
            return tabulated(tracks, 4, lambda state, symbol, on: state or on[x] + 2 * on[y], ORDERS[relation])
        case syntax.Successor(later, earlier):
            return tabulated(tracks, 4, lambda state, symbol, on: _succession(state, on[earlier], on[later]), {2})
        case syntax.Member(x, container):
            return tabulated(tracks, 2, lambda state, symbol, on: state | (on[x] & on[container]), {1})
        case syntax.Subset(inner, outer):
            return tabulated(tracks, 2, lambda state, symbol, on: state | (on[inner] & (1 - on[outer])), {0})
        case _:
            raise TypeError(f"formula must be a formula of second_order_syntax; got {formula!r}")


def _succession(state: int, earlier: int, later: int) -> int:
    """Return the next of four states: nothing yet, ``earlier`` just now, ``later`` right after it, too late."""
    if state == 0:
        return 3 if later else earlier
    return (2 if later else 3) if state == 1 else state
