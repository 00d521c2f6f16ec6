"""Rational operations: pure functions that make new series from old, which operators of weighted automata call.

Two operands must have the same letters, in any order; :func:`extended` adds letters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from transductor.automata.finite_automata import DFA
from transductor.automata.operators import operator
from transductor.automata.weighted import WeightedAutomaton
from transductor.automata.weights import Array, Weights, weights_named
from transductor.automata.words import Symbol, Word, numbered, spelled


def zero_series(alphabet: Sequence[Symbol], weights: str | Weights = "rational") -> WeightedAutomaton:
    """Return the series that is 0 on every word; it has no states."""
    ring = weights_named(weights)
    return WeightedAutomaton(ring.zeros(0), ring.zeros(len(alphabet), 0, 0), ring.zeros(0), alphabet, weights=ring)


def all_words(alphabet: Sequence[Symbol], weights: str | Weights = "rational") -> WeightedAutomaton:
    """Return the series that is 1 on every word, the unit of the Hadamard product."""
    ring = weights_named(weights)
    return WeightedAutomaton([ring.one], [[[ring.one]]] * len(alphabet), [ring.one], alphabet, weights=ring)


def only_word(word: Word, alphabet: Sequence[Symbol], weights: str | Weights = "rational") -> WeightedAutomaton:
    """Return the series that is 1 on one word and 0 elsewhere; for the empty word, the unit of the Cauchy product."""
    ring, dim = weights_named(weights), len(word) + 1
    matrices = ring.zeros(len(alphabet), dim, dim)
    for place, letter in enumerate(spelled(word, numbered(alphabet))):
        matrices[letter, place + 1, place] = ring.one
    eye = ring.eye(dim)
    return WeightedAutomaton(eye[0], matrices, eye[-1], alphabet, weights=ring)


def _matched(a: WeightedAutomaton, b: WeightedAutomaton) -> WeightedAutomaton:
    """Return ``b`` with the letters in the order of ``a``; refuse other letters or other weights."""
    if a.weights is not b.weights:
        raise ValueError(f"both automata must have the same weights; got {a.weights.name!r} and {b.weights.name!r}")
    if set(a.alphabet) != set(b.alphabet):
        only = ", ".join(sorted(map(repr, set(a.alphabet) ^ set(b.alphabet)))[:6])
        raise ValueError(f"both automata must have the same letters; {only} are in one alone (extended() adds letters)")
    return b if a.alphabet == b.alphabet else b.with_alphabet(a.alphabet)


def _block(ring: Weights, rows: Sequence[Sequence[Array | None]], sizes: Sequence[int]) -> Array:
    """Return a block matrix; None stands for a block of zeros."""
    out = ring.zeros(sum(sizes), sum(sizes))
    edges = np.concatenate(([0], np.cumsum(sizes)))
    for i, row in enumerate(rows):
        for j, block in enumerate(row):
            if block is not None:
                out[edges[i] : edges[i + 1], edges[j] : edges[j + 1]] = block
    return out


@operator(WeightedAutomaton, "+")
def sum_of(a: WeightedAutomaton, b: WeightedAutomaton) -> WeightedAutomaton:
    """Return ``S + T``, on the direct sum of the states."""
    b = _matched(a, b)
    ring, sizes = a.weights, (a.dim, b.dim)
    matrices = [_block(ring, ((x, None), (None, y)), sizes) for x, y in zip(a.matrices, b.matrices, strict=True)]
    initial, final = np.concatenate((a.initial, b.initial)), np.concatenate((a.final, b.final))
    return WeightedAutomaton(initial, matrices, final, a.alphabet, weights=ring)


@operator(WeightedAutomaton, "-")
def difference(a: WeightedAutomaton, b: WeightedAutomaton) -> WeightedAutomaton:
    """Return ``S − T``, for weights that can be subtracted."""
    if not a.weights.field:
        raise ValueError(f"a difference needs weights 'rational' or 'float'; got {a.weights.name!r}")
    return sum_of(a, scaled(b, -1))


@operator(WeightedAutomaton, "multiple")
def scaled(a: WeightedAutomaton, factor: Any) -> WeightedAutomaton:
    """Return ``k · S``, with the product of the weights: over (max,+) this adds."""
    weight = a.weights.number(factor)
    initial = np.asarray(a.weights.times(a.initial, weight), dtype=a.initial.dtype)
    return WeightedAutomaton(initial, a.matrices, a.final, a.alphabet, weights=a.weights)


@operator(WeightedAutomaton, "product")
def cauchy_product(a: WeightedAutomaton, b: WeightedAutomaton) -> WeightedAutomaton:
    """Return ``w ↦ Σ_{uv = w} S(u) T(v)``: whenever the first could stop, the second starts as well."""
    b = _matched(a, b)
    ring, sizes = a.weights, (a.dim, b.dim)
    stop = ring.product(a.final[None, :], a.initial)[0]
    matrices = []
    for x, y in zip(a.matrices, b.matrices, strict=True):
        stopping = ring.product(a.final[None, :], x)  # (1, D): what one more letter leaves to the second
        matrices.append(_block(ring, ((x, None), (ring.times(b.initial[:, None], stopping), y)), sizes))
    initial = np.concatenate((a.initial, np.asarray(ring.times(b.initial, stop), dtype=a.initial.dtype)))
    final = np.concatenate((ring.zeros(a.dim), b.final))
    return WeightedAutomaton(initial, matrices, final, a.alphabet, weights=ring)


def starred(a: WeightedAutomaton) -> WeightedAutomaton:
    """Return ``1 + S + S² + …``, which exists when the weight of the empty word lets the sum converge."""
    ring = a.weights
    again = _star_of_weight(ring, a(()))
    restart = np.asarray(ring.times(a.initial, again), dtype=a.initial.dtype)
    matrices = []
    for x in a.matrices:
        stopping = ring.product(a.final[None, :], x)
        out = ring.zeros(a.dim + 1, a.dim + 1)
        out[: a.dim, : a.dim] = ring.plus(x, ring.times(restart[:, None], stopping))
        out[a.dim, : a.dim] = stopping[0]
        matrices.append(out)
    initial = np.concatenate((restart, ring.array([ring.one])))
    final = np.concatenate((ring.zeros(a.dim), ring.array([again])))
    return WeightedAutomaton(initial, matrices, final, a.alphabet, weights=ring)


def _star_of_weight(ring: Weights, weight: Any) -> Any:
    """Return ``1 + s + s² + …`` of the empty word's weight."""
    if ring.name == "boolean":
        return True
    if ring.field and abs(weight) < 1:
        return ring.one / (ring.one - weight)
    if (ring.name == "max_plus" and weight <= 0) or (ring.name == "min_plus" and weight >= 0):
        return ring.one
    if ring.name == "log" and weight < 0:
        return -math.log1p(-math.exp(weight))
    bound = {"max_plus": "≤ 0", "min_plus": "≥ 0", "log": "< 0"}.get(ring.name, "of absolute value < 1")
    raise ValueError(f"the star converges only if the weight of the empty word is {bound}; it is {weight}")


