"""A head that computes real values, against a weighted automaton: equal over the rationals, and how long in floats?

The stored numbers are dyadic rationals, so head and readout are a rational series.  Whether two such series are equal
is decided exactly.  The float model gives that series' value as long as no sum needs more bits than a float has; beyond
that it differs by at most ``((1 + γ)^n − 1)`` of the sum of the absolute values of all paths.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from transductor.automata.algebra import hadamard_product, only_word, scaled, sum_of
from transductor.automata.boolean import from_dfa
from transductor.automata.moore import MooreMachine
from transductor.automata.reduction import equivalent
from transductor.automata.weighted import WeightedAutomaton
from transductor.certification.ball_arithmetic import Array, power_above, sum_above, upper
from transductor.certification.exactness import dyadic_integers, exactness
from transductor.certification.reachability import label_after
from transductor.certification.subjects import SAFE_RANGE, Subject

_MOST_WORDS = 512
# The largest k for which 2^-k, and so every multiple of it, is neither rounded nor flushed to zero.
_FINEST = {"float64": 100, "float32": 100, "float16": 24, "bfloat16": 100}


@dataclass(frozen=True)
class SeriesFacts:
    """What is known about the values of the head and of the automaton.

    Attributes:
        equal: Whether the two series are equal on all words of at least one letter (of the domain).
        word: A shortest word on which they differ, by more than the tolerance where there is one.
        weights: Its two values, of the head and of the automaton.
        exact_up_to: The length up to which the float model computes its series without rounding; None for all lengths.
        near_up_to: The length up to which it is within the tolerance of the automaton's; None without a tolerance.
        reason: Why it never rounds, where it never does.
    """

    equal: bool
    word: tuple[int, ...] | None
    weights: tuple[Fraction, Fraction] | None
    exact_up_to: int | None
    near_up_to: int | None
    reason: str | None


def head_series(subject: Subject, *, absolute: bool = False) -> WeightedAutomaton:
    """Return the series of the stored numbers; with ``absolute``, of their absolute values: the size of the terms."""
    weight, bias = subject.readout()
    table, initial, final = subject.table.astype(np.float64), subject.initial, weight[0]
    dim = subject.dim
    if subject.lookback:  # the state before is carried along; its value before the first letter is never read
        wide = np.zeros((len(table), 2 * dim, 2 * dim))
        wide[:, :dim, :dim], wide[:, dim:, :dim] = table, np.eye(dim)
        table, initial = wide, np.concatenate((initial, np.zeros(dim, initial.dtype)))
    if bias[0] != 0:
        table = np.pad(table, ((0, 0), (0, 1), (0, 1)))
        table[:, -1, -1] = 1
        initial, final = np.append(initial, initial.dtype.type(1)), np.append(final, bias[0])
    if absolute:
        initial, table, final = np.abs(initial), np.abs(table), np.abs(final)
    return WeightedAutomaton(initial, table, final, tuple(range(subject.letters)))


def _on_letters(series: WeightedAutomaton) -> WeightedAutomaton:
    """Return the series with token v for letter number v."""
    rational = series.over("rational")
    return WeightedAutomaton(rational.initial, rational.matrices, rational.final, tuple(range(len(series.alphabet))))


def series_facts(
    subject: Subject, series: WeightedAutomaton, domain: MooreMachine | None, horizon: int, tolerance: float
) -> SeriesFacts:
    """Decide whether the series are equal, and how long the float model keeps to them."""
    ours, theirs = head_series(subject), _on_letters(series)
    sizes = head_series(subject, absolute=True)
    empty = ours(()) - theirs(())
    # A model says nothing about the empty word, so its value does not count.
    alike = sum_of(theirs, scaled(only_word((), theirs.alphabet), empty)) if empty else theirs
    left, right = ours, alike
    if domain is not None:
        language = from_dfa(domain.recognising(1), "rational")
        left, right = hadamard_product(ours, language), hadamard_product(alike, language)
    verdict = equivalent(left, right)
    exact, reason = _exact_up_to(subject, horizon)
    word: Any = verdict.word
    near = None
    if tolerance > 0 and verdict.equal:
        near = _near_up_to(subject, 0.0, tolerance, horizon)
    elif tolerance > 0:
        apart = _relative_difference(ours, theirs)
        near = 0 if apart is None else _near_up_to(subject, apart, tolerance, horizon)
        word, followed = _beyond(subject, ours, theirs, sizes, domain, tolerance, horizon)
        near = max(near, followed)
    weights = None if word is None else (ours(word), theirs(word))
    return SeriesFacts(verdict.equal, word, weights, exact, near, reason)


def _exact_up_to(subject: Subject, horizon: int) -> tuple[int | None, str | None]:
    """Return the length up to which no product or sum, in any order, needs more bits than there are, and the reason.

    The length is None where this holds for all lengths, and then there is a reason.
    """
    weight, bias = subject.readout()
    integers, unit = dyadic_integers(np.abs(subject.table))
    # Entrywise above every product of n letters or fewer, so that the largest entry grows with n.
    largest = integers.max(0)
    for state in range(subject.dim):
        largest[state, state] = max(largest[state, state], 2**unit)
    initial, start = dyadic_integers(np.abs(subject.initial))
    final, stop = dyadic_integers(np.abs(weight[0]))
    final = final[: subject.dim] + final[subject.dim :] if subject.lookback else final
    offset, constant = dyadic_integers(np.abs(bias))
    room, read = 2**subject.mantissa, 2**subject.read.bits

    def fits(states: Array, length: int) -> bool:
        """Return whether states up to these integers can be read out without rounding or underflow."""
        total = unit * length + start + stop
        finest = max(total, constant)
        value = (int(final @ states) << finest - total) + (int(offset[0]) << finest - constant)
        return bool(states.max() <= min(room, read) and value <= read and finest <= _FINEST[subject.precision])

    exact = exactness(subject)
    if exact is not None and fits(np.full(subject.dim, exact.largest * int(initial.sum()), dtype=object), 0):
        return None, exact.reason
    powers = [largest]
    while 2 ** len(powers) <= horizon and powers[-1].max() <= room:
        powers.append(powers[-1] @ powers[-1])
    length, product = 0, None
    for exponent in reversed(range(len(powers))):
        longer, after = powers[exponent] if product is None else powers[exponent] @ product, length + 2**exponent
        if after <= horizon and longer.max() <= room and fits(longer @ initial, after):
            length, product = after, longer
    return length, None


def _relative_difference(ours: WeightedAutomaton, theirs: WeightedAutomaton) -> float | None:
    """Return the largest relative difference of corresponding weights; None where shapes or zeros differ."""
    if ours.dim != theirs.dim:
        return None
    worst = Fraction(0)
    for mine, other in zip(
        (*ours.initial, *ours.matrices.reshape(-1), *ours.final),
        (*theirs.initial, *theirs.matrices.reshape(-1), *theirs.final),
        strict=True,
    ):
        if mine != other:
            if mine == 0:
                return None
            worst = max(worst, abs((mine - other) / mine))
    return float(upper(float(worst), 4))


def _near_up_to(subject: Subject, apart: float, tolerance: float, horizon: int) -> int:
    """Return the length up to which computed values are within ``tolerance`` of the other's, relative to the sizes.

    Weights that differ by ``apart`` each, and products that round by γ each, change a sum of paths of n + 2 weights by
    at most ``((1 + apart)(1 + γ))^(n+2) − 1`` of the sum of their absolute values.
    """
    step = subject.step_error()
    factor = upper((1 + apart) * (1 + step), 4)
    ends = upper((1 + apart) ** 2 * (1 + step) * (1 + subject.readout_error()), 8)

    def fits(length: int) -> bool:
        return bool(upper(power_above(factor, length) * ends, 4) - 1 <= tolerance) and _in_range(subject, length)

    low, high = 0, horizon + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _in_range(subject: Subject, length: int) -> bool:
    """Return whether no path of this length, and no sum of paths, can leave the range of the floats."""
    weight, bias = subject.readout()
    parts = [np.abs(part.astype(np.float64)) for part in (subject.table, subject.initial, weight[0])]
    smallest = [float(part[part > 0].min(initial=1.0)) for part in parts]
    letters, start, stop = (float(part.sum()) for part in parts)
    largest = (1 + start) * (1 + stop) * (1 + letters) + float(np.abs(bias[0]))
    letter = float(sum_above(parts[0].max(0), 0).max())
    limit = min(subject.range, SAFE_RANGE[subject.precision])
    above = power_above(max(1.0, letter), length) * largest
    below = power_above(upper(1 / smallest[0]), length) / (smallest[1] * smallest[2])
    return above < limit and below < limit


def _beyond(
    subject: Subject,
    ours: WeightedAutomaton,
    theirs: WeightedAutomaton,
    sizes: WeightedAutomaton,
    domain: MooreMachine | None,
    tolerance: float,
    horizon: int,
) -> tuple[tuple[int, ...] | None, int]:
    """Return the first short word with values further apart than the tolerance, and a length up to which none is."""
    letters = range(subject.letters)
    for length in range(1, horizon + 1):
        if subject.letters**length > _MOST_WORDS or not _in_range(subject, length):
            return None, length - 1
        words = list(itertools.product(letters, repeat=length))
        words = words if domain is None else [word for word in words if label_after(domain, word) == 1]
        rounds = upper(power_above(upper(1 + subject.step_error()), length + 1) * (1 + subject.readout_error()), 4) - 1
        all_near = True
        for word, mine, other, size in zip(words, *(each.batch(words) for each in (ours, theirs, sizes)), strict=True):
            if abs(mine - other) > Fraction(tolerance) * size:
                return word, length - 1
            all_near &= abs(mine - other) + Fraction(rounds) * size <= Fraction(tolerance) * size
        if not all_near:
            return None, length - 1
    return None, horizon
