"""Finite machines to regular expressions: states are eliminated one by one, those first that cost least.

Eliminating a state joins every arc into it with every arc out of it.  An expression can need exponentially many letters
whatever the order, so the length is bounded, and a machine that exceeds the bound is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import permutations
from typing import Final, TypeAlias

from transductor.automata.expression_tree import Expression, Expressions, character_class, written
from transductor.automata.finite_automata import DFA
from transductor.automata.language import Machine, language

LETTERS: Final = "(?#letters: "  # begins the comment that lists letters longer than a character
_FEW: Final = 4  # states of which every order is tried
_DEEPEST: Final = 60  # nested brackets: readers of expressions go down by recursion
_SYNTAX: Final = frozenset(r"()[]{}|*+?.^$\"' ")

Arcs: TypeAlias = dict[int, dict[int, Expression]]  # source, target


def as_regex(machine: Machine, *, limit: int = 20_000) -> str:
    """Return a regular expression of the language of a machine, in Python's syntax.

    ``regex(as_regex(machine))`` is the machine's language again, over the same letters; ``re.fullmatch`` understands it
    too.  Letters are written as ``str`` does, each quoted where it must be.  A letter that no word uses stands in a
    branch without words, ``[ab](?!)``.  Letters longer than a character stand between blanks, behind a comment that
    lists them, ``(?#letters: open close)(open close)*``: :func:`~transductor.automata.sources.automaton_from` reads
    such text, ``regex`` and ``re`` do not.

    Args:
        machine: A DFA, an NFA, an automaton with truth values, or an exact series all of whose values are 0 and 1.
        limit: The most letters and operators of the expression.

    Raises:
        ValueError: If the expression would be longer, nested too deeply for a reader, or if a letter cannot be written.
    """
    if not isinstance(limit, int) or limit < 1:
        raise ValueError(f"limit must be a positive integer; got {limit!r}")
    dfa = language(machine)
    names = [str(letter) for letter in dfa.alphabet]
    if len(set(names)) < len(names):
        raise ValueError(f"machine must have letters of distinct spelling; got {', '.join(map(repr, names))}")
    spelling, between = _spelling(names)
    expressions = Expressions()
    best = min(_candidates(dfa, expressions, limit), key=lambda each: each.size, default=None)
    if best is None:
        raise ValueError(
            f"machine of {dfa.states} states needs an expression of more than limit = {limit} letters and operators "
            "in every order tried; raise limit, or write the automaton in a format for automata"
        )
    if best.depth > _DEEPEST:
        raise ValueError(
            f"machine of {dfa.states} states needs an expression of {best.depth} nested brackets, and readers of "
            f"expressions take {_DEEPEST}; write the automaton in a format for automata"
        )
    text = written(best, spelling, between)
    comment = f"{LETTERS}{' '.join(names)})" if between else ""
    unused = frozenset(range(len(names))) - best.letters
    dead = between.join((spelling(unused), "(?!)")) if unused else ""
    branches = [text] if not dead or best is not expressions.none else []
    return comment + "|".join([*branches, *[dead] * bool(dead)])


def _spelling(names: Sequence[str]) -> tuple[Callable[[frozenset[int]], str], str]:
    """Return how sets of letters are written, and what stands between letters."""
    if all(len(name) == 1 for name in names):
        return lambda letters: character_class([names[letter] for letter in sorted(letters)]), ""
    for name in names:
        if not name or not _SYNTAX.isdisjoint(name) or not name.isprintable():
            raise ValueError(
                f"machine must have letters of one character each, or names without blanks, quotes and the signs of "
                f"expressions; got {name!r}"
            )

    def text(letters: frozenset[int]) -> str:
        ordered = [names[letter] for letter in sorted(letters)]
        return ordered[0] if len(ordered) == 1 else f"[{' '.join(ordered)}]"

    return text, " "


def _candidates(dfa: DFA, expressions: Expressions, limit: int) -> Iterable[Expression]:
    """Yield the expressions of several orders of elimination, those within the limit."""
    arcs, states = _arcs(dfa, expressions)
    orders: list[Callable[[Arcs, list[int]], int]] = [_lightest, _fewest_pairs]
    if len(states) <= _FEW:
        orders += [partial(_given, order) for order in permutations(states)]
    for chosen in orders:
        result = _eliminated({source: dict(to) for source, to in arcs.items()}, states, chosen, expressions, limit)
        if result is not None:
            yield result


_START: Final = -1
_END: Final = -2


def _arcs(dfa: DFA, expressions: Expressions) -> tuple[Arcs, list[int]]:
    """Return the arcs between states from which words are accepted, with a start and an end of their own."""
    reads: dict[tuple[int, int], set[int]] = {}
    for source, row in enumerate(dfa.transitions.tolist()):
        for letter, target in enumerate(row):
            reads.setdefault((source, target), set()).add(letter)
    useful, before = set(dfa.accepting), -1
    while len(useful) > before:
        before = len(useful)
        useful |= {source for source, target in reads if target in useful}
    states = sorted(useful)
    arcs: Arcs = {source: {} for source in (_START, *states)}
    for (source, target), letters in reads.items():
        if source in useful and target in useful:
            arcs[source][target] = expressions.one_of(letters)
    if dfa.start in useful:
        arcs[_START][dfa.start] = expressions.empty
    for state in dfa.accepting:
        arcs[state][_END] = expressions.empty
    return arcs, states


def _eliminated(
    arcs: Arcs,
    states: Sequence[int],
    chosen: Callable[[Arcs, list[int]], int],
    expressions: Expressions,
    limit: int,
) -> Expression | None:
    """Return what leads from the start to the end once no state is left; None where it grows past the limit."""
    left = list(states)
    while left:
        state = chosen(arcs, left)
        left.remove(state)
        out = arcs.pop(state)
        again = expressions.star(out.pop(state, expressions.none))
        for targets in arcs.values():
            into = targets.pop(state, None)
            if into is None:
                continue
            for target, after in out.items():
                through = expressions.sequence(into, again, after)
                known = targets.get(target)
                joined = through if known is None else expressions.choice(known, through)
                if joined.size > limit:
                    return None
                targets[target] = joined
    return arcs[_START].get(_END, expressions.none)


def _lightest(arcs: Arcs, left: list[int]) -> int:
    """Return the state whose elimination adds the fewest letters: those of its arcs, times how often each is copied."""

    def weight(state: int) -> tuple[int, int]:
        out = {target: each.size for target, each in arcs[state].items() if target != state}
        into = [to[state].size for source, to in arcs.items() if source != state and state in to]
        loop = arcs[state][state].size if state in arcs[state] else 0
        copies = sum(into) * (len(out) - 1) + sum(out.values()) * (len(into) - 1) + loop * (len(into) * len(out) - 1)
        return copies, state

    return min(left, key=weight)


def _given(order: Sequence[int], arcs: Arcs, left: list[int]) -> int:
    """Return the first state of an order that is left."""
    return next(state for state in order if state in left)


def _fewest_pairs(arcs: Arcs, left: list[int]) -> int:
    """Return the state with the fewest pairs of an arc in and an arc out."""

    def pairs(state: int) -> tuple[int, int]:
        into = sum(1 for source, to in arcs.items() if source != state and state in to)
        return into * sum(1 for target in arcs[state] if target != state), state

    return min(left, key=pairs)
