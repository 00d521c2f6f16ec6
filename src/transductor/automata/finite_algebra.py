"""The algebra of regular languages: operations on automata, and the questions that can be decided about them.

Every result has only reachable states, numbered breadth-first in the alphabet's order; only the result of
:func:`minimised` is minimal.  Two operands must have the same letters; the order of the first is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from transductor.automata.finite_automata import DFA, NFA, determinised
from transductor.automata.graphs import breadth_first, first_seen, word_along
from transductor.automata.operators import operator
from transductor.automata.table_loops import reached_pairs, refined_classes, separation
from transductor.automata.words import Symbol, numbered

Truths = NDArray[np.bool_]
Edges = set[tuple[int, Symbol | None, int]]

MOST_PAIRS: Final = 20_000_000
"""Pairs of states that words lead to, past which a product is refused: a table of them is near a gigabyte."""


def minimised(dfa: DFA) -> DFA:
    """Return the smallest automaton of the same language; equal languages over one alphabet give identical tables."""
    states, table = breadth_first(dfa.transitions, dfa.start)
    accepts = dfa.accepting_mask()[states]
    classes, labels = accepts.astype(np.int64), 2
    if accepts.all() or not accepts.any():
        classes, labels = np.zeros_like(classes), 1
    # States are breadth-first, so classes numbered by their first states are breadth-first too.
    classes, first = first_seen(refined_classes(table.size, table, classes, labels))
    return DFA(dfa.alphabet, classes[table[first]], 0, np.flatnonzero(accepts[first]))  # type: ignore[arg-type]


@operator(DFA, "~")
def complemented(dfa: DFA) -> DFA:
    """Return the automaton of all words that ``dfa`` does not accept."""
    dfa = _reachable(dfa)
    return DFA(dfa.alphabet, dfa.transitions, dfa.start, frozenset(range(dfa.states)) - dfa.accepting)


@operator(DFA, "&")
def intersected(first: DFA, second: DFA) -> DFA:
    """Return the automaton of the words that both accept."""
    return _product(first, second, np.logical_and)


@operator(DFA, "|")
def united(first: DFA, second: DFA) -> DFA:
    """Return the automaton of the words that one or both accept."""
    return _product(first, second, np.logical_or)


@operator(DFA, "-")
def subtracted(first: DFA, second: DFA) -> DFA:
    """Return the automaton of the words that ``first`` accepts and ``second`` does not."""
    return _product(first, second, np.greater)


@operator(DFA, "^")
def symmetric_difference(first: DFA, second: DFA) -> DFA:
    """Return the automaton of the words that exactly one of the two accepts."""
    return _product(first, second, np.not_equal)


def concatenated(first: DFA, second: DFA) -> DFA:
    """Return the automaton of the words of ``first`` followed by words of ``second``."""
    second = _aligned(second, first)
    offset = first.states
    edges = _useful_edges(first) | _useful_edges(second, offset)
    edges |= {(state, None, offset + second.start) for state in first.accepting}
    return _determinised(
        first.alphabet, offset + second.states, edges, {first.start}, {offset + state for state in second.accepting}
    )


def starred(dfa: DFA) -> DFA:
    """Return the automaton of any number of words of ``dfa``, one after the other."""
    hub = dfa.states
    edges = _useful_edges(dfa) | {(hub, None, dfa.start)} | {(state, None, hub) for state in dfa.accepting}
    return _determinised(dfa.alphabet, hub + 1, edges, {hub}, {hub})


def reversed_language(dfa: DFA) -> DFA:
    """Return the automaton of the words of ``dfa`` read backwards."""
    edges: Edges = {(target, symbol, source) for source, symbol, target in _useful_edges(dfa)}
    return _determinised(dfa.alphabet, dfa.states, edges, dfa.accepting, {dfa.start})


def projected(dfa: DFA, mapping: Mapping[Any, Symbol]) -> DFA:
    """Return the image of the language when every letter is replaced by ``mapping[letter]``.

    The alphabet is that of the images, in the order in which the letters of ``dfa`` first give them.
    """
    images = {symbol: _looked_up(mapping, symbol) for symbol in dfa.alphabet}
    edges: Edges = {(source, images[symbol], target) for source, symbol, target in _useful_edges(dfa)}
    return _determinised(dict.fromkeys(images.values()), dfa.states, edges, {dfa.start}, dfa.accepting)


def inverse_image(dfa: DFA, alphabet: Iterable[Symbol], mapping: Mapping[Any, Symbol]) -> DFA:
    """Return the automaton of the words over ``alphabet`` whose images, letter by letter, ``dfa`` accepts."""
    symbols = tuple(alphabet)
    numbers = numbered(dfa.alphabet)
    columns = []
    for symbol in symbols:
        image = _looked_up(mapping, symbol)
        if image not in numbers:
            raise ValueError(f"mapping must give letters of dfa.alphabet {dfa.alphabet}; got {symbol!r} → {image!r}")
        columns.append(numbers[image])
    return _reachable(DFA(symbols, dfa.transitions[:, columns], dfa.start, dfa.accepting))


def is_empty(dfa: DFA) -> bool:
    """Whether no word is accepted."""
    return not _reachable(dfa).accepting


def is_universal(dfa: DFA) -> bool:
    """Whether every word is accepted."""
    return is_empty(complemented(dfa))


def shortest_word(dfa: DFA) -> tuple[Symbol, ...] | None:
    """Return the first accepted word, by length and then in the alphabet's order; ``None`` if the language is empty."""
    dfa = _reachable(dfa)
    if not dfa.accepting:
        return None
    state, letters = min(dfa.accepting), len(dfa.alphabet)
    # Numbers are breadth-first: the first edge into a state is the one by which it was discovered.
    discovered, edges = np.unique(dfa.transitions, return_index=True)
    edge_into = dict(zip(discovered.tolist(), edges.tolist(), strict=True))
    word = []
    while state != dfa.start:
        state, letter = divmod(edge_into[state], letters)
        word.append(dfa.alphabet[letter])
    return tuple(reversed(word))


