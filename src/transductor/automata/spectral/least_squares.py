"""Fitting a weighted automaton to the numbers of words, by the method of Levenberg and Marquardt.

The value of a word is linear in each of its matrices, so the derivative by a matrix is the sum, over the places of its
letter, of the outer product of what is read after the place and the state before it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

EXACT: Final = 1e-8
"""Relative error of a fit to numbers that an automaton has exactly; rounding leaves less."""
MOST_FITTED: Final = 1500
"""The most words that a fit uses."""

_STARTS: Final = 12
_FINISHED: Final = 3  # of the starts, those that look best after a few rounds
_ROUNDS: Final = 120


@dataclass(frozen=True)
class NumberedWords:
    """Different words sorted by length, padded with −1, their mean numbers, and the size of numbers of a length.

    ``contradicted``: a word that occurs twice has different numbers, so that no automaton has them all.
    """

    words: list[tuple[int, ...]]
    exact: list[Fraction]
    tokens: Integers
    values: Floats
    unit: Floats
    letters: int
    contradicted: bool = False
    floats: bool = False  # numbers were given as floats, each of which stands for all that round to it

    @classmethod
    def of(cls, given: Sequence[Sequence[int]], numbers: Sequence[Fraction], letters: int) -> NumberedWords:
        """Sort words, each once with the mean of its numbers."""
        grouped: dict[tuple[int, ...], list[Fraction]] = {}
        for word, number in zip(given, numbers, strict=True):
            grouped.setdefault(tuple(map(int, word)), []).append(number)
        words = sorted(grouped, key=len)
        exact = [sum(grouped[word]) / Fraction(len(grouped[word])) for word in words]
        contradicted = any(len(set(each)) > 1 for each in grouped.values())
        tokens = np.full((len(words), max(map(len, words))), -1, dtype=np.int64)
        for row, word in enumerate(words):
            tokens[row, : len(word)] = word
        values = np.array([float(number) for number in exact])
        lengths = np.array([len(word) for word in words])
        # Numbers may grow or shrink with the length, so that each length is measured by its own size.
        square = np.bincount(lengths, values**2) / np.maximum(np.bincount(lengths), 1)
        typical = float(np.sqrt(np.median(square[np.bincount(lengths) > 0]))) or 1.0
        unit = np.sqrt(square[lengths])
        unit[unit == 0] = min(typical, float(unit[unit > 0].min())) if (unit > 0).any() else 1.0
        return cls(words, exact, tokens, values, unit, letters, contradicted)

    def shortest(self, states: int) -> NumberedWords:
        """Return the shortest words, some for every weight of an automaton, but never more than half of all."""
        wanted = 6 * (states * states * self.letters + 2 * states) + 50
        return self.first(max(1, min(wanted, MOST_FITTED, len(self.words) // 2)))

    def first(self, count: int) -> NumberedWords:
        """Return the first words alone."""
        longest = len(self.words[count - 1])
        rows = slice(count)
        return replace(
            self,
            words=self.words[rows],
            exact=self.exact[rows],
            tokens=self.tokens[rows, :longest],
            values=self.values[rows],
            unit=self.unit[rows],
        )


@dataclass(frozen=True)
class Fit:
    """Weights in coordinates without meaning, the root mean square of their relative error, and on how many words."""

    initial: Floats
    matrices: Floats
    final: Floats
    error: float = 0.0
    words: int = 0

    @property
    def states(self) -> int:
        """How many states there are."""
        return len(self.initial)

    def values(self, tokens: Integers) -> Floats:
        """Return the value of every word ``(N)``."""
        result: Floats = _states(self.initial, self.matrices, tokens)[-1] @ self.final
        return result

    def value(self, word: Sequence[Any]) -> float:
        """Return the value of one word."""
        state = self.initial
        for letter in word:
            state = self.matrices[letter] @ state
        return float(self.final @ state)


def relative_errors(values: Floats, data: NumberedWords) -> Floats:
    """Return the errors of values ``(N)`` in units of their length; values beyond all range count as 1e150."""
    with np.errstate(over="ignore", invalid="ignore"):
        errors = (values - data.values) / data.unit
    result: Floats = np.where(np.isfinite(errors), errors, 1e150)
    return result


def _states(initial: Floats, matrices: Floats, tokens: Integers) -> list[Floats]:
    """Return the states ``(N, D)`` after 0, 1, … letters; after its end a word keeps its state."""
    padded = np.concatenate([matrices, np.eye(len(initial))[None]])
    states = [np.broadcast_to(initial, (len(tokens), len(initial)))]
    with np.errstate(over="ignore", invalid="ignore"):
        for time in range(tokens.shape[1]):
            states.append(np.einsum("nij,nj->ni", padded[tokens[:, time]], states[-1]))
    return states


def _residual_and_jacobian(weights: Floats, states: int, data: NumberedWords) -> tuple[Floats, Floats]:
    initial, matrices, final = _parts(weights, states, data.letters)
    padded = np.concatenate([matrices, np.eye(states)[None]])
    after = _states(initial, matrices, data.tokens)
    by_matrix = np.zeros((len(data.values), data.letters + 1, states, states))
    rows = np.arange(len(data.values))
    reading = np.broadcast_to(final, (len(data.values), states))  # what a state at this time adds to the value
    with np.errstate(over="ignore", invalid="ignore"):
        for time in range(data.tokens.shape[1] - 1, -1, -1):
            letter = data.tokens[:, time]
            by_matrix[rows, letter] += reading[:, :, None] * after[time][:, None, :]
            reading = np.einsum("ni,nij->nj", reading, padded[letter])
        jacobian = np.concatenate([reading, by_matrix[:, :-1].reshape(len(rows), -1), after[-1]], axis=1)
        return relative_errors(after[-1] @ final, data), jacobian / data.unit[:, None]


def _parts(weights: Floats, states: int, letters: int) -> tuple[Floats, Floats, Floats]:
    return weights[:states], weights[states:-states].reshape(letters, states, states), weights[-states:]


def fitted_automaton(data: NumberedWords, states: int, random: np.random.Generator) -> Fit:
    """Return the best of several fits; each begins with words of a letter or two and goes on to longer ones."""
    began: list[tuple[Floats, float]] = []
    lengths = np.array([len(word) for word in data.words])
    stages = sorted({int(np.quantile(lengths, share)) for share in (0.1, 0.3, 0.6)})
    for start in range(_STARTS):
        scale = math.sqrt(float(np.abs(data.values[: min(len(data.values), 50)]).mean()) + 0.1)
        # Letters that begin alike leave fewer ways to go wrong where there are many; different ones, where few.
        shared = random.normal(0, 0.5, (states, states))
        own = random.normal(0, 0.5 if start % 2 else 0.05, (data.letters, states, states))
        weights = np.concatenate(
            [
                random.normal(0, scale / math.sqrt(states), states),
                (np.eye(states) * 0.5 + own + (0 if start % 2 else shared)).ravel(),
                random.normal(0, scale / math.sqrt(states), states),
            ]
        )
        for longest in stages:
            weights, _ = _descended(weights, states, data.first(int((lengths <= longest).sum())), rounds=8)
        began.append(_descended(weights, states, data, rounds=12))
        if began[-1][1] <= EXACT:
            break
    best: tuple[Floats, float] | None = None
    for weights, _ in sorted(began, key=lambda each: each[1])[:_FINISHED]:
        ended = _descended(weights, states, data, rounds=_ROUNDS)
        if best is None or ended[1] < best[1]:
            best = ended
        if best[1] <= EXACT / 10:
            break
    assert best is not None
    return Fit(*_parts(best[0], states, data.letters), best[1], len(data.words))


def _descended(weights: Floats, states: int, data: NumberedWords, rounds: int) -> tuple[Floats, float]:
    """Return the weights after steps of Levenberg and Marquardt, and the root mean square of the relative error."""
    damping = 1e-2
    residual, jacobian = _residual_and_jacobian(weights, states, data)
    cost = float(residual @ residual)
    for _ in range(rounds):
        if not np.isfinite(jacobian).all() or damping > 1e12 or cost <= len(residual) * 1e-26:
            break
        normal = jacobian.T @ jacobian
        gradient = jacobian.T @ residual
        diagonal = np.diag_indices(len(normal))
        before = cost
        while damping <= 1e12:
            damped = normal.copy()
            damped[diagonal] += damping * (normal[diagonal] + 1e-12 * float(normal[diagonal].max()) + 1e-300)
            moved = weights - _solved(damped, gradient)
            error = relative_errors(Fit(*_parts(moved, states, data.letters)).values(data.tokens), data)
            if float(error @ error) < cost:
                weights, cost, damping = moved, float(error @ error), max(damping / 5, 1e-14)
                break
            damping *= 4
        if cost > before * (1 - 1e-6) or damping > 1e12:
            break
        residual, jacobian = _residual_and_jacobian(weights, states, data)
    return weights, math.sqrt(cost / len(residual))


def _solved(matrix: Floats, right: Floats) -> Floats:
    try:
        return np.asarray(np.linalg.solve(matrix, right), dtype=np.float64)
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.lstsq(matrix, right, rcond=None)[0], dtype=np.float64)


def description_bits(fit: Fit, data: NumberedWords) -> float:
    """Return the bits of all numbers under a fit with errors of its size, and half a logarithm for each weight."""
    count = len(data.values)
    square = float(np.minimum(relative_errors(fit.values(data.tokens), data) ** 2, 1e200).mean())
    weights = fit.states * fit.states * data.letters + 2 * fit.states
    bits = 0.5 * count * math.log2(square + 1e-300) + float(np.log2(data.unit).sum())
    return bits + 0.5 * weights * math.log2(count)


def refitted(fit: Fit, data: NumberedWords) -> Fit:
    """Return a fit that goes on from another, with errors measured in other units."""
    begin = np.concatenate([fit.initial, fit.matrices.ravel(), fit.final])
    weights, error = _descended(begin, fit.states, data, rounds=30)
    return Fit(*_parts(weights, fit.states, data.letters), error, len(data.words))
