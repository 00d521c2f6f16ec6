"""Spectral learning: from the values of a series to an automaton that computes it.

The Hankel matrix of a series has the rank of its smallest automaton, and every factorisation ``H = P · S`` at that rank
is one: rows of P are the states after the prefixes, columns of S what the suffixes make of a state.  With the singular
value decomposition ``H = U Σ Vᵀ`` cut at the rank, and the blocks H_a shifted by a letter::

    initial = Σ^-½ Vᵀ · H[ε, :]      M_a = (Σ^-½ Uᵀ H_a V Σ^-½)ᵀ      final = Σ^-½ Uᵀ · H[:, ε]
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from transductor.automata.hankel import HankelBlock, Series, Statistics, basis_words, frequent_words, hankel
from transductor.automata.probabilistic import smoothed, unigram
from transductor.automata.weighted import Symbol, WeightedAutomaton, Word
from transductor.automata.weights import Array

__all__ = ["LearnedAutomaton", "RankWarning", "learned", "learned_from_callable", "learned_from_sample"]

SURE_GAP: Final = 1e3
"""A drop between neighbouring singular values that only rounding explains."""
CLEAR_GAP: Final = 10.0
"""A smaller drop than this says little about the rank."""


class RankWarning(UserWarning):
    """The singular values do not say clearly what the rank is."""


@dataclass(frozen=True, eq=False)
class LearnedAutomaton:
    """An automaton that was learned, and how far to trust it.

    Args:
        automaton: The machine, in float64.
        rank: Its number of states.
        singular_values: Of the (weighted) block, largest first.
        gap: ``σ_rank / σ_{rank+1}``; ``inf`` when the block has no further singular value, or only zeros.
        residual: Norm of the error on the block and its shifts, relative to their norm.
        warning: What is doubtful about the rank; empty when nothing is.
        queries: Distinct words a callable was asked for.
    """

    automaton: WeightedAutomaton
    rank: int
    singular_values: Array
    gap: float
    residual: float
    warning: str = ""
    queries: int = 0


def learned(
    block: HankelBlock,
    rank: int | None = None,
    *,
    tolerance: float = 1e-10,
    row_weights: Array | None = None,
    column_weights: Array | None = None,
) -> LearnedAutomaton:
    """The automaton of a Hankel block.

    Args:
        block: Values of the series.  The machine is exact when the block has the rank of the series.
        rank: Number of states.  Unless given, it is read off the singular values above ``tolerance``: at the last drop
            by a factor of 1000, else at the largest drop if it is tenfold, else all of them.  The last case, and a
            block without a singular value below ``tolerance``, give a :class:`RankWarning`.
        tolerance: Singular values below this share of the largest are taken for zero.
        row_weights: Positive weights ``(P)`` by which rows are multiplied before the decomposition: what is known
            better may count more.  They change nothing when the rank is exact.
        column_weights: The same for columns ``(S)``.
    """
    parts = _Decomposition.of(block, tolerance, row_weights, column_weights)
    chosen, warning = parts.rank_by_gap() if rank is None else parts.checked(rank)
    automaton = parts.automaton(chosen)
    gap, residual = parts.gap(chosen), _residual(block, automaton)
    return _told(LearnedAutomaton(automaton, chosen, parts.singular_values, gap, residual, warning))


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
    """The automaton of a function on words, from values that it chooses to ask for.

    It begins with the words up to ``first_length`` (up to 50 of them, and at least the letters) as prefixes and
    suffixes, keeps as many of each as the rank needs, extends these by one letter and looks again, until the rank
    stops growing.  Then the machine is compared with the function at random words; where they differ, all beginnings
    and ends of that word join the prefixes and suffixes.  No word is asked for twice, and no more than ``max_queries``
    are: where that, or ``max_rank``, ends the search, the machine found so far carries a :class:`RankWarning`.

    Args:
        function: Takes a tuple of letters, gives a finite number.
        alphabet: The letters.
        max_queries: The most distinct words to ask for.
        max_rank: The most states.
        first_length: Words of this length are looked at from the beginning.
        checks: Random words the machine is compared at.
        check_length: Their greatest length.
        seed: Of these random words.
        tolerance: Relative; smaller differences count as rounding.
    """
    letters = tuple(alphabet)
    ask = _Asked(function, max_queries)
    first = 1
    while first < first_length and sum(len(letters) ** length for length in range(first + 2)) <= 50:
        first += 1
    prefixes = suffixes = basis_words(letters, first)
    probes = _random_words(letters, checks, check_length, seed)
    found: tuple[HankelBlock, int] | None = None
    warning = ""
    try:
        while not warning:
            before = found
            for step in _grown(ask, letters, prefixes, suffixes, max_rank, tolerance):
                found = step
            assert found is not None  # the first step is always taken
            block, rank = found
            machine = _equilibrated(block).automaton(rank)
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
        if found is None:
            raise ValueError(f"max_queries must be enough for a first block; {max_queries} words were not") from None
        block, rank = found
        warning = f"max_queries = {max_queries} words were asked for before the rank stopped growing"
    parts = _equilibrated(block)
    automaton = parts.automaton(rank)
    gap, residual = parts.gap(rank), _residual(block, automaton)
    return _told(
        LearnedAutomaton(automaton, rank, parts.singular_values, gap, residual, warning, queries=len(ask.known))
    )


def learned_from_sample(
    strings: Sequence[Word],
    alphabet: Sequence[Symbol] | None = None,
    *,
    statistics: Statistics = "prefixes",
    rank: int | None = None,
    basis: int | tuple[int | Sequence[Word], int | Sequence[Word]] = 300,
    max_rank: int = 12,
    seed: int = 0,
) -> LearnedAutomaton:
    """The automaton of a distribution over strings, from a sample of it.

    What is counted decides which series the block holds.  All three use the same matrices; with M = Σ_a M_a::

        strings    f(w), the probability of w
        prefixes   Σ_u f(wu), of beginning with w:         final' = final · (I − M)⁻¹
        factors    Σ_uv f(uwv), the mean number of w's:    final' as before, initial' = (I − M)⁻¹ · initial

    so the machine that is learned is turned into that of the strings by ``final = final' · (I − M)`` and, for factors,
    ``initial = (I − M) · initial'``.  The variance of a count is about its mean, so rows and columns are divided by
    the roots of their sums before the decomposition.

    Args:
        strings: The sample, at least one string.
        alphabet: The letters; unless given, those of the sample in the order of their first appearance.
        statistics: ``"strings"``, ``"prefixes"`` or ``"factors"``.
        rank: Number of states.  Unless given, the one up to ``max_rank`` whose smoothed machine, learned from four
            fifths of the strings, has the lowest perplexity on the others: the singular values of a sample seldom tell.
        basis: How many of the most frequent prefixes and suffixes to use, or a pair: for the prefixes and for the
            suffixes, how many or which.
        max_rank: The largest rank to try.
        seed: Of the split.
    """
    words = [tuple(string) for string in strings]
    if not words:
        raise ValueError("strings must hold at least one string")
    letters = tuple(dict.fromkeys(letter for word in words for letter in word)) if alphabet is None else tuple(alphabet)
    missing = {letter for word in words for letter in word} - set(letters)
    if missing:
        raise ValueError(f"alphabet must hold every letter of the strings; {missing!r} missing from {letters!r}")
    rows, columns = frequent_words(words, statistics, *(basis if isinstance(basis, tuple) else (basis, basis)))
    block = HankelBlock.counted(words, letters, statistics, rows, columns)
    parts = _variance_weighted(block)
    warning = ""
    if rank is not None:
        chosen, warning = parts.checked(rank)
    elif parts.above == 0:
        chosen, warning = 0, "no counted string is a prefix and a suffix of the basis: all counts of the block are zero"
    else:
        order = np.random.default_rng(seed).permutation(len(words))
        kept = [words[place] for place in order[len(words) // 5 :]]
        held = [words[place] for place in order[: len(words) // 5]] or kept
        fewer = _variance_weighted(HankelBlock.counted(kept, letters, statistics, rows, columns))
        perplexities = [math.inf]
        for size in range(1, min(max_rank, fewer.above) + 1):
            model = smoothed(_of_strings(fewer.automaton(size), statistics), background=unigram(letters, kept))
            perplexities.append(model.perplexity(held))
        chosen = min(int(np.argmin(perplexities)), parts.above)
    machine = parts.automaton(chosen)
    gap, residual = parts.gap(chosen), _residual(block, machine)
    automaton = _of_strings(machine, statistics)
    return _told(LearnedAutomaton(automaton, chosen, parts.singular_values, gap, residual, warning))


@dataclass(frozen=True, eq=False)
class _Decomposition:
    """A weighted block ``U Σ Vᵀ`` and what is needed to read an automaton off it."""

    alphabet: tuple[Symbol, ...]
    left: Array  # (P, K)
    singular_values: Array  # (K)
    right: Array  # (S, K)
    shifted: Array  # (V, P, S)
    first_row: Array  # (S)
    first_column: Array  # (P)
    above: int  # singular values that are not zero

    @classmethod
    def of(cls, block: HankelBlock, tolerance: float, rows: Array | None, columns: Array | None) -> _Decomposition:
        weights = []
        for name, given, words in (("row", rows, block.prefixes), ("column", columns, block.suffixes)):
            factors = np.ones(len(words)) if given is None else np.asarray(given, dtype=np.float64)
            if factors.shape != (len(words),) or not (np.isfinite(factors) & (factors > 0)).all():
                raise ValueError(f"{name}_weights must be {len(words)} positive numbers; got {given!r}")
            weights.append(factors)
        outer = weights[0][:, None] * weights[1]
        values, shifted = block.block.astype(np.float64) * outer, block.shifted.astype(np.float64) * outer
        if not (np.isfinite(values).all() and np.isfinite(shifted).all()):
            raise ValueError("block must hold finite numbers only")
        left, singular_values, right = np.linalg.svd(values, full_matrices=False)
        floor = tolerance * float(singular_values[0])
        row, column = values[block.prefixes.index(())], values[:, block.suffixes.index(())]
        row, column = row / weights[0][block.prefixes.index(())], column / weights[1][block.suffixes.index(())]
        above = int((singular_values > floor).sum())
        return cls(block.alphabet, left, singular_values, right.T, shifted, row, column, above)

    def gap(self, rank: int) -> float:
        values = self.singular_values
        return float(values[rank - 1] / values[rank]) if 0 < rank < len(values) and values[rank] > 0 else math.inf

    def checked(self, rank: int) -> tuple[int, str]:
        """A rank that was asked for, lowered to the number of singular values that are not zero, and a warning."""
        largest = len(self.singular_values)
        if not 0 <= rank <= largest:
            raise ValueError(f"rank must lie between 0 and {largest}, the smaller side of the block; got {rank}")
        if rank > self.above:
            return self.above, f"rank {rank} was asked for, but only {self.above} singular values are not zero"
        return rank, ""

    def rank_by_gap(self) -> tuple[int, str]:
        """The rank and what is doubtful about it."""
        if self.above == 0:
            return 0, ""
        full = self.above == len(self.singular_values)
        rounding = np.finfo(np.float64).eps * self.singular_values[0]
        following = np.maximum(self.singular_values[1 : self.above + 1], rounding)
        drops = self.singular_values[: len(following)] / following
        sure = np.flatnonzero(drops >= SURE_GAP)
        best = int(np.argmax(drops)) if len(drops) else 0
        if len(sure):
            rank = int(sure[-1]) + 1
        elif len(drops) and drops[best] >= CLEAR_GAP:
            rank = best + 1
        else:
            rank = self.above
            if not full:
                return rank, f"rank {rank}: no drop between singular values is tenfold, so the rank is a guess"
        if full:
            return rank, (
                f"rank {rank}: all {self.above} singular values of the block are above the tolerance, "
                "so the series may need a larger block"
            )
        return rank, ""

    def automaton(self, rank: int) -> WeightedAutomaton:
        roots = np.sqrt(self.singular_values[:rank])
        left, right = self.left[:, :rank] / roots, self.right[:, :rank] / roots
        matrices = (left.T @ self.shifted @ right).transpose(0, 2, 1)
        initial, final = right.T @ self.first_row, left.T @ self.first_column
        return WeightedAutomaton(initial, matrices, final, self.alphabet, weights="float")


def _told(result: LearnedAutomaton) -> LearnedAutomaton:
    if result.warning:
        warnings.warn(result.warning, RankWarning, stacklevel=3)
    return result


def _residual(block: HankelBlock, automaton: WeightedAutomaton) -> float:
    """Norm of the automaton's error on the block and its shifts, relative to their norm."""
    found = HankelBlock.of(automaton, block.alphabet, block.prefixes, block.suffixes)
    wanted = np.concatenate([block.block[None], block.shifted]).astype(np.float64)
    error = float(np.linalg.norm(np.concatenate([found.block[None], found.shifted]) - wanted))
    size = float(np.linalg.norm(wanted))
    return error / size if size > 0 else error