def separating_word(first: DFA, second: DFA) -> tuple[Symbol, ...] | None:
    """Return a shortest word that exactly one of the two accepts; ``None`` if the languages are equal.

    Time and memory are nearly linear in the number of states of both together (union-find).
    """
    second = _aligned(second, first)
    sides = [(dfa.transitions, dfa.accepting_mask().astype(np.int64), dfa.start) for dfa in (first, second)]
    differ, word = separation(first.transitions.size + second.transitions.size, *sides[0], *sides[1], True)
    return tuple(first.alphabet[letter] for letter in word) if differ else None


def escaping_word(first: DFA, second: DFA) -> tuple[Symbol, ...] | None:
    """Return a shortest word that ``first`` accepts and ``second`` does not; ``None`` if there is none.

    States of both with the same future are merged first.  Pairs are then followed only where the two states differ,
    the first can still accept and the second can still reject: equal or nearly equal automata take little more than
    their own size.
    """
    second = _aligned(second, first)
    offset, letters = first.states, len(first.alphabet)
    table = np.concatenate([first.transitions, second.transitions + offset])
    accepts = np.concatenate([first.accepting_mask(), second.accepting_mask()])
    classes, labels = accepts.astype(np.int64), 1 if accepts.all() or not accepts.any() else 2
    classes, members = first_seen(refined_classes(table.size, table, classes * (labels - 1), labels))
    small, accepts = classes[table[members]], accepts[members]
    starts = int(classes[first.start]), int(classes[offset + second.start])
    if accepts[starts[0]] and not accepts[starts[1]]:
        return ()
    settled = (small == np.arange(len(small))[:, None]).all(axis=1)  # minimal: no word or every word is accepted
    outputs = np.where(accepts, 1, np.where(settled, -2, -1))
    other_outputs = np.where(~accepts, 0, np.where(settled, -2, -1))
    _, _, edge_into, conflict = reached_pairs(
        table.size, small, outputs, starts[0], small, other_outputs, starts[1], MOST_PAIRS, True
    )
    _refuse_too_many(conflict)
    return (
        None if conflict == -1 else tuple(first.alphabet[letter] for letter in word_along(edge_into, conflict, letters))
    )


