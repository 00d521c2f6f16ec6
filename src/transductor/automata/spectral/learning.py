"""Spectral learning: from the values of a series to an automaton that computes it.

The Hankel matrix of a series has the rank of its smallest automaton, and every factorisation ``H = P · S`` at that rank
is one: rows of P are the states after the prefixes, columns of S the values of suffixes.  With the singular
value decomposition ``H = U Σ Vᵀ`` cut at the rank, and the blocks H_a shifted by a letter::

    initial = Σ^-½ Vᵀ · H[ε, :]      M_a = (Σ^-½ Uᵀ H_a V Σ^-½)ᵀ      final = Σ^-½ Uᵀ · H[:, ε]
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from transductor.automata.probabilistic import unigram
from transductor.automata.reduction import RankWarning
from transductor.automata.spectral.expectation import PrefixTree, em_step
from transductor.automata.spectral.hankel_block import HankelBlock, Statistics, frequent_words
from transductor.automata.spectral.refinement import Judged, Progress, clustered, judged, refined
from transductor.automata.spectral.tree_block import frequent_factors, frequent_prefixes, prefix_block
from transductor.automata.weighted import WeightedAutomaton
from transductor.automata.weights import Array
from transductor.automata.words import Symbol, Word, letters_of

SURE_GAP: Final = 1e3
"""A drop between neighbouring singular values that only rounding explains."""
CLEAR_GAP: Final = 10.0
"""A smaller drop than this says little about the rank."""
_ENOUGH_TO_REFINE: Final = 200
_CLEARLY: Final = 0.9995  # a refined machine must be better by this; otherwise the spectral one, which has fewer states
_CLUSTERED_STATES: Final = 24  # further singular directions are mostly noise, and blur the distances
_STEPS_ON_ALL: Final = 5


@dataclass(frozen=True, eq=False)
class LearnedAutomaton:
    """An automaton that was learned, and how far to trust it.

    Args:
        automaton: The machine, in float64.
        rank: Its number of states.
        singular_values: Singular values of the (weighted) block, largest first.
        gap: ``σ_rank / σ_{rank+1}``; ``inf`` when the block has no further singular value, or only zeros.
        residual: Norm of the error on the block and its shifts, relative to their norm.
        warning: What is doubtful about the rank; empty when nothing is.
        queries: How many distinct words a callable was asked for.
        smoothing: The weight of the letters' own frequencies that suits held-out strings (see :func:`smoothed`).
        held_out_perplexity: On the strings that chose between machines; NaN where none were held out.
        refined: Whether it is a probabilistic automaton, refined by EM; otherwise its weights may be negative.
    """

    automaton: WeightedAutomaton
    rank: int
    singular_values: Array
    gap: float
    residual: float
    warning: str = ""
    queries: int = 0
    smoothing: float = 0.01
    held_out_perplexity: float = math.nan
    refined: bool = False


def learned(
    block: HankelBlock,
    rank: int | None = None,
    *,
    tolerance: float = 1e-10,
    row_weights: Array | None = None,
    column_weights: Array | None = None,
) -> LearnedAutomaton:
    """Return the automaton of a Hankel block.

    Args:
        block: Values of the series.  The machine is exact when the block has the rank of the series.
        rank: Number of states.  By default it is chosen by the singular values above ``tolerance``: at the last drop
            by a factor of 1000, else at the largest drop if it is tenfold, else all of them.  The last case, and a
            block without a singular value below ``tolerance``, give a :class:`RankWarning`.
        tolerance: Singular values below this share of the largest are taken for zero.
        row_weights: Positive weights ``(P)`` by which rows are multiplied before the decomposition: what is known
            better may count more.  They change nothing when the rank is exact.
        column_weights: The same for columns ``(S)``.
    """
    parts = Decomposition.of(block, tolerance, row_weights, column_weights)
    return parts.learned(block, *(parts.rank_by_gap() if rank is None else parts.checked(rank)))


def learned_from_sample(
    strings: Sequence[Word],
    alphabet: Sequence[Symbol] | None = None,
    *,
    statistics: Statistics = "prefixes",
    rank: int | None = None,
    basis: int | tuple[int | Sequence[Word], int | Sequence[Word]] | None = None,
    max_rank: int = 64,
    refine: bool | None = None,
    seed: int = 0,
    on_progress: Progress | None = None,
) -> LearnedAutomaton:
    """Return the automaton of a distribution over strings, from a sample of it.

    What is counted decides which series the block holds.  All three use the same matrices; with M = Σ_a M_a::

        strings    f(w), the probability of w
        prefixes   Σ_u f(wu), of beginning with w:         final' = final · (I − M)⁻¹
        factors    Σ_uv f(uwv), the mean number of w's:    final' as before, initial' = (I − M)⁻¹ · initial

    so the machine that is learned is turned into that of the strings by ``final = final' · (I − M)`` and, for factors,
    ``initial = (I − M) · initial'``.  The variance of a count is about its mean, so rows and columns are divided by
    the roots of their sums before the decomposition.

    Args:
        strings: The sample, at least one string.
        alphabet: The letters; by default those of the sample in the order of their first appearance.
        statistics: ``"strings"``, ``"prefixes"`` or ``"factors"``.
        rank: Number of states.  By default the one up to ``max_rank`` whose smoothed machine, learned from four
            fifths of the strings, has the lowest perplexity on the others: the singular values of a sample seldom tell.
        basis: How many of the most frequent prefixes and suffixes to use, or a pair: for the prefixes and for the
            suffixes, how many or which.  By default 300, and for ``"prefixes"`` 300 or 600, of at most 25 letters,
            as the strings held out decide.
        max_rank: The largest number of states to try; a :class:`RankWarning` says when it was the best.
        refine: Whether to look for a probabilistic automaton too, by EM from the states of the spectral machine, and to
            return it where it predicts the strings held out better.  By default with ``"prefixes"``, if neither
            ``rank`` nor ``basis`` is given and there are at least 200 strings.
        seed: Seed of the split and of the clusters.
        on_progress: Called with the share of the work that is done and a sentence.
    """
    words = [tuple(string) for string in strings]
    if not words:
        raise ValueError("strings must hold at least one string")
    if max_rank < 1:
        raise ValueError(f"max_rank must be at least 1; got {max_rank}")
    letters = letters_of(words) if alphabet is None else tuple(alphabet)
    missing = set(letters_of(words)) - set(letters)
    if missing:
        raise ValueError(f"alphabet must hold every letter of the strings; {missing!r} missing from {letters!r}")
    sizes = (300, 600) if basis is None and statistics == "prefixes" else (300 if basis is None else basis,)
    if rank is not None:
        block = _counted_block(words, letters, statistics, sizes[0])
        parts = _variance_weighted(block)
        result = parts.learned(block, *parts.checked(rank))
        return replace(result, automaton=_of_strings(result.automaton, statistics))
    if refine is None:
        refine = basis is None and statistics == "prefixes" and len(words) >= _ENOUGH_TO_REFINE
    elif refine and statistics != "prefixes":
        raise ValueError(f"refine needs statistics='prefixes'; got {statistics!r}")
    order = np.random.default_rng(seed).permutation(len(words))
    kept = [words[place] for place in order[len(words) // 5 :]]
    held = PrefixTree.of([words[place] for place in order[: len(words) // 5]] or kept, letters)
    background = unigram(letters, kept)
    choices: list[tuple[Judged, int, int, Decomposition]] = []
    for number, size in enumerate(sizes):
        fewer = _variance_weighted(_counted_block(kept, letters, statistics, size))
        for states in _ranks(min(max_rank, fewer.above)):
            machine = _of_strings(fewer.automaton(states), statistics)
            choices.append((judged(machine, held, background), number, states, fewer))
            if on_progress is not None:
                on_progress(0.1, f"rank {states}: held-out perplexity {choices[-1][0].perplexity:.5g}")
    if not choices:
        return _nothing_counted(words, letters, statistics, sizes[0])
    best, chosen, states, _ = min(choices, key=lambda choice: choice[0].perplexity)
    if refine:
        refinement = _refinement(choices[-1][3], kept, held, background, max_rank, seed, on_progress)
        if refinement.perplexity < _CLEARLY * best.perplexity:
            return _refined_result(refinement, words, letters, choices[-1][3].singular_values, max_rank)
    block = _counted_block(words, letters, statistics, sizes[chosen])
    parts = _variance_weighted(block)
    warning = _limit_warning(states, max_rank) if parts.above > max_rank else ""
    result = parts.learned(block, min(states, parts.above), warning)
    machine = _of_strings(result.automaton, statistics)
    return replace(result, automaton=machine, smoothing=best.smoothing, held_out_perplexity=best.perplexity)


def _ranks(most: int) -> list[int]:
    """Return every rank up to 6, and then about four for each doubling."""
    spaced = {round(2 ** (power / 4)) for power in range(11, 4 * most.bit_length() + 1)}
    return sorted({*range(1, min(most, 6) + 1), *(rank for rank in spaced if rank < most), most}) if most else []


def _limit_warning(states: int, max_rank: int) -> str:
    return f"{states} states were best, the most that max_rank = {max_rank} allows: a larger one may be better" * (
        states == max_rank
    )


def _counted_block(words: list[tuple[Symbol, ...]], letters: tuple[Symbol, ...], statistics: Statistics,
                   basis: int | tuple[int | Sequence[Word], int | Sequence[Word]]) -> HankelBlock:  # fmt: skip
    """Return the block of a sample; beginnings of strings are counted on their tree."""
    if statistics == "prefixes" and isinstance(basis, int) and basis >= 1:
        tree = PrefixTree.of(words, letters)
        return prefix_block(tree, frequent_prefixes(tree, basis), frequent_factors(tree, basis))
    rows, columns = frequent_words(words, statistics, *(basis if isinstance(basis, tuple) else (basis, basis)))
    return HankelBlock.counted(words, letters, statistics, rows, columns)


def _nothing_counted(words: list[tuple[Symbol, ...]], letters: tuple[Symbol, ...], statistics: Statistics,
                     basis: int | tuple[int | Sequence[Word], int | Sequence[Word]]) -> LearnedAutomaton:  # fmt: skip
    block = _counted_block(words, letters, statistics, basis)
    warning = "no counted string is a prefix and a suffix of the basis: all counts of the block are zero"
    return _variance_weighted(block).learned(block, 0, warning)


def _refinement(
    parts: Decomposition, kept: list[tuple[Symbol, ...]], held: PrefixTree, background: Array, most: int, seed: int,
    on_progress: Progress | None,
) -> Judged:  # fmt: skip
    """Return the best probabilistic automaton that EM finds from clusters of the states of a spectral machine."""
    tree = PrefixTree.of(kept, parts.alphabet)

    def start(count: int) -> WeightedAutomaton:
        states = min(parts.above, max(count, 4), _CLUSTERED_STATES)
        return clustered(parts.automaton(states), parts.singular_values, tree, count, seed)

    return refined(start, tree, held, background, most, on_progress)


def _refined_result(
    best: Judged, words: list[tuple[Symbol, ...]], letters: tuple[Symbol, ...], values: Array, max_rank: int
) -> LearnedAutomaton:
    """Return the refined machine after a few steps on all strings, with the evidence of the block."""
    tree, machine = PrefixTree.of(words, letters), best.machine
    for _ in range(_STEPS_ON_ALL):
        machine, _ = em_step(machine, tree)
    block = prefix_block(tree, frequent_prefixes(tree, 100), frequent_factors(tree, 100))
    rest = np.eye(machine.dim) - machine.matrices.sum(axis=0)
    final = np.linalg.lstsq(rest.T, machine.final, rcond=None)[0]  # of beginning so, as the block counts
    beginnings = WeightedAutomaton(machine.initial, machine.matrices, final, letters, weights="float")
    rank = machine.dim
    gap = float(values[rank - 1] / values[rank]) if 0 < rank < len(values) and values[rank] > 0 else math.inf
    warning = _limit_warning(rank, max_rank)
    if warning:
        warnings.warn(warning, RankWarning, stacklevel=3)
    return LearnedAutomaton(
        machine, rank, values, gap, _residual(block, beginnings), warning,
        smoothing=best.smoothing, held_out_perplexity=best.perplexity, refined=True,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Decomposition:
    """A weighted block ``U Σ Vᵀ``, and what is needed to compute an automaton from it."""

    alphabet: tuple[Symbol, ...]
    left: Array  # (P, K)
    singular_values: Array  # (K)
    right: Array  # (S, K)
    shifted: Array  # (V, P, S)
    first_row: Array  # (S)
    first_column: Array  # (P)
    above: int  # singular values that are not zero

    @classmethod
    def of(cls, block: HankelBlock, tolerance: float, rows: Array | None, columns: Array | None) -> Decomposition:
        """Decompose a block whose rows and columns are multiplied by weights."""
        weights = []
        for name, factors, words in (("row", rows, block.prefixes), ("column", columns, block.suffixes)):
            checked = np.ones(len(words)) if factors is None else np.asarray(factors, dtype=np.float64)
            if checked.shape != (len(words),) or not (np.isfinite(checked) & (checked > 0)).all():
                raise ValueError(f"{name}_weights must be {len(words)} positive numbers; got {factors!r}")
            weights.append(checked)
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

    def learned(self, block: HankelBlock, rank: int, warning: str, queries: int = 0) -> LearnedAutomaton:
        """Return the automaton of this rank with its evidence, after giving the warning, if there is one."""
        values, automaton = self.singular_values, self.automaton(rank)
        gap = float(values[rank - 1] / values[rank]) if 0 < rank < len(values) and values[rank] > 0 else math.inf
        if warning:
            warnings.warn(warning, RankWarning, stacklevel=3)
        return LearnedAutomaton(automaton, rank, values, gap, _residual(block, automaton), warning, queries)

    def checked(self, rank: int) -> tuple[int, str]:
        """Return a rank that was asked for, at most the number of non-zero singular values, and a warning."""
        largest = len(self.singular_values)
        if not 0 <= rank <= largest:
            raise ValueError(f"rank must lie between 0 and {largest}, the smaller side of the block; got {rank}")
        if rank > self.above:
            return self.above, f"rank {rank} was asked for, but only {self.above} singular values are not zero"
        return rank, ""

    def rank_by_gap(self) -> tuple[int, str]:
        """Return the rank that the singular values tell, and what is doubtful about it."""
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
        """Return the automaton with this many states."""
        roots = np.sqrt(self.singular_values[:rank])
        left, right = self.left[:, :rank] / roots, self.right[:, :rank] / roots
        matrices = (left.T @ self.shifted @ right).transpose(0, 2, 1)
        initial, final = right.T @ self.first_row, left.T @ self.first_column
        return WeightedAutomaton(initial, matrices, final, self.alphabet, weights="float")


def _residual(block: HankelBlock, automaton: WeightedAutomaton) -> float:
    """Return the norm of the automaton's error on the block and its shifts, relative to their norm."""
    actual = HankelBlock.of(automaton, block.alphabet, block.prefixes, block.suffixes)
    wanted = np.concatenate([block.block[None], block.shifted]).astype(np.float64)
    error = float(np.linalg.norm(np.concatenate([actual.block[None], actual.shifted]) - wanted))
    size = float(np.linalg.norm(wanted))
    return error / size if size > 0 else error


