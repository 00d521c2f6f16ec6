"""Semirings: their laws, their text, their arrays."""

from __future__ import annotations

import math
import pickle
from fractions import Fraction

import numpy as np
import pytest

from tests.properties import given, st
from transductor.automata.weights import WEIGHTS, weights_named

FINITE = st.floats(-20, 20, allow_subnormal=False)
NUMBERS = {
    "rational": st.fractions(min_value=-50, max_value=50, max_denominator=30),
    "float": FINITE,
    "boolean": st.booleans(),
    "max_plus": FINITE | st.just(-math.inf),
    "min_plus": FINITE | st.just(math.inf),
    "log": FINITE | st.just(-math.inf),
}
TRIPLES = st.sampled_from(sorted(WEIGHTS)).flatmap(lambda name: st.tuples(st.just(name), *[NUMBERS[name]] * 3))


def same(ring, left, right):
    return left == right or (not ring.exact and math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-9))


@given(TRIPLES)
def test_semiring_laws(given_numbers):
    name, a, b, c = given_numbers
    ring = WEIGHTS[name]
    plus, times = ring.plus, ring.times
    assert same(ring, plus(plus(a, b), c), plus(a, plus(b, c)))
    assert same(ring, plus(a, b), plus(b, a))
    assert same(ring, times(times(a, b), c), times(a, times(b, c)))
    assert same(ring, times(a, plus(b, c)), plus(times(a, b), times(a, c)))
    assert same(ring, plus(a, ring.zero), a)
    assert same(ring, times(a, ring.one), a)
    assert same(ring, times(a, ring.zero), ring.zero)


@given(TRIPLES)
def test_text_reads_back(given_numbers):
    name, a, *_ = given_numbers
    ring = WEIGHTS[name]
    assert ring.parse(ring.written(a)) == a


@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("inner", [0, 1, 3])
def test_matrix_products_are_sums_of_products(name, inner):
    ring, rng = WEIGHTS[name], np.random.default_rng(0)
    left, right = (ring.array(rng.integers(0, 2, shape)) for shape in ((2, inner), (inner, 4)))
    result = ring.product(left, right)
    assert result.shape == (2, 4)
    assert result.dtype == ring.zeros(1).dtype
    for i in range(2):
        for j in range(4):
            total = ring.zero
            for k in range(inner):
                total = ring.plus(total, ring.times(left[i, k], right[k, j]))
            assert same(ring, result[i, j], total)
    vector = ring.product(left, right[:, 0])
    assert all(same(ring, x, y) for x, y in zip(vector, result[:, 0], strict=True))


@pytest.mark.parametrize("name", WEIGHTS)
def test_units_and_names(name):
    ring = WEIGHTS[name]
    eye = ring.eye(3)
    assert (ring.product(eye, eye) == eye).all()
    assert weights_named(name) is weights_named(ring) is pickle.loads(pickle.dumps(ring)) is ring
    assert name in repr(ring)


def test_numbers_of_all_kinds_are_read():
    rational = WEIGHTS["rational"]
    for value in (2, 2.0, np.int64(2), np.float64(2), Fraction(2), "2", "4/2", True + 1):
        assert rational.number(value) == 2
    assert rational.number(0.1) == Fraction(0.1)  # the float that it is
    assert rational.number("0.1") == Fraction(1, 10)
    assert WEIGHTS["float"].parse("1/4") == 0.25
    assert WEIGHTS["float"].array([["1/2", 3]]).tolist() == [[0.5, 3.0]]
    with pytest.raises(ValueError, match="'1/0'"):
        rational.number("1/0")
