"""The syntactic monoid: what words do to the states of the minimal automaton, and whether there are groups in it.

Words that do the same are one element.  A regular language is star-free, and so definable in first-order logic, exactly
if its syntactic monoid has no group but trivial ones (Schützenberger; McNaughton and Papert).
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import cached_property
from typing import final

import networkx
import numpy as np

from transductor.automata.finite_algebra import minimised
from transductor.automata.finite_automata import DFA
from transductor.automata.graphs import Integers, explored, graph_of
from transductor.automata.words import Symbol, Word, numbered, spelled


@final
@dataclass(frozen=True, eq=False, repr=False)
class SyntacticMonoid:
    """The syntactic monoid of a language; elements are numbered by their shortest words, and element 0 is the identity.

    ``transformations[x, state]`` is where element ``x`` takes a state of ``dfa``, the minimal automaton;
    ``times_letter[x, letter]`` is ``x`` followed by a letter; ``words[x]`` is the shortest word of ``x``.
    """

    dfa: DFA
    transformations: Integers
    times_letter: Integers
    words: tuple[tuple[Symbol, ...], ...]

    identity = 0

    def __len__(self) -> int:
        return len(self.words)

    def __repr__(self) -> str:
        return f"SyntacticMonoid({len(self)} elements, {len(self.idempotents)} idempotents, of {self.dfa!r})"

    def element(self, word: Word, after: int = 0) -> int:
        """Return the element of ``word``, multiplied from the left by the element ``after``."""
        for letter in spelled(word, numbered(self.dfa.alphabet)):
            after = self.times_letter.item(after, letter)
        return after

    def multiplied(self, first: int, second: int) -> int:
        """Return the element of a word of ``first`` followed by a word of ``second``."""
        return self.element(self.words[second], after=first)

    @cached_property
    def table(self) -> Integers:
        """The multiplication table, ``table[first, second]``: as many entries as the square of the size."""
        size = len(self)
        products = np.zeros((size, size), dtype=np.int64)
        products[:, 0] = np.arange(size)
        numbers = numbered(self.dfa.alphabet)
        element_of_word = {word: element for element, word in enumerate(self.words)}
        for word, second in list(element_of_word.items())[1:]:
            shorter = element_of_word[word[:-1]]  # a shortest word is one of them and a letter
            products[:, second] = self.times_letter[products[:, shorter], numbers[word[-1]]]
        return products

    @cached_property
    def idempotents(self) -> tuple[int, ...]:
        """The elements that equal their squares."""
        squares = _composed(self.transformations, self.transformations)
        return tuple(np.flatnonzero((squares == self.transformations).all(axis=1)).tolist())

    @cached_property
    def accepting(self) -> frozenset[int]:
        """The elements whose words are in the language."""
        reached = self.transformations[:, self.dfa.start].tolist()
        return frozenset(element for element, state in enumerate(reached) if state in self.dfa.accepting)


@final
@dataclass(frozen=True, slots=True)
class Aperiodicity:
    """Whether a language is star-free and, if not, a group that forbids it.

    Then ``word`` is a shortest word x with ``x^index = x^(index + period)`` for the smallest ``index`` and a smallest
    ``period > 1``, which is the order of the cyclic group of its powers; ``subgroup_size`` is the number of elements of
    the largest group that this cyclic group lies in.
    """

    aperiodic: bool
    word: tuple[Symbol, ...] | None = None
    index: int | None = None
    period: int | None = None
    subgroup_size: int | None = None

    def __bool__(self) -> bool:
        return self.aperiodic


@final
@dataclass(frozen=True, slots=True, eq=False)
class GreenClasses:
    """The class of every element: of the same right ideal, left ideal, two-sided ideal, and ``right ∩ left``.

    These are Green's relations R, L, J (equal to D, as monoids here are finite) and H.
    """

    right: Integers
    left: Integers
    two_sided: Integers
    both: Integers


def syntactic_monoid(dfa: DFA, limit: int = 20_000) -> SyntacticMonoid:
    """Return all elements, by their shortest words; refused past ``limit`` elements."""
    if operator.index(limit) < 1:
        raise ValueError(f"limit must be at least 1; got {limit}")
    dfa = minimised(dfa)

    def followed_by_letters(transformation: bytes) -> list[bytes]:
        return [product.tobytes() for product in dfa.transitions[np.frombuffer(transformation, dtype=np.int64)].T]

    identity = np.arange(dfa.states, dtype=np.int64)
    refusal = f"dfa has a syntactic monoid of more than limit = {limit} elements"
    elements, rows = explored([identity.tobytes()], followed_by_letters, limit=limit, refusal=refusal)
    words: list[tuple[Symbol, ...]] = [()]
    for element, row in enumerate(rows):
        for symbol, product in zip(dfa.alphabet, row, strict=True):
            if product == len(words):  # elements are numbered in the order in which they are met
                words.append((*words[element], symbol))
    times_letter = np.array(rows, dtype=np.int64).reshape(len(rows), len(dfa.alphabet))
    transformations = np.stack([np.frombuffer(element, dtype=np.int64) for element in elements])
    return SyntacticMonoid(dfa, transformations, times_letter, tuple(words))


def is_aperiodic(dfa: DFA, limit: int = 20_000) -> Aperiodicity:
    """Whether the language is star-free; refused if its syntactic monoid has more than ``limit`` elements."""
    monoid = syntactic_monoid(dfa, limit)
    high = monoid.transformations
    # The exponent is at least the number of states: from there on, powers repeat.
    for _ in range(monoid.dfa.states.bit_length()):
        high = _composed(high, high)
    periodic = np.flatnonzero((_composed(high, monoid.transformations) != high).any(axis=1))
    if not len(periodic):
        return Aperiodicity(True)
    element = int(periodic[0])
    powers = [0]
    while (following := monoid.multiplied(powers[-1], element)) not in powers:
        powers.append(following)
    index = powers.index(following)
    period = len(powers) - index
    idempotent = next(power for power in powers[index:] if power in monoid.idempotents)
    return Aperiodicity(False, monoid.words[element], index, period, _subgroup_size(monoid, idempotent))


def green_classes(monoid: SyntacticMonoid) -> GreenClasses:
    """Return Green's relations: the strongly connected components of the graphs of multiplication by letters."""
    rows = {transformation.tobytes(): number for number, transformation in enumerate(monoid.transformations)}
    letter_times = np.empty_like(monoid.times_letter)
    for letter in range(len(monoid.dfa.alphabet)):
        products = np.ascontiguousarray(monoid.transformations[:, monoid.dfa.transitions[:, letter]])
        letter_times[:, letter] = [rows[product.tobytes()] for product in products]
    right, left = _strongly_connected(monoid.times_letter), _strongly_connected(letter_times)
    two_sided = _strongly_connected(np.hstack([monoid.times_letter, letter_times]))
    both = np.unique(right * len(monoid) + left, return_inverse=True)[1].astype(np.int64)
    return GreenClasses(right, left, two_sided, both)


def _composed(first: Integers, second: Integers) -> Integers:
    """Return, row by row, the transformation ``first`` followed by ``second``."""
    return np.take_along_axis(second, first, axis=1)


def _subgroup_size(monoid: SyntacticMonoid, idempotent: int) -> int:
    """Return the size of the largest group whose identity is ``idempotent``: e·x·e that permute what e keeps."""
    kept = np.unique(monoid.transformations[idempotent])
    local = monoid.transformations[idempotent][monoid.transformations[:, kept]]
    permutes = (np.sort(local, axis=1) == kept).all(axis=1)
    return len(np.unique(local[permutes], axis=0))


def _strongly_connected(successors: Integers) -> Integers:
    """Return for every node the number of its strongly connected component."""
    component_of = np.empty(len(successors), dtype=np.int64)
    for number, component in enumerate(networkx.strongly_connected_components(graph_of(successors.tolist()))):
        component_of[list(component)] = number
    return component_of
