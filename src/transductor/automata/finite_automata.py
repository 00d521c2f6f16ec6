"""Finite automata as values: what they are, how they read a word, and how one becomes deterministic.

All other operations are in :mod:`transductor.automata.finite_algebra`; the operators of the classes call them.
"""

from __future__ import annotations

import operator
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from transductor.automata.compiled import SMALL
from transductor.automata.operators import applied
from transductor.automata.table_loops import subset_table
from transductor.automata.words import Symbol, Word, listed, numbered, spelled

MOST_MEMBERS: Final = 2**27
"""Members of all sets of states together, past which an automaton is not determinised: half a gigabyte."""
MOST_ENTRIES: Final = 2**26
"""Pairs of a state and a letter, past which likewise; also of sets of states and letters: half a gigabyte each."""
MOST_STEPS: Final = 2**28
"""Members of sets that are looked at, a set as often as a letter leads to it, past which likewise: some seconds.

A larger ``limit`` allows 1024 for each set.
"""
_FEW_SETS: Final = 100


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DFA:
    """A complete deterministic automaton: ``transitions[state, letter]`` is the next state.

    ``a == b`` asks whether two automata over the same letters have the same language; ``~ & | - ^`` are complement,
    intersection, union, difference and symmetric difference of languages, and ``a <= b`` asks for inclusion.
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

    def accepting_mask(self) -> NDArray[np.bool_]:
        """Return for every state whether it accepts."""
        mask = np.zeros(self.states, dtype=np.bool_)
        mask[np.fromiter(self.accepting, np.int64, len(self.accepting))] = True
        return mask

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
        hopeful = [self.accepting_mask()]  # [n][state]: n more letters may accept
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

    def __le__(self, other: DFA) -> bool:
        return bool(applied(DFA, "<=", self, other)) if isinstance(other, DFA) else NotImplemented

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
    _arcs: NDArray[np.int64] = field(init=False)  # (3, edges): sources, letters (−1 for ε), targets
    _targets: dict[tuple[int, Symbol | None], list[int]] = field(init=False)  # filled when a word is first read

    __hash__ = None  # type: ignore[assignment]  # equal languages would need equal hashes

    def __post_init__(self) -> None:
        numbers = _numbers_of(self.alphabet)
        states = _integer("states", self.states)
        if states < 0:
            raise ValueError(f"states must be at least 0; got {states}")
        edges = frozenset(self.edges)
        places: dict[Symbol | None, int] = {**numbers, None: -1}
        arcs = np.empty((3, len(edges)), dtype=np.int64)
        for number, (source, symbol, target) in enumerate(edges):
            if symbol not in places:
                _check_letter(symbol, source, numbers)
            if not (type(source) is type(target) is int and 0 <= source < states and 0 <= target < states):
                source, target = _state("edges", source, states), _state("edges", target, states)
            arcs[:, number] = source, places[symbol], target
        arcs.setflags(write=False)
        _set(self, "alphabet", tuple(numbers))
        _set(self, "states", states)
        _set(self, "edges", edges)
        _set(self, "starts", _state_set("starts", self.starts, states))
        _set(self, "accepting", _state_set("accepting", self.accepting, states))
        _set(self, "_numbers", numbers)
        _set(self, "_arcs", arcs)
        _set(self, "_targets", {})

    def closure(self, states: Iterable[int]) -> frozenset[int]:
        """Return ``states`` and all that follow from them for free."""
        following = self._following()
        reached = set(states)
        pending = list(reached)
        while pending:
            for target in following.get((pending.pop(), None), ()):
                if target not in reached:
                    reached.add(target)
                    pending.append(target)
        return frozenset(reached)

    def step(self, states: Iterable[int], symbol: Symbol) -> frozenset[int]:
        """Return the states reached from ``states`` by one letter and what then follows for free."""
        following = self._following()
        return self.closure(target for state in states for target in following.get((state, symbol), ()))

    def _following(self) -> dict[tuple[int, Symbol | None], list[int]]:
        """Return the states that a letter, or none, leads to from each state."""
        if not self._targets:
            for source, symbol, target in self.edges:
                self._targets.setdefault((source, symbol), []).append(target)
        return self._targets

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
    if _integer("limit", limit) < 1:
        raise ValueError(f"limit must be at least 1; got {limit}")
    letters = len(nfa.alphabet)
    if nfa.states * letters > MOST_ENTRIES:
        raise ValueError(
            f"nfa has {nfa.states} states and {letters} letters; at most {MOST_ENTRIES:,} pairs of a state and a "
            "letter are determinised"
        )
    sources, read, targets = nfa._arcs
    free = read < 0
    keys = np.random.default_rng(0).integers(1, 2**31, size=nfa.states)
    accepting = np.zeros(nfa.states, dtype=np.bool_)
    accepting[list(nfa.accepting)] = True
    parts = (
        *_grouped(sources[~free] * letters + read[~free], targets[~free], nfa.states * letters),
        *_grouped(sources[free], targets[free], nfa.states),
        np.array(sorted(nfa.starts), dtype=np.int64),
        accepting,
        keys,
        letters,
    )
    # How many sets there are shows only on the way, so small automata are tried first, without compiled loops.
    most, steps = min(limit, MOST_ENTRIES // max(1, letters)), max(MOST_STEPS, 1024 * limit)
    few = min(most, _FEW_SETS) if len(read) < SMALL else 0
    table, accepts = subset_table(0, *parts, few, 100 * _FEW_SETS, steps)
    if not len(table):
        table, accepts = subset_table(SMALL, *parts, most, MOST_MEMBERS, steps)
    if not len(table):
        raise ValueError(
            f"nfa has more than {'limit = ' if most == limit else ''}{most} sets of states that words lead to, or "
            f"these have more than {MOST_MEMBERS:,} members together, or more than {steps:,} as letters lead to "
            "them"
        )
    return DFA(nfa.alphabet, table, 0, np.flatnonzero(accepts))  # type: ignore[arg-type]


def _grouped(keys: NDArray[np.int64], values: NDArray[np.int64], count: int) -> tuple[Any, NDArray[np.int64]]:
    """Return where the values of each key below ``count`` begin in the values sorted by key, and these."""
    begins = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.bincount(keys, minlength=count), out=begins[1:])
    return begins, values[np.argsort(keys, kind="stable")]


def weights01(dfa: DFA) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the weighted automaton that gives 1 to accepted words and 0 to others: ``initial, matrices, final``.

    States are columns: ``matrices[letter][to, from]``, so a word weighs ``final · M_n ⋯ M_1 · initial``.
    """
    count = dfa.states
    initial, final = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    initial[dfa.start] = 1
    final[dfa.accepting_mask()] = 1
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
    listed_values = values if isinstance(values, np.ndarray) else list(values)
    if len(listed_values) >= 64:  # a million states are checked together, others one by one for the message
        numbers = np.asarray(listed_values)
        if numbers.dtype.kind in "iu" and numbers.ndim == 1 and numbers.min() >= 0 and numbers.max() < states:
            return frozenset(numbers.tolist())
    return frozenset(_state(argument, value, states) for value in listed_values)
