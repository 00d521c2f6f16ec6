"""Finite automata as values: what they are, how they read a word, and how one becomes deterministic.

All other operations are in :mod:`transductor.automata.finite_algebra`; the operators of the classes call them.
"""

from __future__ import annotations

import operator
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from transductor.automata.graphs import explored
from transductor.automata.operators import applied
from transductor.automata.words import Symbol, Word, listed, numbered, spelled


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DFA:
    """A complete deterministic automaton: ``transitions[state, letter]`` is the next state.

    ``a == b`` asks whether two automata over the same letters have the same language; ``~ & | - ^`` are complement,
    intersection, union, difference and symmetric difference of languages.
    """

    alphabet: tuple[Symbol, ...]
    transitions: NDArray[np.int64]
    start: int
    accepting: frozenset[int]
    _numbers: dict[Symbol, int] = field(init=False)

    __hash__ = None  # type: ignore[assignment]  # equal languages would need equal hashes

    def __post_init__(self) -> None:
        numbers = _numbers_of(self.alphabet)
        transitions = _table(self.transitions, len(numbers))
        states = len(transitions)
        _set(self, "alphabet", tuple(numbers))
        _set(self, "transitions", transitions)
        _set(self, "start", _state("start", self.start, states))
        _set(self, "accepting", _state_set("accepting", self.accepting, states))
        _set(self, "_numbers", numbers)

    @classmethod
    def from_partial(
        cls,
        alphabet: Iterable[Symbol],
        edges: Mapping[tuple[Any, Any], Hashable],
        start: Hashable,
        accepting: Iterable[Hashable],
    ) -> DFA:
        """Build from the edges that exist, between states of any name; all others lead to a sink that rejects.

        States are numbered from ``start`` in the order in which ``edges`` names them; the sink comes last, and only if
        an edge is missing.
        """
        letters = _numbers_of(alphabet)
        states: dict[Hashable, int] = {start: 0}
        for (source, symbol), target in edges.items():
            _check_letter(symbol, source, letters)
            states.setdefault(source, len(states))
            states.setdefault(target, len(states))
        accepted = list(accepting)
        for name in accepted:
            if name not in states:
                raise ValueError(f"accepting has the state {name!r}, which is neither start nor in edges")
        sink = len(states)
        table = np.full((sink + 1, len(letters)), sink, dtype=np.int64)
        for (source, symbol), target in edges.items():
            table[states[source], letters[symbol]] = states[target]
        needed = sink + 1 if (table[:sink] == sink).any() else sink
        return cls(tuple(letters), table[:needed], 0, frozenset(states[name] for name in accepted))

    @property
    def states(self) -> int:
        """How many states there are."""
        return len(self.transitions)

    def run(self, word: Word) -> int:
        """Return the state reached from the start by reading ``word``."""
        state, step = self.start, self.transitions.item
        for letter in spelled(word, self._numbers):
            state = step(state, letter)
        return state

    def __call__(self, word: Word) -> bool:
        """Whether ``word`` is accepted."""
        return self.run(word) in self.accepting

    def words(self, max_length: int) -> Iterator[tuple[Symbol, ...]]:
        """Yield the accepted words of at most ``max_length`` letters, shortest first, then in alphabetical order."""
        if _integer("max_length", max_length) < 0:
            raise ValueError(f"max_length must be at least 0; got {max_length}")
        hopeful = [np.isin(np.arange(self.states), list(self.accepting))]  # [n][state]: n more letters may accept
        for length in range(max_length + 1):
            if hopeful[length][self.start]:
                yield from self._words_of_length(length, hopeful)
            hopeful.append(np.any(hopeful[length][self.transitions], axis=1))

    def _words_of_length(self, length: int, hopeful: list[NDArray[np.bool_]]) -> Iterator[tuple[Symbol, ...]]:
        pending: list[tuple[int, tuple[Symbol, ...]]] = [(self.start, ())]
        while pending:
            state, prefix = pending.pop()
            if len(prefix) == length:
                yield prefix
                continue
            successors = self.transitions[state]
            worthwhile = np.flatnonzero(hopeful[length - len(prefix) - 1][successors])
            for letter in worthwhile[::-1].tolist():
                pending.append((int(successors[letter]), (*prefix, self.alphabet[letter])))

    def __repr__(self) -> str:
        return f"DFA({self.states} states, {len(self.accepting)} accepting, alphabet {listed(self.alphabet)})"

    def __eq__(self, other: object) -> bool:
        return bool(applied(DFA, "==", self, other)) if isinstance(other, DFA) else NotImplemented

    def __invert__(self) -> DFA:
        return applied(DFA, "~", self)

    def __and__(self, other: DFA) -> DFA:
        return applied(DFA, "&", self, other)

    def __or__(self, other: DFA) -> DFA:
        return applied(DFA, "|", self, other)

    def __sub__(self, other: DFA) -> DFA:
        return applied(DFA, "-", self, other)

    def __xor__(self, other: DFA) -> DFA:
        return applied(DFA, "^", self, other)

    def _repr_svg_(self) -> str:
        """Return the picture that a notebook shows."""
        return str(applied(DFA, "svg", self))


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class NFA:
    """A nondeterministic automaton: edges ``(source, letter, target)``, where the letter ``None`` is ε, read for free.

    ``a == b`` asks whether two automata over the same letters have the same language.
    """

    alphabet: tuple[Symbol, ...]
    states: int
    edges: frozenset[tuple[int, Symbol | None, int]]
    starts: frozenset[int]
    accepting: frozenset[int]
    _numbers: dict[Symbol, int] = field(init=False)
    _targets: dict[tuple[int, Symbol | None], list[int]] = field(init=False)

    __hash__ = None  # type: ignore[assignment]  # equal languages would need equal hashes

    def __post_init__(self) -> None:
        numbers = _numbers_of(self.alphabet)
        states = _integer("states", self.states)
        if states < 0:
            raise ValueError(f"states must be at least 0; got {states}")
        edges = frozenset(self.edges)
        targets: dict[tuple[int, Symbol | None], list[int]] = {}
        for source, symbol, target in edges:
            if symbol is not None:
                _check_letter(symbol, source, numbers)
            key = (_state("edges", source, states), symbol)
            targets.setdefault(key, []).append(_state("edges", target, states))
        _set(self, "alphabet", tuple(numbers))
        _set(self, "states", states)
        _set(self, "edges", edges)
        _set(self, "starts", _state_set("starts", self.starts, states))
        _set(self, "accepting", _state_set("accepting", self.accepting, states))
        _set(self, "_numbers", numbers)
        _set(self, "_targets", targets)

    def closure(self, states: Iterable[int]) -> frozenset[int]:
        """Return ``states`` and all that follow from them for free."""
        reached = set(states)
        pending = list(reached)
        while pending:
            for target in self._targets.get((pending.pop(), None), ()):
                if target not in reached:
                    reached.add(target)
                    pending.append(target)
        return frozenset(reached)

    def step(self, states: Iterable[int], symbol: Symbol) -> frozenset[int]:
        """Return the states reached from ``states`` by one letter and what then follows for free."""
        return self.closure(target for state in states for target in self._targets.get((state, symbol), ()))

    def run(self, word: Word) -> frozenset[int]:
        """Return the states that reading ``word`` from the starts may lead to."""
        states = self.closure(self.starts)
        for letter in spelled(word, self._numbers):
            states = self.step(states, self.alphabet[letter])
        return states

    def __call__(self, word: Word) -> bool:
        """Whether ``word`` is accepted."""
        return not self.accepting.isdisjoint(self.run(word))

    def words(self, max_length: int) -> Iterator[tuple[Symbol, ...]]:
        """Yield the accepted words of at most ``max_length`` letters, shortest first, then in alphabetical order."""
        return determinised(self).words(max_length)

    def __repr__(self) -> str:
        return f"NFA({self.states} states, {len(self.edges)} edges, alphabet {listed(self.alphabet)})"

    def __eq__(self, other: object) -> bool:
        return determinised(self) == determinised(other) if isinstance(other, NFA) else NotImplemented

    def _repr_svg_(self) -> str:
        """Return the picture that a notebook shows."""
        return str(applied(NFA, "svg", self))