@operator(WeightedAutomaton, "**")
def power(a: WeightedAutomaton, exponent: int) -> WeightedAutomaton:
    """Return ``Sⁿ``, by Cauchy products; ``S⁰`` is 1 on the empty word alone."""
    if not isinstance(exponent, int) or isinstance(exponent, bool) or exponent < 0:
        raise ValueError(f"exponent must be an integer of at least 0; got {exponent!r}")
    result = only_word((), a.alphabet, a.weights)
    for _ in range(exponent):
        result = cauchy_product(result, a)
    return result


@operator(WeightedAutomaton, "&")
def hadamard_product(a: WeightedAutomaton, b: WeightedAutomaton) -> WeightedAutomaton:
    """Return ``w ↦ S(w) · T(w)``, on the tensor product of the states."""
    b = _matched(a, b)
    ring = a.weights
    matrices = [ring.kronecker(x, y) for x, y in zip(a.matrices, b.matrices, strict=True)]
    return _on_tensor_product(a, b, matrices)


def shuffle_product(a: WeightedAutomaton, b: WeightedAutomaton) -> WeightedAutomaton:
    """Return the sum of ``S(u) T(v)`` over all ways to split a word into two subsequences u and v."""
    b = _matched(a, b)
    ring, left, right = a.weights, a.weights.eye(a.dim), a.weights.eye(b.dim)
    matrices = [
        ring.plus(ring.kronecker(x, right), ring.kronecker(left, y))
        for x, y in zip(a.matrices, b.matrices, strict=True)
    ]
    return _on_tensor_product(a, b, matrices)


def _on_tensor_product(a: WeightedAutomaton, b: WeightedAutomaton, matrices: list[Array]) -> WeightedAutomaton:
    ring = a.weights
    initial, final = ring.kronecker(a.initial, b.initial), ring.kronecker(a.final, b.final)
    return WeightedAutomaton(initial, matrices, final, a.alphabet, weights=ring)


def reversed_series(a: WeightedAutomaton) -> WeightedAutomaton:
    """Return ``w ↦ S(w reversed)``: matrices are transposed, initial and final weights exchanged."""
    return WeightedAutomaton(a.final, a.matrices.transpose(0, 2, 1), a.initial, a.alphabet, weights=a.weights)


def left_quotient(a: WeightedAutomaton, word: Word) -> WeightedAutomaton:
    """Return ``w ↦ S(u w)``."""
    state = a.trajectory(word)[-1]
    return WeightedAutomaton(state, a.matrices, a.final, a.alphabet, weights=a.weights)


def right_quotient(a: WeightedAutomaton, word: Word) -> WeightedAutomaton:
    """Return ``w ↦ S(w u)``."""
    return reversed_series(left_quotient(reversed_series(a), tuple(word)[::-1]))


