"""Hankel blocks: the values of a series at prefix·suffix, and at prefix·letter·suffix."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

import numpy as np

from transductor.automata.weighted import WeightedAutomaton
from transductor.automata.weights import Array
from transductor.automata.words import Symbol, Word

Series: TypeAlias = Callable[[tuple[Symbol, ...]], Any]
"""Any function from a word (a tuple of letters) to a number; a WeightedAutomaton is one."""

Statistics: TypeAlias = Literal["strings", "prefixes", "factors"]
"""What is counted in a sample: complete strings, the beginnings of strings, or all runs of consecutive letters."""

BASIS_LENGTH: Final = 6
"""The longest prefixes and suffixes chosen from a sample: longer ones are too rare to say much."""


def basis_words(alphabet: Iterable[Symbol], max_length: int) -> list[tuple[Symbol, ...]]:
    """Return all words up to ``max_length``, shortest first, then in the order of the alphabet."""
    if max_length < 0:
        raise ValueError(f"max_length must be at least 0; got {max_length}")
    letters = tuple(alphabet)
    return [word for length in range(max_length + 1) for word in itertools.product(letters, repeat=length)]


def hankel(series: WeightedAutomaton | Series, prefixes: Sequence[Word], suffixes: Sequence[Word]) -> Array:
    """Return the matrix ``(P, S)`` of ``series(prefix + suffix)``.

    An automaton is asked for one state per prefix and one co-state per suffix, and the matrix is their product; any
    other callable is asked once for each distinct word.  Fractions when the automaton is rational, float64 otherwise.
    """
    if isinstance(series, WeightedAutomaton):
        return _product(series, _states(series, prefixes), _costates(series, suffixes))
    values: dict[tuple[Symbol, ...], float] = {}
    block = np.empty((len(prefixes), len(suffixes)))
    for row, prefix in enumerate(prefixes):
        for column, suffix in enumerate(suffixes):
            word = (*prefix, *suffix)
            if word not in values:
                values[word] = _number(series, word)
            block[row, column] = values[word]
    return block


@dataclass(frozen=True, eq=False)
class HankelBlock:
    """A finite piece of the Hankel matrix of a series, and its shifts by one letter, from which automata are learned.

    Args:
        alphabet: The letters, in the order of ``shifted``.
        prefixes: Words that name the rows, the empty word among them.
        suffixes: Words that name the columns, the empty word among them.
        block: ``(P, S)``, the values at ``prefix + suffix``.
        shifted: ``(V, P, S)``, the values at ``prefix + (letter,) + suffix``.
    """

    alphabet: tuple[Symbol, ...]
    prefixes: tuple[tuple[Symbol, ...], ...]
    suffixes: tuple[tuple[Symbol, ...], ...]
    block: Array
    shifted: Array

    def __post_init__(self) -> None:
        object.__setattr__(self, "alphabet", tuple(self.alphabet))
        if len(set(self.alphabet)) < len(self.alphabet):
            raise ValueError(f"alphabet must hold distinct letters; got {self.alphabet!r}")
        for name in ("prefixes", "suffixes"):
            object.__setattr__(self, name, _checked(name, getattr(self, name), self.alphabet))
        shape = (len(self.prefixes), len(self.suffixes))
        for name, wanted in (("block", shape), ("shifted", (len(self.alphabet), *shape))):
            values = np.array(getattr(self, name))
            if values.shape != wanted:
                raise ValueError(f"{name} must have shape {wanted}; got {values.shape}")
            values.flags.writeable = False
            object.__setattr__(self, name, values)

    @classmethod
    def of(
        cls,
        series: WeightedAutomaton | Series,
        alphabet: Iterable[Symbol],
        prefixes: Sequence[Word],
        suffixes: Sequence[Word],
    ) -> HankelBlock:
        """Return the block of a series at these prefixes and suffixes; both must hold the empty word."""
        letters = tuple(alphabet)
        rows, columns = _checked("prefixes", prefixes, letters), _checked("suffixes", suffixes, letters)
        if isinstance(series, WeightedAutomaton):
            states, costates = _states(series, rows), _costates(series, columns)
            steps = [series.matrices[series.letter_index(letter)] for letter in letters]
            block = _product(series, states, costates)
            shifts = [_product(series, series.weights.product(states, step.T), costates) for step in steps]
        else:
            block = hankel(series, rows, columns)
            shifts = [hankel(series, [(*row, letter) for row in rows], columns) for letter in letters]
        shifted = np.stack(shifts) if shifts else np.empty((0, *block.shape), dtype=block.dtype)
        return cls(letters, rows, columns, block, shifted)

    @classmethod
    def counted(
        cls,
        strings: Sequence[Word],
        alphabet: Iterable[Symbol],
        statistics: Statistics,
        prefixes: Sequence[Word],
        suffixes: Sequence[Word],
    ) -> HankelBlock:
        """Return the block of what :func:`counted` counts in a sample, per string of the sample."""
        longest = max(map(len, prefixes), default=0) + 1 + max(map(len, suffixes), default=0)
        counts = counted(strings, statistics, longest)
        return cls.of(lambda word: counts.get(word, 0) / len(strings), alphabet, prefixes, suffixes)

    @property
    def prefix_values(self) -> Array:
        """The column ``(P)`` of the empty suffix: the series at the prefixes."""
        return np.asarray(self.block[:, self.suffixes.index(())])

    @property
    def suffix_values(self) -> Array:
        """The row ``(S)`` of the empty prefix: the series at the suffixes."""
        return np.asarray(self.block[self.prefixes.index(())])


def counted(
    strings: Iterable[Word], statistics: Statistics, max_length: int | None = None
) -> Counter[tuple[Symbol, ...]]:
    """Return how often each word up to ``max_length`` is a string of the sample, begins one, or occurs inside one.

    A factor counts once per occurrence; the empty factor of a string of length n occurs n + 1 times.
    """
    if statistics not in get_args(Statistics):
        raise ValueError(f"statistics must be one of {', '.join(map(repr, get_args(Statistics)))}; got {statistics!r}")
    counts: Counter[tuple[Symbol, ...]] = Counter()
    for string, times in Counter(tuple(string) for string in strings).items():
        size = len(string)
        longest = size if max_length is None else min(size, max_length)
        if statistics == "strings":
            if size == longest:
                counts[string] += times
        elif statistics == "prefixes":
            for end in range(longest + 1):
                counts[string[:end]] += times
        else:
            for start in range(size + 1):
                for end in range(start, min(size, start + longest) + 1):
                    counts[string[start:end]] += times
    return counts


def frequent_words(
    strings: Sequence[Word], statistics: Statistics, prefixes: int | Sequence[Word], suffixes: int | Sequence[Word]
) -> tuple[list[tuple[Symbol, ...]], list[tuple[Symbol, ...]]]:
    """Return the prefixes and the suffixes for a block of a sample: the most frequent ones, or those that are given.

    Rows are beginnings of strings, columns ends of strings (``"strings"``) or factors (``"prefixes"``); for
    ``"factors"`` both are factors.  All are at most six letters long; the empty word is always the first.
    """
    rows = counted(strings, "factors" if statistics == "factors" else "prefixes", BASIS_LENGTH)
    if statistics == "strings":
        mirrored = counted([tuple(string)[::-1] for string in strings], "prefixes", BASIS_LENGTH)
        columns = Counter({word[::-1]: times for word, times in mirrored.items()})
    else:
        columns = counted(strings, "factors", BASIS_LENGTH)
    return _chosen("prefixes", rows, prefixes), _chosen("suffixes", columns, suffixes)


def _chosen(name: str, counts: Counter[tuple[Symbol, ...]], wanted: int | Sequence[Word]) -> list[tuple[Symbol, ...]]:
    if not isinstance(wanted, (int, np.integer)):
        return [tuple(word) for word in wanted]
    if wanted < 1:
        raise ValueError(f"{name} must be at least one word; got {wanted}")
    return sorted(counts, key=lambda word: (-counts[word], len(word)))[:wanted]


def _product(automaton: WeightedAutomaton, states: Array, costates: Array) -> Array:
    values = automaton.weights.product(states, costates.T)
    return values.astype(np.float64) if automaton.weights.name == "boolean" else values


def _states(automaton: WeightedAutomaton, prefixes: Sequence[Word]) -> Array:
    """Return the states ``(P, D)`` after each prefix."""
    product = automaton.weights.product
    return _vectors(automaton, prefixes, automaton.initial, lambda state, matrix: product(matrix, state))


def _costates(automaton: WeightedAutomaton, suffixes: Sequence[Word]) -> Array:
    """Return the linear forms ``(S, D)`` that give the value of each suffix from a state."""
    product = automaton.weights.product
    mirrored = [tuple(suffix)[::-1] for suffix in suffixes]
    return _vectors(automaton, mirrored, automaton.final, lambda form, matrix: product(form[None, :], matrix)[0])


def _vectors(
    automaton: WeightedAutomaton, words: Sequence[Word], start: Array, step: Callable[[Array, Array], Array]
) -> Array:
    """Return the vectors after each word, where ``step`` moves one by the matrix of a letter."""
    known: dict[tuple[int, ...], Array] = {(): start}
    read = [tuple(automaton.indices(word)) for word in words]
    for letters in read:
        for end in range(1, len(letters) + 1):
            if letters[:end] not in known:
                known[letters[:end]] = step(known[letters[: end - 1]], automaton.matrices[letters[end - 1]])
    return np.stack([known[letters] for letters in read]) if read else automaton.weights.zeros(0, automaton.dim)


def _number(series: Series, word: tuple[Symbol, ...]) -> float:
    value = series(word)
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"series must give a finite number at every word; got {value!r} at {word!r}")
    return number


def _checked(name: str, words: Sequence[Word], alphabet: tuple[Symbol, ...]) -> tuple[tuple[Symbol, ...], ...]:
    """Return the words as tuples, when they are distinct, made of the letters, and the empty word is among them."""
    read = tuple(tuple(word) for word in words)
    if () not in read:
        raise ValueError(f"{name} must contain the empty word (); got {len(read)} words without it")
    if len(set(read)) < len(read):
        twice = next(word for word, times in Counter(read).items() if times > 1)
        raise ValueError(f"{name} must be distinct words; {twice!r} is there twice")
    letters = set(alphabet)
    for word in read:
        if not letters.issuperset(word):
            raise ValueError(f"{name} must be made of the letters {alphabet!r}; got {word!r}")
    return read
