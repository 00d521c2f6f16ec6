"""The algebra of regular languages: operations on automata, and the questions that can be decided about them.

Every result has only reachable states, numbered breadth-first in the alphabet's order; only the result of
:func:`minimised` is minimal.  Two operands must have the same letters; the order of the first is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transductor.automata.finite_automata import DFA, NFA, determinised
from transductor.automata.graphs import Integers, breadth_first
from transductor.automata.operators import operator
from transductor.automata.words import Symbol, numbered

Truths = NDArray[np.bool_]
Edges = set[tuple[int, Symbol | None, int]]


def minimised(dfa: DFA) -> DFA:
    """Return the smallest automaton of the same language; equal languages over one alphabet give identical tables."""
    dfa = _reachable(dfa)
    class_of_state = _nerode_classes(dfa)
    representatives = np.unique(class_of_state, return_index=True)[1]
    table = class_of_state[dfa.transitions[representatives]]
    accepting = frozenset(class_of_state[sorted(dfa.accepting)].tolist())
    return _reachable(DFA(dfa.alphabet, table, int(class_of_state[dfa.start]), accepting))


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
    """Return a shortest word that exactly one of the two accepts; ``None`` if the languages are equal."""
    return shortest_word(symmetric_difference(first, second))


@operator(DFA, "==")
def _have_equal_languages(first: DFA, second: DFA) -> bool:
    return set(first.alphabet) == set(second.alphabet) and separating_word(first, second) is None


def _product(first: DFA, second: DFA, accepts: Callable[[Truths, Truths], Truths]) -> DFA:
    second = _aligned(second, first)
    width = second.states

    def successors(pairs: Integers) -> Integers:
        return first.transitions[pairs // width] * width + second.transitions[pairs % width]

    pairs, table = breadth_first(first.start * width + second.start, successors, first.states * width)
    accepted = accepts(_accepting_mask(first)[pairs // width], _accepting_mask(second)[pairs % width])
    return DFA(first.alphabet, table, 0, frozenset(np.flatnonzero(accepted).tolist()))


def _reachable(dfa: DFA) -> DFA:
    states, table = breadth_first(dfa.start, lambda frontier: dfa.transitions[frontier], dfa.states)
    return DFA(dfa.alphabet, table, 0, frozenset(np.flatnonzero(_accepting_mask(dfa)[states]).tolist()))


def _nerode_classes(dfa: DFA) -> Integers:
    """Return for every state the number of its class of states with the same future, by Hopcroft's refinement."""
    sources_of: list[list[list[int]]] = [[[] for _ in range(dfa.states)] for _ in dfa.alphabet]
    for state, row in enumerate(dfa.transitions.tolist()):
        for letter, target in enumerate(row):
            sources_of[letter][target].append(state)
    rejecting = set(range(dfa.states)) - dfa.accepting
    blocks = [block for block in (set(dfa.accepting), rejecting) if block]
    block_of = [0] * dfa.states
    for state in blocks[-1]:
        block_of[state] = len(blocks) - 1
    pending = {(block, letter) for block in range(len(blocks)) for letter in range(len(dfa.alphabet))}
    while pending:
        splitter, letter = pending.pop()
        sources = sources_of[letter]
        hit: dict[int, list[int]] = {}
        for target in blocks[splitter]:
            for state in sources[target]:
                hit.setdefault(block_of[state], []).append(state)
        for block, states in hit.items():
            if len(states) == len(blocks[block]):
                continue
            smaller = set(states)
            if 2 * len(smaller) > len(blocks[block]):
                smaller = blocks[block] - smaller
            blocks[block] -= smaller
            for state in smaller:
                block_of[state] = len(blocks)
            # Only the smaller half has to be tried again: what it does not split, the larger half does not either.
            pending |= {(len(blocks), other) for other in range(len(dfa.alphabet))}
            blocks.append(smaller)
    return np.array(block_of, dtype=np.int64)


def _accepting_mask(dfa: DFA) -> Truths:
    mask = np.zeros(dfa.states, dtype=np.bool_)
    mask[list(dfa.accepting)] = True
    return mask


def _useful_edges(dfa: DFA, offset: int = 0) -> Edges:
    """Return the edges from which acceptance is possible, with states counted from ``offset``."""
    useful = _accepting_mask(dfa)
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
