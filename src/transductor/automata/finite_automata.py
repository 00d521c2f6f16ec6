"""Finite automata as values: what they are, and how they read a word.

A word is any sequence of symbols; a ``str`` is a sequence of characters.  What is computed from whole automata lives in
:mod:`transductor.automata.finite_algebra`; the operators below are its short names.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

Symbol: TypeAlias = Hashable
Word: TypeAlias = Sequence[Symbol]


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DFA:
    """A complete deterministic automaton: ``transitions[state, letter]`` is the next state.

    ``a == b`` asks whether two automata over the same set of symbols have the same language; ``~ & | - ^`` are
    complement, intersection, union, difference and symmetric difference of languages.
    """

    alphabet: tuple[Symbol, ...]
    transitions: NDArray[np.int64]
    start: int
    accepting: frozenset[int]
    _letters: dict[Symbol, int] = field(init=False)

    __hash__ = None  # type: ignore[assignment]  # equal languages would need equal hashes

    def __post_init__(self) -> None:
        letters = _letter_of_symbol(self.alphabet)
        transitions = _table(self.transitions, len(letters))
        states = len(transitions)
        _set(self, "alphabet", tuple(letters))
        _set(self, "transitions", transitions)
        _set(self, "start", _state("start", self.start, states))
        _set(self, "accepting", _state_set("accepting", self.accepting, states))
        _set(self, "_letters", letters)

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
        letters = _letter_of_symbol(alphabet)
        numbers: dict[Hashable, int] = {start: 0}
        for (source, symbol), target in edges.items():
            if symbol not in letters:
                raise ValueError(
                    f"edges has the unknown symbol {symbol!r} at state {source!r}; {_alphabet_shown(letters)}"
                )
            numbers.setdefault(source, len(numbers))
            numbers.setdefault(target, len(numbers))
        accepted = list(accepting)
        for name in accepted:
            if name not in numbers:
                raise ValueError(f"accepting has the state {name!r}, which is neither start nor in edges")
        sink = len(numbers)
        table = np.full((sink + 1, len(letters)), sink, dtype=np.int64)
        for (source, symbol), target in edges.items():
            table[numbers[source], letters[symbol]] = numbers[target]
        needed = sink + 1 if (table[:sink] == sink).any() else sink
        return cls(tuple(letters), table[:needed], 0, frozenset(numbers[name] for name in accepted))

    @property
    def states(self) -> int:
        """How many states there are."""
        return len(self.transitions)

    def run(self, word: Word) -> int:
        """The state reached from the start by reading ``word``."""
        state, step = self.start, self.transitions.item
        for letter in _encoded(word, self._letters):
            state = step(state, letter)
        return state

    def __call__(self, word: Word) -> bool:
        """Whether ``word`` is accepted."""
        return self.run(word) in self.accepting

    def words(self, max_length: int) -> Iterator[tuple[Symbol, ...]]:
        """The accepted words of at most ``max_length`` symbols, short ones first, then in the alphabet's order."""
        _check_length(max_length)
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

    def _repr_svg_(self) -> str:
        """The picture a notebook shows."""
        from transductor.automata.drawing import svg

        return svg(self)

    def __repr__(self) -> str:
        return f"DFA({self.states} states, {len(self.accepting)} accepting, {_alphabet_shown(self.alphabet)})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DFA):
            return NotImplemented
        from transductor.automata.finite_algebra import separating_word

        return set(self.alphabet) == set(other.alphabet) and separating_word(self, other) is None

    def __invert__(self) -> DFA:
        from transductor.automata.finite_algebra import complemented

        return complemented(self)

    def __and__(self, other: DFA) -> DFA:
        from transductor.automata.finite_algebra import intersected

        return intersected(self, other)

    def __or__(self, other: DFA) -> DFA:
        from transductor.automata.finite_algebra import united

        return united(self, other)

    def __sub__(self, other: DFA) -> DFA:
        from transductor.automata.finite_algebra import subtracted

        return subtracted(self, other)

    def __xor__(self, other: DFA) -> DFA:
        from transductor.automata.finite_algebra import symmetric_difference

        return symmetric_difference(self, other)


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class NFA:
    """A nondeterministic automaton: edges ``(source, symbol, target)``, where the symbol ``None`` is ε, read for free.

    ``a == b`` asks whether two automata over the same set of symbols have the same language.
    """

    alphabet: tuple[Symbol, ...]
    states: int
    edges: frozenset[tuple[int, Symbol | None, int]]
    starts: frozenset[int]
    accepting: frozenset[int]
    _letters: dict[Symbol, int] = field(init=False)
    _targets: dict[tuple[int, Symbol | None], list[int]] = field(init=False)

    __hash__ = None  # type: ignore[assignment]  # equal languages would need equal hashes

    def __post_init__(self) -> None:
        letters = _letter_of_symbol(self.alphabet)
        states = _integer("states", self.states)
        if states < 0:
            raise ValueError(f"states must be at least 0; got {states}")
        edges = frozenset(self.edges)
        targets: dict[tuple[int, Symbol | None], list[int]] = {}
        for source, symbol, target in edges:
            if symbol is not None and symbol not in letters:
                raise ValueError(
                    f"edges has the unknown symbol {symbol!r} at state {source!r}; {_alphabet_shown(letters)}"
                )
            key = (_state("edges", source, states), symbol)
            targets.setdefault(key, []).append(_state("edges", target, states))
        _set(self, "alphabet", tuple(letters))
        _set(self, "states", states)
        _set(self, "edges", edges)
        _set(self, "starts", _state_set("starts", self.starts, states))
        _set(self, "accepting", _state_set("accepting", self.accepting, states))
        _set(self, "_letters", letters)
        _set(self, "_targets", targets)

    def closure(self, states: Iterable[int]) -> frozenset[int]:
        """``states`` and all that follow from them for free."""
        reached = set(states)
        pending = list(reached)
        while pending:
            for target in self._targets.get((pending.pop(), None), ()):
                if target not in reached:
                    reached.add(target)
                    pending.append(target)
        return frozenset(reached)

    def step(self, states: Iterable[int], symbol: Symbol) -> frozenset[int]:
        """The states reached from ``states`` by one ``symbol`` and what then follows for free."""
        return self.closure(target for state in states for target in self._targets.get((state, symbol), ()))

    def run(self, word: Word) -> frozenset[int]:
        """The states that reading ``word`` from the starts may lead to."""
        states = self.closure(self.starts)
        for letter in _encoded(word, self._letters):
            states = self.step(states, self.alphabet[letter])
        return states

    def __call__(self, word: Word) -> bool:
        """Whether ``word`` is accepted."""
        return not self.accepting.isdisjoint(self.run(word))

    def words(self, max_length: int) -> Iterator[tuple[Symbol, ...]]:
        """The accepted words of at most ``max_length`` symbols, short ones first, then in the alphabet's order."""
        from transductor.automata.finite_algebra import determinised

        return determinised(self).words(max_length)

    def _repr_svg_(self) -> str:
        """The picture a notebook shows."""
        from transductor.automata.drawing import svg

        return svg(self)

    def __repr__(self) -> str:
        return f"NFA({self.states} states, {len(self.edges)} edges, {_alphabet_shown(self.alphabet)})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, NFA):
            return NotImplemented
        from transductor.automata.finite_algebra import determinised

        return determinised(self) == determinised(other)


