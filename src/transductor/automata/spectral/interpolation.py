"""The exact machine of a function with rational values: a Hankel block is inverted without rounding."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from transductor.automata.spectral.hankel_block import basis_words
from transductor.automata.weighted import WeightedAutomaton
from transductor.automata.weights import WEIGHTS, Array
from transductor.automata.words import Symbol

Word = tuple[Symbol, ...]
Values = Callable[[Word], Fraction]


class NotRational(ValueError):
    """There is no machine within the limits that has these values; the message names a word, or the rank reached."""


def interpolated(
    function: Callable[[Word], Any],
    alphabet: Sequence[Symbol],
    *,
    max_length: int = 3,
    max_rank: int = 64,
    checks: int = 200,
    check_length: int = 24,
    seed: int = 0,
) -> WeightedAutomaton:
    """Return the minimal automaton of a function on words, over the rationals.

    Words up to length 1, 2, … are prefixes and suffixes, until the machine agrees with the function at random words.  A
    state consists of the values of the chosen suffixes, so that rational values give rational weights.

    Args:
        function: Takes a tuple of letters, gives an integer or a Fraction.
        alphabet: The letters.
        max_length: Longest prefixes and suffixes.
        max_rank: The most states.
        checks: How many random words the machine is compared at, besides a power of every letter.
        check_length: Their greatest length.
        seed: Seed of these random words.

    Raises:
        NotRational: If there are more states than allowed, or a random word still has another value in the end.
    """
    if max_length < 1:
        raise ValueError(f"max_length must be a positive integer; got {max_length!r}")
    letters = tuple(alphabet)
    known: dict[Word, Fraction] = {}

    def value(word: Word) -> Fraction:
        if word not in known:
            known[word] = Fraction(function(word))
        return known[word]

    draw = random.Random(seed)
    # Powers of a letter too: random words hardly ever have one letter many times over.
    probes: list[Word] = [(letter,) * check_length for letter in letters]
    probes += [tuple(draw.choices(letters, k=draw.randint(0, check_length))) for _ in range(checks)]
    failure = ""
    for length in range(1, max_length + 1):
        prefixes, suffixes = _independent(value, basis_words(letters, length))
        if len(prefixes) > max_rank:
            raise NotRational(f"function needs more than max_rank = {max_rank} states")
        machine = machine_of_block(value, letters, prefixes, suffixes)
        wrong = next((word for word in probes if machine(word) != value(word)), None)
        if wrong is None:
            return machine
        failure = (
            f"a machine of {len(prefixes)} states, computed from words of up to {2 * length + 1} letters, gives "
            f"{machine(wrong)} at {wrong!r}, where the function gives {value(wrong)}"
        )
    raise NotRational(failure)


def _independent(value: Values, words: list[Word]) -> tuple[list[Word], list[Word]]:
    """Return prefixes whose rows are a basis of the block, and as many suffixes that tell them apart."""
    prefixes: list[Word] = []
    suffixes: list[Word] = []
    echelon: list[tuple[int, Array]] = []
    for prefix in words:
        row = _fractions([value(prefix + suffix) for suffix in words])
        for pivot, other in echelon:
            if row[pivot]:
                row = row - row[pivot] / other[pivot] * other
        pivots = np.flatnonzero(row)
        if len(pivots):
            echelon.append((int(pivots[0]), row))
            prefixes.append(prefix)
            suffixes.append(words[pivots[0]])
    return prefixes, suffixes


def machine_of_block(value: Values, letters: Word, prefixes: list[Word], suffixes: list[Word]) -> WeightedAutomaton:
    """Return the automaton whose states are the values of the suffixes, given a regular block of as many prefixes."""
    if not prefixes:
        return WeightedAutomaton([0], [[[0]] for _ in letters], [0], letters)
    # Columns are the states after the prefixes, in the coordinates of the suffixes.
    inverse = _inverted(_fractions([[value(prefix + suffix) for prefix in prefixes] for suffix in suffixes]))
    matrices = [
        _fractions([[value((*prefix, letter, *suffix)) for prefix in prefixes] for suffix in suffixes]) @ inverse
        for letter in letters
    ]
    # The value of a state follows from the values of the prefixes.
    final = _fractions([value(prefix) for prefix in prefixes]) @ inverse
    return WeightedAutomaton([value(suffix) for suffix in suffixes], matrices, final, letters)


def _fractions(values: list[Any]) -> Array:
    return np.array(values, dtype=object)


def _inverted(matrix: Array) -> Array:
    """Return the inverse of a regular matrix, by Gauss and Jordan."""
    size = len(matrix)
    rows = np.concatenate((matrix, WEIGHTS["rational"].eye(size)), axis=1)
    for column in range(size):
        pivot = column + int(np.flatnonzero(rows[column:, column])[0])
        rows[[column, pivot]] = rows[[pivot, column]]
        rows[column] /= rows[column, column]
        for place in np.flatnonzero(rows[:, column]):
            if place != column:
                rows[place] -= rows[place, column] * rows[column]
    return rows[:, size:]