def determinised(nfa: NFA, *, limit: int = 200_000) -> DFA:
    """Return the automaton of the sets of states that ``nfa`` may be in; refused past ``limit`` of these.

    States are numbered breadth-first in the alphabet's order.
    """
    subsets, rows = explored(
        [nfa.closure(nfa.starts)],
        lambda subset: (nfa.step(subset, symbol) for symbol in nfa.alphabet),
        limit=limit,
        refusal=f"nfa has more than limit = {limit} sets of states that words lead to",
    )
    table = np.array(rows, dtype=np.int64).reshape(len(rows), len(nfa.alphabet))
    accepting = frozenset(n for n, subset in enumerate(subsets) if not nfa.accepting.isdisjoint(subset))
    return DFA(nfa.alphabet, table, 0, accepting)


def weights01(dfa: DFA) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the weighted automaton that gives 1 to accepted words and 0 to others: ``initial, matrices, final``.

    States are columns: ``matrices[letter][to, from]``, so a word weighs ``final · M_n ⋯ M_1 · initial``.
    """
    count = dfa.states
    initial, final = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    initial[dfa.start] = 1
    final[list(dfa.accepting)] = 1
    matrices = np.zeros((len(dfa.alphabet), count, count), dtype=np.int64)
    for letter in range(len(dfa.alphabet)):
        matrices[letter, dfa.transitions[:, letter], np.arange(count)] = 1
    return initial, matrices, final


def checked_table(transitions: Any) -> NDArray[np.int64]:
    """Return a copy of a table ``(states, letters)`` of next states; refuse what is none."""
    table = np.asarray(transitions)
    if table.size and table.dtype.kind not in "iu":
        raise TypeError(f"transitions must be integers; got {table.dtype}")
    outside = np.argwhere((table < 0) | (table >= len(table)))
    if len(outside):
        state, letter = outside[0].tolist()
        raise ValueError(
            f"transitions must lie in [0, {len(table)}); got {table[state, letter]} at state {state}, letter {letter}"
        )
    return table.astype(np.int64)


def _set(value: DFA | NFA, name: str, content: object) -> None:
    object.__setattr__(value, name, content)


def _numbers_of(alphabet: Iterable[Symbol]) -> dict[Symbol, int]:
    numbers = numbered(alphabet)
    if None in numbers:
        raise ValueError(f"alphabet must not contain None, which stands for ε; got it at position {numbers[None]}")
    return numbers


def _check_letter(symbol: Symbol, source: object, letters: Mapping[Symbol, int]) -> None:
    if symbol not in letters:
        raise ValueError(f"edges has the unknown letter {symbol!r} at state {source!r}; alphabet {listed(letters)}")


def _table(transitions: Any, letters: int) -> NDArray[np.int64]:
    shape = np.shape(transitions)
    if len(shape) != 2 or shape[1] != letters or not shape[0]:
        raise ValueError(f"transitions must have the shape (states ≥ 1, {letters} letters); got {shape}")
    table = checked_table(transitions)  # a copy: the caller may still write to the original
    table.setflags(write=False)
    return table


def _integer(argument: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{argument} must be an integer; got {value!r}") from None


def _state(argument: str, value: Any, states: int) -> int:
    number = _integer(argument, value)
    if not 0 <= number < states:
        raise ValueError(f"{argument} must lie in [0, {states}); got {number}")
    return number


def _state_set(argument: str, values: Iterable[Any], states: int) -> frozenset[int]:
    return frozenset(_state(argument, value, states) for value in values)