def renamed(a: WeightedAutomaton, names: Mapping[Symbol, Symbol]) -> WeightedAutomaton:
    """Give letters new names; where two get the same name h, the series is ``w ↦ Σ_{h(v) = w} S(v)``."""
    for letter in names:
        a.letter_index(letter)
    new = [names.get(letter, letter) for letter in a.alphabet]
    alphabet = tuple(dict.fromkeys(new))
    matrices = a.weights.zeros(len(alphabet), a.dim, a.dim)
    for name, matrix in zip(new, a.matrices, strict=True):
        place = alphabet.index(name)
        matrices[place] = a.weights.plus(matrices[place], matrix)
    return WeightedAutomaton(a.initial, matrices, a.final, alphabet, weights=a.weights)


def restricted(a: WeightedAutomaton, letters: Sequence[Symbol]) -> WeightedAutomaton:
    """Return the series on words of these letters alone."""
    matrices = a.matrices[[a.letter_index(letter) for letter in letters]]
    return WeightedAutomaton(a.initial, matrices, a.final, tuple(letters), weights=a.weights)


def extended(a: WeightedAutomaton, alphabet: Sequence[Symbol]) -> WeightedAutomaton:
    """Return the series over more letters, 0 on words that use them."""
    missing = [letter for letter in a.alphabet if letter not in alphabet]
    if missing:
        raise ValueError(f"alphabet must hold the letters there are; {missing[0]!r} is missing")
    matrices = a.weights.zeros(len(alphabet), a.dim, a.dim)
    for place, letter in enumerate(alphabet):
        if letter in a.alphabet:
            matrices[place] = a.matrices[a.letter_index(letter)]
    return WeightedAutomaton(a.initial, matrices, a.final, tuple(alphabet), weights=a.weights)


def cascaded(first: WeightedAutomaton, second: WeightedAutomaton, couplings: object) -> WeightedAutomaton:
    """Return the second automaton fed by the first: ``h² ← M² h² + C h¹``, with h¹ from *before* the letter.

    Args:
        couplings: One matrix ``(second.dim, first.dim)`` per letter of ``first``, or a mapping from letters.

    The value is the second's final vector on h².
    """
    second = _matched(first, second)
    ring, sizes = first.weights, (first.dim, second.dim)
    if isinstance(couplings, Mapping):
        couplings = [couplings[letter] for letter in first.alphabet]
    coupled = ring.array(couplings)
    if coupled.shape != (len(first.alphabet), second.dim, first.dim):
        wanted = (len(first.alphabet), second.dim, first.dim)
        raise ValueError(f"couplings must have shape {wanted}; got {coupled.shape}")
    matrices = [
        _block(ring, ((x, None), (c, y)), sizes)
        for x, y, c in zip(first.matrices, second.matrices, coupled, strict=True)
    ]
    initial = np.concatenate((first.initial, second.initial))
    final = np.concatenate((ring.zeros(first.dim), second.final))
    return WeightedAutomaton(initial, matrices, final, first.alphabet, weights=ring)


def gated(first: DFA, gates: object, initial: object, final: object, *, weights: str = "rational") -> WeightedAutomaton:
    """Return the stack ``h² ← G[x, q] h²``, whose matrix the state q that ``first`` is in before the letter x chooses.

    It is not linear in (h¹, h²), but linear in ``h¹ ⊗ h²``: one automaton of d₁·d₂ states, and for generic gates none
    has fewer.  Gates that permute have at most d₁(d₂ − 1) + 1, gates that ignore q at most d₂.

    Args:
        first: The machine whose state opens the gates; whether a state accepts plays no part.
        gates: ``(V, d₁, d₂, d₂)``: a matrix for each letter and state of ``first``.
        initial: ``(d₂)``, h² before the first letter.
        final: ``(d₂)``; the value is ``final · h²``, whatever the state of ``first``.
        weights: Those of the result.
    """
    ring = weights_named(weights)
    start, stop, matrices = ring.array(initial), ring.array(final), ring.array(gates)
    states, dim = first.states, len(start)
    wanted = (len(first.alphabet), states, dim, dim)
    if start.ndim != 1 or stop.shape != start.shape:
        raise ValueError(f"initial and final must be vectors of one length; got {start.shape} and {stop.shape}")
    if matrices.shape != wanted:
        raise ValueError(f"gates must have shape {wanted}: letters, states of first, to, from; got {matrices.shape}")
    joint = ring.zeros(wanted[0], states, dim, states, dim)
    for letter, state in np.ndindex(*wanted[:2]):
        joint[letter, first.transitions[state, letter], :, state, :] = matrices[letter, state]
    where = ring.eye(states)[first.start]
    return WeightedAutomaton(
        ring.kronecker(where, start),
        joint.reshape(wanted[0], states * dim, states * dim),
        np.tile(stop, states),
        first.alphabet,
        weights=ring,
    )
