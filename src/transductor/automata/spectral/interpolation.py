"""The exact machine of a function whose values are rational: a Hankel block, inverted without rounding."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from transductor.automata.spectral.hankel_block import basis_words
from transductor.automata.weighted import WeightedAutomaton
from transductor.automata.words import Symbol

Word = tuple[Symbol, ...]


class NotRational(ValueError):
    """No machine within the limits has these values; the message names a word, or the rank that was reached."""


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
    """The minimal automaton of a function on words, over the rationals.

    Words up to length 1, 2, … are prefixes and suffixes, until the machine agrees with the function at random words.  A
    state is what the chosen suffixes would give, so that rational values give rational weights.

    Args:
        function: Takes a tuple of letters, gives an integer or a Fraction.
        alphabet: The letters.
        max_length: Longest prefixes and suffixes.
        max_rank: The most states.
        checks: Random words the machine is compared at, besides a power of every letter.
        check_length: Their greatest length.
        seed: Of these random words.

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
        machine = _machine(value, letters, prefixes, suffixes)
        wrong = next((word for word in probes if machine(word) != value(word)), None)
        if wrong is None:
            return machine
        failure = (
            f"a machine of {len(prefixes)} states, found on words of up to {2 * length + 1} letters, gives "
            f"{machine(wrong)} at {wrong!r}, where the function gives {value(wrong)}"
        )
    raise NotRational(failure)


def _independent(value: Callable[[Word], Fraction], words: list[Word]) -> tuple[list[Word], list[Word]]:
    """Prefixes whose rows are a basis of the block, and as many suffixes that tell them apart."""
    prefixes: list[Word] = []
    suffixes: list[Word] = []
    echelon: list[tuple[int, list[Fraction]]] = []
    for prefix in words:
        row = [value(prefix + suffix) for suffix in words]
        for pivot, other in echelon:
            if row[pivot]:
                factor = row[pivot] / other[pivot]
                row = [entry - factor * each for entry, each in zip(row, other, strict=True)]
        pivot = next((place for place, entry in enumerate(row) if entry), -1)
        if pivot >= 0:
            echelon.append((pivot, row))
            prefixes.append(prefix)
            suffixes.append(words[pivot])
    return prefixes, suffixes


def _machine(
    value: Callable[[Word], Fraction], letters: Word, prefixes: list[Word], suffixes: list[Word]
) -> WeightedAutomaton:
    rank = len(prefixes)
    if rank == 0:
        zero = [[Fraction(0)]]
        return WeightedAutomaton([Fraction(0)], [zero for _ in letters], [Fraction(0)], letters)
    # Columns are the states after the prefixes, in the coordinates of the suffixes.
    inverse = _inverted([[value(prefix + suffix) for prefix in prefixes] for suffix in suffixes])
    matrices = []
    for letter in letters:
        moved = [[value((*prefix, letter, *suffix)) for prefix in prefixes] for suffix in suffixes]
        matrices.append(_times(moved, inverse))
    initial = [value(suffix) for suffix in suffixes]
    # What a state is worth now, from what the prefixes are worth.
    final = _times([[value(prefix) for prefix in prefixes]], inverse)[0]
    return WeightedAutomaton(initial, matrices, final, letters)


def _times(left: list[list[Fraction]], right: list[list[Fraction]]) -> list[list[Fraction]]:
    columns = list(zip(*right, strict=True))
    return [[sum((a * b for a, b in zip(row, column, strict=True)), Fraction(0)) for column in columns] for row in left]


def _inverted(matrix: list[list[Fraction]]) -> list[list[Fraction]]:
    """Gauss and Jordan; the matrix is regular."""
    size = len(matrix)
    rows = [[*row, *(Fraction(int(i == j)) for j in range(size))] for i, row in enumerate(matrix)]
    for column in range(size):
        pivot = next(place for place in range(column, size) if rows[place][column])
        rows[column], rows[pivot] = rows[pivot], rows[column]
        rows[column] = [entry / rows[column][column] for entry in rows[column]]
        for place in range(size):
            if place != column and rows[place][column]:
                factor = rows[place][column]
                rows[place] = [entry - factor * each for entry, each in zip(rows[place], rows[column], strict=True)]
    return [row[size:] for row in rows]
