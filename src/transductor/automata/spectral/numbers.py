"""A weighted automaton from words and their numbers: least squares on short words, exact weights, a check on the rest.

A weighted automaton of d states is fitted to the shortest words by Levenberg and Marquardt's method, from several
random starts, for d = 1, 2, ….  The coordinates of a fit mean nothing; the values of words do.  So the fit is asked for
the values of a Hankel block, these are rounded to the simplest numbers that they allow, and the block is inverted
without rounding.  The words that took no part in the fit, the longer ones, then judge the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final

import numpy as np

from transductor.automata.reduction import minimised
from transductor.automata.spectral.hankel_block import basis_words
from transductor.automata.spectral.interpolation import Word, machine_of_block
from transductor.automata.spectral.least_squares import (
    EXACT,
    MOST_FITTED,
    Fit,
    Floats,
    NumberedWords,
    description_bits,
    fitted_automaton,
    refitted,
    relative_errors,
)
from transductor.automata.weighted import WeightedAutomaton

_DENOMINATORS: Final = (1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 50, 64, 100, 256, 1000, 10_000)
_NEARLY_BEST: Final = 0.2  # of the independent words the shortest with this share of the longest rest is taken
_FEWEST_JUDGES: Final = 5  # words beyond those fitted that must have exactly their numbers
_PATIENCE: Final = 2  # numbers of states tried in vain before the search ends
_SIGMAS: Final = 4.0  # a variance is called larger where it is by this many standard deviations of its estimate


@dataclass(frozen=True, eq=False)
class AutomatonFromNumbers:
    """A weighted automaton that was learned from words with numbers, and how far to trust it.

    Attributes:
        automaton: Minimal, over the letters ``0 … letters − 1``; with rational weights where ``exact_weights``.
        exact_weights: Whether the weights are rational numbers that the data are near to.
        exact: Whether the automaton has, for every word given, exactly its number.
        error: Root mean square of the difference to the numbers, over all words.
        fitted: How many words, the shortest, were used for fitting; all others only judged.
        judged: How many words only judged.
        supported: Whether the words that only judged are as near as those that were fitted.
        reasons: What was measured, in sentences.
    """

    automaton: WeightedAutomaton
    exact_weights: bool
    exact: bool
    error: float
    fitted: int
    judged: int
    supported: bool
    reasons: tuple[str, ...]


def learned_from_numbers(
    words: Sequence[Sequence[int]],
    numbers: Sequence[Any],
    *,
    letters: int,
    max_states: int = 8,
    seed: int = 0,
    on_progress: Callable[[float, str], None] | None = None,
) -> AutomatonFromNumbers:
    """Return the smallest weighted automaton that has these numbers, or the nearest one, with a verdict on it.

    Args:
        words: Each a sequence of letters ``0 … letters − 1``; the empty word is one.
        numbers: One finite number per word: an integer, a Fraction, a string such as ``"0.25"``, or a float, which
            stands for the shortest decimal that rounds to it.
        letters: How many letters there are.
        max_states: The most states that are tried.
        seed: Seed of the random starts.
        on_progress: Called with the share of the work that is done and what is being done.
    """
    exact = _numbers(words, numbers, letters, max_states)
    data = replace(
        NumberedWords.of(words, exact, letters), floats=any(isinstance(each, float | np.floating) for each in numbers)
    )
    if not data.values.any() and not data.contradicted:
        nothing = WeightedAutomaton([0], [[[0]] for _ in range(letters)], [0], range(letters))
        return _judged(nothing, data.first(max(1, len(data.words) // 2)), data, exact_weights=True)
    best: tuple[float, Fit, NumberedWords] | None = None
    without_gain = 0
    for states in range(1, max_states + 1):
        if on_progress is not None:
            on_progress((states - 1) / max_states, f"{states} states")
        fitted = data.shortest(states)
        if states > 1 and states * states * letters > len(fitted.words):
            break  # more weights than words to fit
        fit = fitted_automaton(fitted, states, np.random.default_rng([seed, states]))
        if fit.error <= EXACT:
            answer = _with_exact_weights(fit, fitted, data)
            if answer is not None and answer.exact:
                return answer
        # The numbers have errors of their own; either in proportion to their size, or of one size for all.
        even = replace(data, unit=np.full(len(data.unit), float(np.median(data.unit))))
        again = refitted(fit, even.first(min(MOST_FITTED, max(1, len(data.words) // 2))))
        scored = [(description_bits(fit, data), fit, data), (description_bits(again, even), again, even)]
        bits, fit, units = min(scored, key=lambda each: each[0])
        without_gain = without_gain + 1 if best is not None and bits >= best[0] else 0
        if best is None or bits < best[0]:
            best = bits, fit, units
        if without_gain == _PATIENCE:
            break
    assert best is not None
    fit, units = best[1:]
    fitted = units.first(fit.words)
    return _with_exact_weights(fit, fitted, units) or _as_learned(fit, fitted, units)


def _numbers(words: Sequence[Sequence[int]], numbers: Sequence[Any], letters: int, max_states: int) -> list[Fraction]:
    for name, number in (("letters", letters), ("max_states", max_states)):
        if not isinstance(number, int) or number < 1:
            raise ValueError(f"{name} must be a positive integer; got {number!r}")
    if len(words) != len(numbers) or not len(words):
        raise ValueError(f"numbers must be one per word, at least one; got {len(numbers)} for {len(words)} words")
    for row, word in enumerate(words):
        if any(not 0 <= letter < letters for letter in word):
            raise ValueError(f"words must hold letters from 0 to {letters - 1}; word {row} is {list(word)[:20]}")
    exact = []
    for row, number in enumerate(numbers):
        try:
            exact.append(Fraction(repr(float(number))) if isinstance(number, float | np.floating) else Fraction(number))
        except (ValueError, TypeError, OverflowError):
            raise ValueError(f"numbers must be finite numbers; number {row} is {number!r}") from None
    return exact


def _with_exact_weights(fit: Fit, fitted: NumberedWords, data: NumberedWords) -> AutomatonFromNumbers | None:
    """Return the automaton with the simplest weights that is as near to all words as the fit; None if there is none."""
    basis = _basis(fit)
    if basis is None:
        return None
    known = dict(zip(fitted.words, fitted.exact, strict=True)) if fit.error <= EXACT else {}
    within = max(3 * fit.error, 1e-6)
    target = _as_learned(fit, fitted, data)
    for denominator in _DENOMINATORS:

        def value(word: tuple[Any, ...], denominator: int = denominator) -> Fraction:
            if word in known:  # a float stands for all that round to it
                return known[word].limit_denominator(denominator) if data.floats else known[word]
            return Fraction(fit.value(word)).limit_denominator(denominator)

        if fit.error <= EXACT:
            block = [(*p, *s) for p in basis[0] for s in basis[1]]
            block += [(*p, letter, *s) for p in basis[0] for letter in range(data.letters) for s in basis[1]]
            if any(abs(float(value(word)) - fit.value(word)) > within * (1 + abs(fit.value(word))) for word in block):
                continue
        try:
            automaton = minimised(machine_of_block(value, tuple(range(data.letters)), *basis))
        except (IndexError, ZeroDivisionError):  # rounded so that the block is singular
            continue
        answer = _judged(automaton, fitted, data, exact_weights=True)
        if answer.exact or (
            answer.supported and answer.error <= target.error * (1 + _SIGMAS / math.sqrt(len(data.words)))
        ):
            return answer
    return None


def _basis(fit: Fit) -> tuple[list[Word], list[Word]] | None:
    """Return prefixes and suffixes, short ones first, with a regular block of values; None where there are none."""
    letters = len(fit.matrices)
    length = next(each for each in range(fit.states, -1, -1) if letters**each <= 2000)
    words = basis_words(range(letters), length)
    prefixes = _independent([_state_after(fit.initial, fit.matrices, word) for word in words], fit.states)
    transposed = np.transpose(fit.matrices, (0, 2, 1))
    suffixes = _independent([_state_after(fit.final, transposed, word[::-1]) for word in words], fit.states)
    if len(prefixes) < fit.states or len(suffixes) < fit.states:
        return None
    return [words[place] for place in prefixes], [words[place] for place in suffixes]


def _state_after(state: Floats, matrices: Floats, word: Sequence[Any]) -> Floats:
    for letter in word:
        state = matrices[letter] @ state
    return state


def _independent(vectors: Sequence[Floats], count: int) -> list[int]:
    """Return the places of vectors that are clearly independent, each the first of those that are nearly the best."""
    rest = np.array(vectors)
    size = float(np.abs(rest).max())
    places: list[int] = []
    for _ in range(count):
        norms = np.linalg.norm(rest, axis=1)
        if norms.max() <= 1e-9 * size:
            break
        places.append(int(np.flatnonzero(norms >= _NEARLY_BEST * norms.max())[0]))
        direction = rest[places[-1]] / norms[places[-1]]
        rest = rest - np.outer(rest @ direction, direction)
    return places


def _as_learned(fit: Fit, fitted: NumberedWords, data: NumberedWords) -> AutomatonFromNumbers:
    alphabet = tuple(range(data.letters))
    automaton = WeightedAutomaton(fit.initial, fit.matrices, fit.final, alphabet, weights="float")
    return _judged(automaton, fitted, data, exact_weights=False)


def _judged(
    automaton: WeightedAutomaton, fitted: NumberedWords, data: NumberedWords, *, exact_weights: bool
) -> AutomatonFromNumbers:
    """Compare an automaton with every word, exactly where its floats are near enough to be exact."""
    parts = [np.array(part, dtype=float) for part in (automaton.initial, automaton.matrices, automaton.final)]
    floats = Fit(parts[0], parts[1], parts[2])
    values = floats.values(data.tokens)
    errors = relative_errors(values, data)
    near = bool((np.abs(errors) <= 1e-6).all())
    exact = exact_weights and near and not data.contradicted and _equal_everywhere(automaton, data)
    count = len(fitted.values)
    inside, beyond = errors[:count], errors[count:]
    reasons = [
        f"{automaton.dim} states, fitted to the {count} shortest words (at most {len(fitted.words[-1])} letters)"
    ]
    supported = len(beyond) > 0 and _as_near(inside, beyond, automaton.dim**2 * data.letters)
    if exact:
        reasons.append(f"the automaton has exactly the number of each of the {len(data.words)} words")
    elif len(beyond):
        sizes = [math.sqrt(float((np.minimum(np.abs(part), 1e100) ** 2).mean())) for part in (inside, beyond)]
        reasons.append(
            f"relative error {sizes[0]:.3g} on the words it was fitted to, "
            f"{sizes[1]:.3g} on the {len(beyond)} longer ones"
        )
    explained = float((data.values**2).sum()) > 0 and float((errors**2).mean()) < 0.5 * float(
        ((data.values - data.values.mean()) ** 2 / data.unit**2).mean() + 1e-30
    )
    if exact:
        supported = len(beyond) >= _FEWEST_JUDGES
    elif not explained:
        supported = False
        reasons.append("it is hardly nearer to the numbers than their mean")
    with np.errstate(over="ignore", invalid="ignore"):
        error = float(np.sqrt(np.mean(np.minimum(np.abs(values - data.values), 1e150) ** 2)))
    return AutomatonFromNumbers(
        automaton,
        exact_weights,
        exact,
        0.0 if exact else error,
        count,
        len(beyond),
        supported,
        tuple(reasons),
    )


def _as_near(inside: Floats, beyond: Floats, weights: int) -> bool:
    """Whether errors beyond are no larger than those inside, whose fit has used up some of their freedom."""
    freedom = max(1, len(inside) - weights)
    first = float(inside @ inside) / freedom + 1e-24
    second = float(np.minimum(beyond**2, 1e200).mean())
    return math.log(second / first + 1e-300) <= _SIGMAS * math.sqrt(2 / freedom + 2 / len(beyond))


def _equal_everywhere(automaton: WeightedAutomaton, data: NumberedWords) -> bool:
    """Whether every word has exactly its number, computed with whole numbers over one common denominator."""
    weights = [*automaton.initial, *automaton.matrices.ravel(), *automaton.final]
    common = math.lcm(*(weight.denominator for weight in weights)) if weights else 1
    initial = [int(weight * common) for weight in automaton.initial]
    final = [int(weight * common) for weight in automaton.final]
    matrices = [[[int(weight * common) for weight in row] for row in matrix] for matrix in automaton.matrices]
    for word, number in zip(data.words, data.exact, strict=True):
        state = initial
        for letter in word:
            state = [sum(map(int.__mul__, row, state)) for row in matrices[letter]]
        value = Fraction(sum(map(int.__mul__, final, state)), common ** (len(word) + 2))
        if value != number and not (data.floats and float(value) == float(number)):
            return False
    return True
