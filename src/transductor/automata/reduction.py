"""Minimal representations, equality of series, rank: exact over the rationals, with a stated tolerance over floats."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from transductor.automata.algebra import difference, reversed_series
from transductor.automata.boolean import as_dfa, from_dfa
from transductor.automata.closure import reachable_part
from transductor.automata.finite_algebra import separating_word
from transductor.automata.operators import operator
from transductor.automata.series_equality import differing_word, rank_by_primes
from transductor.automata.weighted import WeightedAutomaton
from transductor.automata.weights import Array
from transductor.automata.words import Symbol

_TOLERANCE = 1e-9


class RankWarning(UserWarning):
    """The numerical rank is not clear: what was kept and what was dropped are of similar size."""


@dataclass(frozen=True)
class Reduction:
    """A minimal representation and the evidence for it.

    Attributes:
        automaton: An automaton with the least number of states for its series.
        exact: Whether it was checked over the rationals; otherwise it holds up to ``tolerance``.
        residual: The largest part that was dropped, relative to the matrix it came from (0 when exact).
        margin: The smallest part that was kept, likewise; infinity when nothing was near a decision.
    """

    automaton: WeightedAutomaton
    exact: bool
    tolerance: float
    residual: float
    margin: float


@dataclass(frozen=True)
class Equivalence:
    """Whether two series are equal, with the evidence.

    Attributes:
        equal: The answer; also the truth value of this object.
        word: A shortest word with different weights; None if equal.
        weights: The two weights of that word.
        exact: Whether the answer is a proof.  Over floats it holds up to ``tolerance``.
        checked: How many words decided: all others lead to sums of the states these lead to.
    """

    equal: bool
    word: tuple[Symbol, ...] | None
    weights: tuple[Any, Any] | None
    exact: bool
    tolerance: float
    checked: int

    def __bool__(self) -> bool:
        return self.equal


def minimised(automaton: WeightedAutomaton, *, tolerance: float = _TOLERANCE) -> WeightedAutomaton:
    """Return the series with as few states as possible; see :func:`reduced` for the evidence.

    Over truth values the result is deterministic: the least automaton of that kind.
    """
    return reduced(automaton, tolerance=tolerance).automaton


def rank(automaton: WeightedAutomaton, *, tolerance: float = _TOLERANCE) -> int:
    """Return the rank of the Hankel matrix, which is the number of states of a minimal representation.

    Over the rationals it is the rank modulo three random primes, which is never too large, and too small only if all
    three divide one number; :func:`reduced` proves it.
    """
    if not automaton.weights.field:
        raise ValueError(f"rank needs weights 'rational' or 'float'; got {automaton.weights.name!r}")
    if automaton.weights.name == "rational":
        return rank_by_primes(automaton)
    return reduced(automaton, tolerance=tolerance).automaton.dim


def reduced(automaton: WeightedAutomaton, *, tolerance: float = _TOLERANCE) -> Reduction:
    """Return a minimal representation, by backward and forward reduction.

    Args:
        tolerance: Over floats: a direction counts as new when a letter leads there with more than this part of
            its norm.  A :class:`RankWarning` says when the decision was a close one.
    """
    name = automaton.weights.name
    if name == "rational":
        return Reduction(_rational_reduction(automaton), exact=True, tolerance=0.0, residual=0.0, margin=float("inf"))
    if name == "float":
        return _float_reduction(automaton, tolerance)
    if name == "boolean":
        return Reduction(from_dfa(as_dfa(automaton)), exact=True, tolerance=0.0, residual=0.0, margin=float("inf"))
    raise ValueError(f"minimal representations are known for 'rational', 'float' and 'boolean' weights; got {name!r}")


def equivalent(a: WeightedAutomaton, b: WeightedAutomaton, *, tolerance: float = _TOLERANCE) -> Equivalence:
    """Decide whether two automata have the same series; if not, give a shortest word on which they differ.

    Over the rationals and over truth values the answer is a proof; that no shorter word differs was asked modulo three
    random primes.  Over floats, weights that agree to ``tolerance``
    relative to the sizes they were summed from count as equal.  Over (max,+), (min,+) and log weights the question
    is undecidable or unknown in general, and refused.
    """
    names = {a.weights.name, b.weights.name}
    if names == {"boolean"}:
        return _equivalent_languages(a, b)
    if not names <= {"rational", "float", "boolean"}:
        raise ValueError(f"equivalence needs weights 'rational', 'float' or 'boolean'; got {', '.join(sorted(names))}")
    shared = "float" if "float" in names else "rational"
    a, b = a.over(shared), b.over(shared)
    return _equivalent_floats(a, b, tolerance) if shared == "float" else _equivalent_rationals(a, b)


@operator(WeightedAutomaton, "==")
def _have_equal_series(a: WeightedAutomaton, b: WeightedAutomaton) -> bool:
    return equivalent(a, b).equal


def _equivalent_languages(a: WeightedAutomaton, b: WeightedAutomaton) -> Equivalence:
    first, second = as_dfa(a), as_dfa(b)
    word = separating_word(first, second)
    weights = None if word is None else (first(word), second(word))
    return Equivalence(word is None, word, weights, exact=True, tolerance=0.0, checked=first.states + second.states)


def _equivalent_rationals(a: WeightedAutomaton, b: WeightedAutomaton) -> Equivalence:
    letters, checked = differing_word(a, b)
    if letters is None:
        return Equivalence(True, None, None, exact=True, tolerance=0.0, checked=checked)
    word = tuple(a.alphabet[letter] for letter in letters)
    return Equivalence(False, word, (a(word), b(word)), exact=True, tolerance=0.0, checked=checked)


def _rational_reduction(automaton: WeightedAutomaton) -> WeightedAutomaton:
    """Keep what final weights tell apart, then what words reach of that."""
    mirrored = reversed_series(automaton)
    seen = reachable_part(mirrored)
    return reachable_part(automaton if seen is mirrored else reversed_series(seen))


@dataclass(frozen=True)
class _Space:
    """An orthonormal basis ``(D, r)`` of a reachable space, the words that lead there, and how clear the rank was."""

    basis: Array
    words: list[tuple[int, ...]]
    residual: float
    margin: float


def _reachable_space(automaton: WeightedAutomaton, tolerance: float) -> _Space:
    dim = automaton.dim
    basis = np.zeros((dim, 0))
    words: list[tuple[int, ...]] = []
    residual, margin = 0.0, float("inf")
    sizes = [max(float(np.linalg.norm(matrix, 2)), 1e-300) if dim else 1.0 for matrix in automaton.matrices]
    start = float(np.linalg.norm(automaton.initial))
    level: list[tuple[tuple[int, ...], Array]] = [((), automaton.initial / start)] if start else []
    while level:
        following = []
        for word, vector in level:
            rest = vector - basis @ (basis.T @ vector)
            rest = rest - basis @ (basis.T @ rest)
            size = float(np.linalg.norm(rest))
            if size <= tolerance:
                residual = max(residual, size)
                continue
            margin = min(margin, size)
            basis = np.concatenate((basis, (rest / size)[:, None]), 1)
            words.append(word)
            following.append((word, rest / size))
        level = [
            ((*word, letter), matrix @ vector / sizes[letter])
            for word, vector in following
            for letter, matrix in enumerate(automaton.matrices)
        ]
        if basis.shape[1] == dim:
            break
    return _Space(basis, words, residual, margin)


def _float_reduction(automaton: WeightedAutomaton, tolerance: float) -> Reduction:
    residual, margin = 0.0, float("inf")
    for _ in range(2):  # what can be seen, then what can be reached
        automaton = reversed_series(automaton)
        space = _reachable_space(automaton, tolerance)
        residual, margin = max(residual, space.residual), min(margin, space.margin)
        basis = space.basis
        matrices = basis.T @ automaton.matrices @ basis
        automaton = WeightedAutomaton(
            basis.T @ automaton.initial, matrices, basis.T @ automaton.final, automaton.alphabet, weights="float"
        )
    if margin < 10 * tolerance or residual > tolerance / 10:
        warnings.warn(
            f"the rank is not clear: with tolerance {tolerance:.0e} a part of {margin:.1e} was kept and one of "
            f"{residual:.1e} dropped",
            RankWarning,
            stacklevel=4,
        )
    return Reduction(automaton, exact=False, tolerance=tolerance, residual=residual, margin=margin)


def _equivalent_floats(a: WeightedAutomaton, b: WeightedAutomaton, tolerance: float) -> Equivalence:
    apart = difference(a, b)
    space = _reachable_space(apart, tolerance)
    sizes = [float(np.linalg.norm(automaton.final)) for automaton in (a, b)]
    for number, letters in enumerate(space.words):
        word = tuple(a.alphabet[letter] for letter in letters)
        states = a.trajectory(word)[-1], b.trajectory(word)[-1]
        scale = sum(size * float(np.linalg.norm(state)) for size, state in zip(sizes, states, strict=True))
        weights = a(word), b(word)
        if abs(weights[0] - weights[1]) > tolerance * scale:
            return Equivalence(False, word, weights, exact=False, tolerance=tolerance, checked=number + 1)
    return Equivalence(True, None, None, exact=False, tolerance=tolerance, checked=len(space.words))