@operator(DFA, "<=")
def is_included(first: DFA, second: DFA) -> bool:
    """Whether ``second`` accepts every word that ``first`` accepts."""
    return escaping_word(first, second) is None


@operator(DFA, "==")
def _have_equal_languages(first: DFA, second: DFA) -> bool:
    return set(first.alphabet) == set(second.alphabet) and separating_word(first, second) is None


def _product(first: DFA, second: DFA, accepts: Callable[[Truths, Truths], Truths]) -> DFA:
    second = _aligned(second, first)
    sides = [(dfa.transitions, np.full(dfa.states, -1, dtype=np.int64), dfa.start) for dfa in (first, second)]
    steps = first.transitions.size * second.states
    pairs, table, _, conflict = reached_pairs(steps, *sides[0], *sides[1], MOST_PAIRS, False)
    _refuse_too_many(conflict)
    ones, others = np.divmod(pairs, second.states)
    accepted = accepts(first.accepting_mask()[ones], second.accepting_mask()[others])
    return DFA(first.alphabet, table, 0, np.flatnonzero(accepted))  # type: ignore[arg-type]


def _refuse_too_many(conflict: int) -> None:
    if conflict == -2:
        raise ValueError(
            f"words lead to more than {MOST_PAIRS:,} pairs of states of first and second: minimise both, or make one "
            "of them smaller"
        )


def _reachable(dfa: DFA) -> DFA:
    states, table = breadth_first(dfa.transitions, dfa.start)
    return DFA(dfa.alphabet, table, 0, np.flatnonzero(dfa.accepting_mask()[states]))  # type: ignore[arg-type]


def _useful_edges(dfa: DFA, offset: int = 0) -> Edges:
    """Return the edges from which acceptance is possible, with states counted from ``offset``."""
    useful = dfa.accepting_mask()
    while True:
        wider = useful | np.any(useful[dfa.transitions], axis=1)
        if np.array_equal(wider, useful):
            break
        useful = wider
    sources, letters = np.nonzero(useful[dfa.transitions])
    targets = dfa.transitions[sources, letters]
    return {
        (offset + source, dfa.alphabet[letter], offset + target)
        for source, letter, target in zip(sources.tolist(), letters.tolist(), targets.tolist(), strict=True)
    }


def _determinised(
    alphabet: Iterable[Symbol], states: int, edges: Edges, starts: Iterable[int], accepting: Iterable[int]
) -> DFA:
    return determinised(NFA(tuple(alphabet), states, frozenset(edges), frozenset(starts), frozenset(accepting)))


def _aligned(dfa: DFA, model: DFA) -> DFA:
    """Return ``dfa`` with its letters in the order of ``model``."""
    if dfa.alphabet == model.alphabet:
        return dfa
    if set(dfa.alphabet) != set(model.alphabet):
        raise ValueError(f"both alphabets must have the same letters; got {model.alphabet} and {dfa.alphabet}")
    columns = [dfa.alphabet.index(symbol) for symbol in model.alphabet]
    return DFA(model.alphabet, dfa.transitions[:, columns], dfa.start, dfa.accepting)


def _looked_up(mapping: Mapping[Any, Symbol], symbol: Symbol) -> Symbol:
    if symbol not in mapping:
        raise ValueError(f"mapping must have an image for every letter; {symbol!r} has none")
    return mapping[symbol]