def weights01(dfa: DFA) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The weighted automaton with weights 0 and 1 that gives 1 to accepted words: ``initial, matrices, final``.

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


def _set(value: DFA | NFA, name: str, content: object) -> None:
    object.__setattr__(value, name, content)


def _letter_of_symbol(alphabet: Iterable[Symbol]) -> dict[Symbol, int]:
    letters: dict[Symbol, int] = {}
    for position, symbol in enumerate(alphabet):
        if symbol is None:
            raise ValueError(f"alphabet must not contain None, which stands for ε; got it at position {position}")
        if symbol in letters:
            raise ValueError(f"alphabet must have distinct symbols; {symbol!r} comes twice")
        letters[symbol] = position
    return letters


def _table(transitions: Any, letters: int) -> NDArray[np.int64]:
    given = np.asarray(transitions)
    if given.ndim != 2 or given.shape[1] != letters or not len(given):
        raise ValueError(f"transitions must have the shape (states ≥ 1, {letters} letters); got {given.shape}")
    if given.size and given.dtype.kind not in "iu":
        raise TypeError(f"transitions must be integers; got {given.dtype}")
    outside = np.argwhere((given < 0) | (given >= len(given)))
    if len(outside):
        state, letter = outside[0].tolist()
        raise ValueError(
            f"transitions must lie in [0, {len(given)}); got {given[state, letter]} at state {state}, letter {letter}"
        )
    table = given.astype(np.int64)  # a copy: whoever holds the original may still write to it
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


def _check_length(max_length: Any) -> None:
    if _integer("max_length", max_length) < 0:
        raise ValueError(f"max_length must be at least 0; got {max_length}")


def _encoded(word: Word, letters: Mapping[Symbol, int]) -> Iterator[int]:
    for position, symbol in enumerate(word):
        letter = letters.get(symbol)
        if letter is None:
            raise ValueError(
                f"word has the unknown symbol {symbol!r} at position {position}; {_alphabet_shown(letters)}"
            )
        yield letter


def _alphabet_shown(alphabet: Collection[Symbol]) -> str:
    shown = ", ".join(map(repr, islice(alphabet, 12)))
    return f"alphabet {{{shown}{', …' if len(alphabet) > 12 else ''}}}"
