"""Spectral learning of a function that can only be called: which words to ask for, and when to stop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from transductor.automata.spectral.hankel_block import HankelBlock, Series, basis_words, hankel
from transductor.automata.spectral.learning import LearnedAutomaton, equilibrated
from transductor.automata.weighted import WeightedAutomaton
from transductor.automata.weights import Array
from transductor.automata.words import Symbol


def learned_from_callable(
    function: Series,
    alphabet: Sequence[Symbol],
    *,
    max_queries: int = 100_000,
    max_rank: int = 100,
    first_length: int = 3,
    checks: int = 200,
    check_length: int = 20,
    seed: int = 0,
    tolerance: float = 1e-9,
) -> LearnedAutomaton:
    """Return the automaton of a function on words, from values that it chooses to ask for.

    It begins with the words up to ``first_length`` (up to 50 of them, and at least the letters) as prefixes and
    suffixes, keeps as many of each as the rank needs, extends these by one letter and looks again, until the rank
    stops growing.  Then the machine is compared with the function at random words; where they differ, all beginnings
    and ends of that word join the prefixes and suffixes.  No word is asked for twice, and no more than ``max_queries``
    are: where that, or ``max_rank``, ends the search, the latest machine comes with a :class:`RankWarning`.

    Args:
        function: Takes a tuple of letters, gives a finite number.
        alphabet: The letters.
        max_queries: The most distinct words to ask for.
        max_rank: The most states.
        first_length: Words of this length are looked at from the beginning.
        checks: How many random words the machine is compared at.
        check_length: Their greatest length.
        seed: Seed of these random words.
        tolerance: Smaller relative differences count as rounding.
    """
    letters = tuple(alphabet)
    ask = _Asked(function, max_queries)
    first = 1
    while first < first_length and sum(len(letters) ** length for length in range(first + 2)) <= 50:
        first += 1
    prefixes = suffixes = basis_words(letters, first)
    probes = _random_words(letters, checks, check_length, seed)
    latest: tuple[HankelBlock, int] | None = None
    warning = ""
    try:
        while not warning:
            before = latest
            for step in _grown(ask, letters, prefixes, suffixes, max_rank, tolerance):
                latest = step
            assert latest is not None  # the first step is always taken
            block, rank = latest
            machine = equilibrated(block).automaton(rank)
            wrong = _separating(ask, machine, probes, float(np.abs(block.block).max()), max(tolerance, 1e-7))
            if wrong is None:
                break
            prefixes = [*dict.fromkeys([*block.prefixes, *(wrong[:end] for end in range(len(wrong) + 1))])]
            suffixes = [*dict.fromkeys([*block.suffixes, *(wrong[start:] for start in range(len(wrong) + 1))])]
            if rank >= max_rank:
                warning = f"the series differs at {wrong!r}: it needs more than max_rank = {max_rank} states"
            elif before is not None and rank == before[1]:
                warning = f"the series differs at {wrong!r}, and no rank up to tolerance = {tolerance} explains it"
    except _OutOfQueriesError:
        if latest is None:
            raise ValueError(f"max_queries must be enough for a first block; {max_queries} words were not") from None
        block, rank = latest
        warning = f"max_queries = {max_queries} words were asked for before the rank stopped growing"
    return equilibrated(block).learned(block, rank, warning, queries=len(ask.known))


class _OutOfQueriesError(Exception):
    pass


class _Asked:
    """A function that is called once for each word, and for a limited number of words."""

    def __init__(self, function: Series, max_queries: int) -> None:
        self.function, self.max_queries = function, max_queries
        self.known: dict[tuple[Symbol, ...], object] = {}

    def __call__(self, word: tuple[Symbol, ...]) -> object:
        if word not in self.known:
            if len(self.known) >= self.max_queries:
                raise _OutOfQueriesError
            self.known[word] = self.function(word)
        return self.known[word]


def _grown(
    ask: _Asked,
    letters: tuple[Symbol, ...],
    prefixes: Sequence[tuple[Symbol, ...]],
    suffixes: Sequence[tuple[Symbol, ...]],
    max_rank: int,
    tolerance: float,
) -> Iterator[tuple[HankelBlock, int]]:
    """Yield blocks of growing rank, and their ranks, until extending prefixes and suffixes by a letter adds nothing."""
    rank = -1
    while True:
        values = hankel(ask, prefixes, suffixes)
        rows = _independent(values, max_rank, tolerance)
        columns = _independent(values[rows].T, max_rank, tolerance)
        if len(columns) <= rank:
            return
        rank = len(columns)
        rows_kept = [*dict.fromkeys([(), *(prefixes[row] for row in rows)])]
        columns_kept = [*dict.fromkeys([(), *(suffixes[column] for column in columns)])]
        prefixes = [*dict.fromkeys([*rows_kept, *((*word, letter) for word in rows_kept for letter in letters)])]
        suffixes = [*dict.fromkeys([*columns_kept, *((letter, *word) for word in columns_kept for letter in letters)])]
        # the shifts of this block are among the values at the extended words, which the next round asks for anyway
        yield HankelBlock.of(ask, letters, prefixes, columns_kept), rank


def _independent(values: Array, most: int, tolerance: float) -> list[int]:
    """Return rows of ``(P, S)`` none of which is, up to ``tolerance``, a combination of others; the farthest first."""
    norms = np.linalg.norm(values, axis=1, keepdims=True)
    rest = np.divide(values, norms, out=np.zeros_like(values), where=norms > 0)
    chosen: list[int] = []
    while len(chosen) < min(most, *values.shape):
        lengths = np.linalg.norm(rest, axis=1)
        row = int(np.argmax(lengths))
        if lengths[row] <= tolerance:
            break
        chosen.append(row)
        direction = rest[row] / lengths[row]
        for _ in range(2):  # once more takes away what rounding left of the direction
            rest = rest - np.outer(rest @ direction, direction)
    return chosen


def _separating(
    ask: _Asked, machine: WeightedAutomaton, words: Sequence[tuple[Symbol, ...]], size: float, tolerance: float
) -> tuple[Symbol, ...] | None:
    """Return a word where function and machine differ, by more than a share of the largest value seen at its length."""
    wanted, actual = hankel(ask, words, [()])[:, 0], machine.batch(words)
    lengths = np.array([len(word) for word in words])
    for length in np.unique(lengths):
        places = np.flatnonzero(lengths == length)
        scale = max(float(np.abs(wanted[places]).max()), 1e-3 * size)
        different = places[np.abs(actual[places] - wanted[places]) > tolerance * scale]
        if len(different):
            return words[int(different[0])]
    return None


def _random_words(letters: tuple[Symbol, ...], count: int, max_length: int, seed: int) -> list[tuple[Symbol, ...]]:
    random = np.random.default_rng(seed)
    lengths = random.integers(0, max_length, size=count, endpoint=True) if letters else np.zeros(count, dtype=int)
    drawn = [random.integers(max(1, len(letters)), size=length) for length in lengths]
    return [tuple(letters[place] for place in places) for places in drawn]
