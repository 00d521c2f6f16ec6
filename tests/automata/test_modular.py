"""Arithmetic modulo primes, and back."""

from __future__ import annotations

from fractions import Fraction
from itertools import islice

import numpy as np

from tests.properties import given, st
from transductor.automata.modular import (
    combined,
    product,
    random_primes,
    rank_of_matrix,
    reconstructed,
    reduced_residues,
)


def test_primes_are_drawn_once_each_and_are_prime():
    drawn = list(islice(random_primes(), 50))
    assert len(set(drawn)) == 50
    assert all(2**30 < p < 2**31 for p in drawn)
    assert all(p % q for p in drawn for q in (2, 3, 5, 7, 11, 13))
    assert all(pow(2, p - 1, p) == 1 for p in drawn)
    assert drawn != list(islice(random_primes(1), 50))


def test_products_do_not_overflow():
    prime = next(random_primes())
    left = np.full((3, 200), prime - 1, dtype=np.int64)
    assert (product(left, left.T, prime) == 200).all()


@given(st.lists(st.fractions(max_denominator=10**6).filter(lambda x: abs(x.numerator) < 10**9), min_size=1, max_size=6))
def test_fractions_come_back_from_remainders(values):
    moduli = list(islice(random_primes(), 20))
    residues = [
        np.array([value.numerator * pow(value.denominator, -1, prime) % prime for value in values], dtype=np.int64)
        for prime in moduli
    ]
    fractions = reconstructed(*combined(residues, moduli))
    assert fractions is not None
    numerators, denominator = fractions
    assert [Fraction(int(top), int(denominator)) for top in numerators] == values


def test_too_few_primes_are_not_enough():
    value, moduli = Fraction(10**12 + 39, 10**12 + 61), list(islice(random_primes(), 2))
    residues = [
        np.array([value.numerator * pow(value.denominator, -1, prime) % prime], dtype=np.int64) for prime in moduli
    ]
    fractions = reconstructed(*combined(residues, moduli))
    assert fractions is None or Fraction(int(fractions[0][0]), int(fractions[1])) != value


def test_huge_integers_and_empty_arrays_have_remainders():
    assert reduced_residues(np.array([10**50], dtype=object), 7).tolist() == [10**50 % 7]
    assert reduced_residues(np.zeros((0, 3), dtype=object), 7).shape == (0, 3)


@given(st.integers(0, 10_000))
def test_the_rank_of_a_matrix_of_fractions(seed):
    rng = np.random.default_rng(seed)
    rows, inner, columns = rng.integers(0, 5, 3)
    left, right = (rng.integers(-9, 10, shape).astype(object) for shape in ((rows, inner), (inner, columns)))
    values = np.array([[Fraction(int(x), 7) for x in row] for row in left @ right], dtype=object).reshape(rows, columns)
    assert rank_of_matrix(values) == (np.linalg.matrix_rank(values.astype(float)) if values.size else 0)
