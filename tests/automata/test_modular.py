"""Arithmetic modulo primes, and back."""

from __future__ import annotations

from fractions import Fraction
from itertools import islice

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from transductor.automata.modular import combined, primes, product, reconstructed, reduced_residues, solved


def test_primes_are_the_largest_below_two_to_the_31():
    largest = list(islice(primes(), 50))
    assert largest[0] == 2**31 - 1
    assert largest == sorted(set(largest), reverse=True)
    assert all(p % q for p in largest for q in (2, 3, 5, 7, 11, 13, 46337))
    assert all(pow(2, p - 1, p) == 1 for p in largest)


def test_products_do_not_overflow():
    prime = next(primes())
    left = np.full((3, 200), prime - 1, dtype=np.int64)
    assert (product(left, left.T, prime) == 200).all()


@given(st.integers(0, 10_000))
def test_linear_systems_are_solved(seed):
    rng, prime = np.random.default_rng(seed), next(primes())
    columns = rng.integers(0, prime, (6, 4))
    answer = rng.integers(0, prime, (4, 3))
    solution = solved(columns, product(columns, answer, prime), prime)
    assert solution is not None
    assert (solution == answer).all()
    columns[:, 3] = columns[:, 1]
    assert solved(columns, columns, prime) is None


@given(st.lists(st.fractions(max_denominator=10**6).filter(lambda x: abs(x.numerator) < 10**9), min_size=1, max_size=6))
def test_fractions_come_back_from_remainders(values):
    moduli = list(islice(primes(), 20))
    residues = [
        np.array([value.numerator * pow(value.denominator, -1, prime) % prime for value in values], dtype=np.int64)
        for prime in moduli
    ]
    fractions = reconstructed(*combined(residues, moduli))
    assert fractions is not None
    numerators, denominator = fractions
    assert [Fraction(int(top), int(denominator)) for top in numerators] == values


def test_too_few_primes_are_not_enough():
    value, moduli = Fraction(10**12 + 39, 10**12 + 61), list(islice(primes(), 2))
    residues = [
        np.array([value.numerator * pow(value.denominator, -1, prime) % prime], dtype=np.int64) for prime in moduli
    ]
    fractions = reconstructed(*combined(residues, moduli))
    assert fractions is None or Fraction(int(fractions[0][0]), int(fractions[1])) != value


def test_huge_integers_and_empty_arrays_have_remainders():
    assert reduced_residues(np.array([10**50], dtype=object), 7).tolist() == [10**50 % 7]
    assert reduced_residues(np.zeros((0, 3), dtype=object), 7).shape == (0, 3)
