"""Linear algebra modulo primes, and back to the rationals: exact answers by arithmetic on 64-bit integers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from transductor.automata.weights import Array

Residues = npt.NDArray[np.int64]


def random_primes(seed: int = 0) -> Iterator[int]:
    """Yield distinct primes between 2³⁰ and 2³¹, drawn at random: no number was made to be divisible by them."""
    random, drawn = np.random.default_rng(seed), set[int]()
    while True:
        candidate = int(random.integers(1 << 29, 1 << 30)) * 2 + 1
        if candidate not in drawn and _is_prime(candidate):
            drawn.add(candidate)
            yield candidate


def _is_prime(number: int) -> bool:
    """Whether a number is prime, by Miller–Rabin; these bases decide below 3.2e9."""
    twos = ((number - 1) & -(number - 1)).bit_length() - 1
    odd = (number - 1) >> twos
    for base in (2, 3, 5, 7):
        value = pow(base, odd, number)
        if value in (1, number - 1):
            continue
        for _ in range(twos - 1):
            value = value * value % number
            if value == number - 1:
                break
        else:
            return False
    return True


def reduced_residues(integers: Array, prime: int) -> Residues:
    """Return integers of any size modulo a prime."""
    return np.asarray(integers % prime, dtype=np.int64) if integers.size else np.zeros(integers.shape, dtype=np.int64)


def product(left: Residues, right: Residues, prime: int) -> Residues:
    """Return the matrix product modulo a prime below 2³¹; the left factor is split, so that sums do not overflow."""
    high, low = left >> 16, left & 0xFFFF
    out: Residues = ((high @ right % prime << 16) + low @ right) % prime
    return out


def echelon(rows: Residues, prime: int) -> tuple[Residues, tuple[int, ...]]:
    """Return the reduced echelon form of rows modulo a prime, and the columns of its pivots.

    There are as many pivots as rows of the form that are not zero: the rank modulo the prime.
    """
    work, pivots = rows % prime, list[int]()
    for step in range(len(work)):
        columns = np.flatnonzero(work[step:].any(axis=0))
        if len(columns) == 0:
            break
        column = int(columns[0])
        chosen = step + int(np.flatnonzero(work[step:, column])[0])
        if chosen != step:
            work[[step, chosen]] = work[[chosen, step]]
        work[step] = work[step] * pow(int(work[step, column]), -1, prime) % prime
        factors = work[:, column].copy()
        factors[step] = 0
        work = (work - factors[:, None] * work[step] % prime) % prime
        pivots.append(column)
    return work, tuple(pivots)


def rank_of_matrix(values: Array) -> int:
    """Return the rank of a matrix of integers or fractions modulo three random primes, the largest of the three.

    It is never more than the rank over the rationals, and equal to it unless all three primes divide one minor.
    """
    denominator = math.lcm(1, *(value.denominator for value in values.reshape(-1)))
    integers = np.empty(values.shape, dtype=object)
    integers.reshape(-1)[:] = [int(value * denominator) for value in values.reshape(-1)]
    chosen = itertools.islice(random_primes(), 3)
    return max(len(echelon(reduced_residues(integers, prime), prime)[1]) for prime in chosen)


def combined(residues: Sequence[Residues], moduli: Sequence[int]) -> tuple[Array, int]:
    """Return integers modulo the product of the moduli (Chinese remainders, by halves), and that product."""
    if len(residues) == 1:
        return residues[0].astype(object), moduli[0]
    half = len(residues) // 2
    (low, p), (high, q) = combined(residues[:half], moduli[:half]), combined(residues[half:], moduli[half:])
    return low + p * ((high - low) * pow(p, -1, q) % q), p * q


def reconstructed(integers: Array, modulus: int) -> tuple[Array, int] | None:
    """Return numerators and one denominator with ``numerator ≡ integer · denominator``, small enough to be unique."""
    bound = math.isqrt(modulus // 2)
    denominator = 1
    numerators = np.empty(integers.shape, dtype=object)
    flat, out = integers.reshape(-1), numerators.reshape(-1)
    place = 0
    while place < len(flat):
        value = _centred(flat[place] * denominator % modulus, modulus)
        if abs(value) > bound:
            more = _denominator(int(value) % modulus, modulus, bound)
            if more is None or denominator * more > bound:
                return None
            out[:place] *= more
            denominator *= more
            continue
        out[place] = value
        place += 1
    if any(abs(value) > bound for value in out):
        return None
    return numerators, denominator


def _centred(value: int, modulus: int) -> int:
    return value - modulus if 2 * value > modulus else value


def _denominator(value: int, modulus: int, bound: int) -> int | None:
    """Return the denominator of the fraction of numbers up to ``bound`` that is ``value``; None if there is none."""
    (r0, t0), (r1, t1) = (modulus, 0), (value, 1)
    while r1 > bound:
        quotient = r0 // r1
        (r0, t0), (r1, t1) = (r1, t1), (r0 - quotient * r1, t0 - quotient * t1)
    return abs(t1) if 0 < abs(t1) <= bound else None