def _inverse_roots(values: Array) -> Array:
    return np.asarray(1 / np.sqrt(np.where(values > 0, values, 1.0)))


def _variance_weighted(block: HankelBlock) -> _Decomposition:
    rows, columns = block.block.sum(axis=1), block.block.sum(axis=0)
    return _Decomposition.of(block, 1e-10, _inverse_roots(rows), _inverse_roots(columns))


def _equilibrated(block: HankelBlock) -> _Decomposition:
    """Rows, then columns, brought to norm 1, so that a series may grow or fade with length."""
    rows = _inverse_roots((block.block**2).sum(axis=1))
    columns = _inverse_roots(((block.block * rows[:, None]) ** 2).sum(axis=0))
    return _Decomposition.of(block, 1e-14, rows, columns)


def _of_strings(automaton: WeightedAutomaton, statistics: Statistics) -> WeightedAutomaton:
    """From the machine of what was counted to the machine of the strings."""
    if statistics == "strings":
        return automaton
    rest = np.eye(automaton.dim) - automaton.matrices.sum(axis=0)
    initial = rest @ automaton.initial if statistics == "factors" else automaton.initial
    return WeightedAutomaton(
        initial, automaton.matrices, automaton.final @ rest, automaton.alphabet, weights=automaton.weights
    )