def _inverse_roots(values: Array) -> Array:
    """Return ``1/√value``, and 1 for values that are not positive."""
    return np.asarray(1 / np.sqrt(np.where(values > 0, values, 1.0)))


def _variance_weighted(block: HankelBlock) -> Decomposition:
    rows, columns = block.block.sum(axis=1), block.block.sum(axis=0)
    return Decomposition.of(block, 1e-10, _inverse_roots(rows), _inverse_roots(columns))


def equilibrated(block: HankelBlock) -> Decomposition:
    """Decompose a block with rows, then columns, brought to norm 1: a series may grow or fade with length."""
    rows = _inverse_roots((block.block**2).sum(axis=1))
    columns = _inverse_roots(((block.block * rows[:, None]) ** 2).sum(axis=0))
    return Decomposition.of(block, 1e-14, rows, columns)


def _of_strings(automaton: WeightedAutomaton, statistics: Statistics) -> WeightedAutomaton:
    """Turn the machine of what was counted into the machine of the strings."""
    if statistics == "strings":
        return automaton
    rest = np.eye(automaton.dim) - automaton.matrices.sum(axis=0)
    initial = rest @ automaton.initial if statistics == "factors" else automaton.initial
    return WeightedAutomaton(initial, automaton.matrices, automaton.final @ rest, automaton.alphabet, weights="float")
