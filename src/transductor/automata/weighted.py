"""Weighted automata as values: what they are, and the weight that they give to a word."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from transductor.automata.operators import applied
from transductor.automata.weights import Array, Weights, weights_named
from transductor.automata.words import Symbol, Word, listed, numbered, spelled


class WeightedAutomaton:
    """An immutable value that is the series ``word ↦ final · M_{w_n} ⋯ M_{w_1} · initial``.

    States are columns: ``matrices[letter][to, from]``.  Formats that write rows are transposed where they are read.

    Args:
        initial: Weights ``(D)`` of starting in each state.
        matrices: One ``(D, D)`` per letter: an array ``(V, D, D)``, a sequence, or a mapping from letters.
        final: Weights ``(D)`` of stopping in each state.
        alphabet: The letters, in the order of ``matrices``: distinct hashable symbols.  May be left out with a mapping.
        weights: ``"rational"`` (exact), ``"float"``, ``"boolean"``, ``"max_plus"``, ``"min_plus"`` or ``"log"``.

    Operators: ``A + B``, ``A - B``, ``2 * A``, ``A * B`` (Cauchy product), ``A & B`` (Hadamard product), ``A ** n``;
    ``A == B`` when the series are equal (rational, boolean and float weights).
    """

    __slots__ = ("_index", "alphabet", "final", "initial", "matrices", "weights")

    alphabet: tuple[Symbol, ...]
    initial: Array
    matrices: Array
    final: Array
    weights: Weights
    _index: dict[Symbol, int]

    def __init__(
        self,
        initial: object,
        matrices: object,
        final: object,
        alphabet: Sequence[Symbol] | None = None,
        *,
        weights: str | Weights = "rational",
    ) -> None:
        ring = weights_named(weights)
        if isinstance(matrices, Mapping):
            alphabet = tuple(matrices) if alphabet is None else tuple(alphabet)
            if set(alphabet) != set(matrices):
                raise ValueError(f"alphabet must name the letters of matrices, {list(matrices)!r}; got {alphabet!r}")
            matrices = [matrices[letter] for letter in alphabet]
        if alphabet is None:
            raise ValueError("alphabet must be given when matrices is not a mapping from letters")
        index = numbered(alphabet)
        letters = tuple(index)
        start, stop = ring.array(initial), ring.array(final)
        dim = len(start) if start.ndim == 1 else -1
        if dim < 0 or stop.shape != (dim,):
            raise ValueError(f"initial and final must be vectors of one length; got {start.shape} and {stop.shape}")
        table = ring.array(list(matrices)) if letters else ring.zeros(0, dim, dim)  # type: ignore[call-overload]
        if dim == 0 and table.size == 0:
            table = ring.zeros(len(letters), 0, 0)
        shape = (len(letters), dim, dim)
        if table.shape != shape:
            raise ValueError(
                f"matrices must have shape {shape}, one for each of the {len(letters)} letters; got {table.shape}"
            )
        for name, value in (("initial", start), ("matrices", table), ("final", stop)):
            value.flags.writeable = False
            object.__setattr__(self, name, value)
        object.__setattr__(self, "alphabet", letters)
        object.__setattr__(self, "weights", ring)
        object.__setattr__(self, "_index", index)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a WeightedAutomaton is a value: {name} cannot be set")

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (self.initial, self.matrices, self.final, self.alphabet, self.weights.name)

    @property
    def dim(self) -> int:
        """Number of states."""
        return len(self.initial)

    def letter_index(self, letter: Symbol) -> int:
        """Return the place of a letter in the alphabet."""
        if letter not in self._index:
            raise ValueError(f"letter must be one of {listed(self.alphabet)}; got {letter!r}")
        return self._index[letter]

    def indices(self, word: Word) -> list[int]:
        """Return the places in the alphabet of a word's letters; a string is a sequence of characters."""
        return spelled(word, self._index)

    def __call__(self, word: Word) -> Any:
        """Return the weight of a word: a Fraction, a float or a bool."""
        state = self.initial
        for letter in self.indices(word):
            state = self.weights.product(self.matrices[letter], state)
        return self._scalar(self.weights.product(self.final[None, :], state)[0])

    def batch(self, words: Sequence[Word]) -> Array:
        """Return the weights of many words ``(N)``.  Prefixes they share are read once."""
        values = self.weights.zeros(len(words))
        known: dict[tuple[int, ...], Array] = {(): self.initial}
        read = [tuple(self.indices(word)) for word in words]
        for place in sorted(range(len(read)), key=read.__getitem__):
            letters = read[place]
            while known and next(reversed(known)) != letters[: len(next(reversed(known)))]:
                known.popitem()
            last = next(reversed(known))
            state = known[last]
            for end in range(len(last), len(letters)):
                state = self.weights.product(self.matrices[letters[end]], state)
                known[letters[: end + 1]] = state
            values[place] = self.weights.product(self.final[None, :], state)[0]
        return values

    def trajectory(self, word: Word) -> Array:
        """Return the states ``(len(word) + 1, D)`` before the first letter and after each."""
        states = [self.initial]
        for letter in self.indices(word):
            states.append(self.weights.product(self.matrices[letter], states[-1]))
        return np.stack(states)

    def support(self, max_length: int) -> Iterator[tuple[tuple[Symbol, ...], Any]]:
        """Yield words of non-zero weight up to ``max_length``, shortest first, then in the order of the alphabet."""
        level: list[tuple[tuple[Symbol, ...], Array]] = [((), self.initial)]
        for length in range(max_length + 1):
            for word, state in level:
                weight = self.weights.product(self.final[None, :], state)[0]
                if weight != self.weights.zero:
                    yield word, self._scalar(weight)
            if length < max_length:
                level = [
                    ((*word, letter), after)
                    for word, state in level
                    for letter, matrix in zip(self.alphabet, self.matrices, strict=True)
                    if not self.weights.is_zero(after := self.weights.product(matrix, state)).all()
                ]

    def words(self, max_length: int) -> Iterator[tuple[Symbol, ...]]:
        """Yield all words up to ``max_length``, shortest first."""
        for length in range(max_length + 1):
            yield from itertools.product(self.alphabet, repeat=length)

    def over(self, weights: str | Weights) -> WeightedAutomaton:
        """Return the same numbers as other weights: rationals as floats, 0 and 1 as truth values.

        Floats become the rationals they are.  Between numbers and tropical or log weights nothing is converted.
        """
        ring = weights_named(weights)
        numbers = {"rational", "float", "boolean"}
        if ring is not self.weights and not {ring.name, self.weights.name} <= numbers:
            raise ValueError(f"weights of {self.weights.name!r} cannot be read as {ring.name!r}")
        return WeightedAutomaton(self.initial, self.matrices, self.final, self.alphabet, weights=ring)

    def with_alphabet(self, alphabet: Sequence[Symbol]) -> WeightedAutomaton:
        """Return the same series with the letters in another order."""
        if set(alphabet) != set(self.alphabet) or len(alphabet) != len(self.alphabet):
            raise ValueError(f"alphabet must hold the letters {listed(self.alphabet)}; got {listed(tuple(alphabet))}")
        order = [self._index[letter] for letter in alphabet]
        return WeightedAutomaton(self.initial, self.matrices[order], self.final, tuple(alphabet), weights=self.weights)

    def identical(self, other: WeightedAutomaton) -> bool:
        """Whether all numbers are the same, not only the series."""
        arrays = ("initial", "matrices", "final")
        return (
            self.alphabet == other.alphabet
            and self.weights is other.weights
            and all(np.array_equal(getattr(self, name), getattr(other, name)) for name in arrays)
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, WeightedAutomaton):
            return NotImplemented
        return bool(applied(WeightedAutomaton, "==", self, other))

    __hash__ = None  # type: ignore[assignment]

    def __add__(self, other: WeightedAutomaton) -> WeightedAutomaton:
        return applied(WeightedAutomaton, "+", self, other) if isinstance(other, WeightedAutomaton) else NotImplemented

    def __sub__(self, other: WeightedAutomaton) -> WeightedAutomaton:
        return applied(WeightedAutomaton, "-", self, other) if isinstance(other, WeightedAutomaton) else NotImplemented

    def __and__(self, other: WeightedAutomaton) -> WeightedAutomaton:
        return applied(WeightedAutomaton, "&", self, other) if isinstance(other, WeightedAutomaton) else NotImplemented

    def __neg__(self) -> WeightedAutomaton:
        return self * -1

    def __mul__(self, other: Any) -> WeightedAutomaton:
        sign = "product" if isinstance(other, WeightedAutomaton) else "multiple"
        return applied(WeightedAutomaton, sign, self, other)

    def __rmul__(self, other: Any) -> WeightedAutomaton:
        return applied(WeightedAutomaton, "multiple", self, other)

    def __pow__(self, exponent: int) -> WeightedAutomaton:
        return applied(WeightedAutomaton, "**", self, exponent)

    def _scalar(self, value: Any) -> Any:
        return value.item() if isinstance(value, np.generic) else value

    def __repr__(self) -> str:
        return f"<WeightedAutomaton: {self.dim} states over {listed(self.alphabet)}, {self.weights.name}>"

    def _repr_svg_(self) -> str:
        """Return the picture that a notebook shows."""
        return str(applied(WeightedAutomaton, "svg", self))


def _rebuilt(initial: Array, matrices: Array, final: Array, alphabet: tuple[Symbol, ...], weights: str) -> Any:
    return WeightedAutomaton(initial, matrices, final, alphabet, weights=weights)