class _OutOfQueriesError(Exception):
    pass


class _Asked:
    """A function that is asked for each word once, and for so many words at most."""

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
    """Blocks of growing rank, and their ranks, until extending prefixes and suffixes by a letter adds nothing."""
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
    """Rows of ``(P, S)`` none of which is, up to ``tolerance``, a combination of the others; the farthest out first."""
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
    """A word where function and machine differ, by more than a share of the largest value seen at its length."""
    wanted, found = hankel(ask, words, [()])[:, 0], machine.batch(words)
    lengths = np.array([len(word) for word in words])
    for length in np.unique(lengths):
        places = np.flatnonzero(lengths == length)
        scale = max(float(np.abs(wanted[places]).max()), 1e-3 * size)
        different = places[np.abs(found[places] - wanted[places]) > tolerance * scale]
        if len(different):
            return words[int(different[0])]
    return None


def _random_words(letters: tuple[Symbol, ...], count: int, max_length: int, seed: int) -> list[tuple[Symbol, ...]]:
    random = np.random.default_rng(seed)
    lengths = random.integers(0, max_length, size=count, endpoint=True) if letters else np.zeros(count, dtype=int)
    drawn = [random.integers(max(1, len(letters)), size=length) for length in lengths]
    return [tuple(letters[place] for place in places) for places in drawn]
