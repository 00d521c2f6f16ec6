from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

from transductor.theory.separability import cover_probability, separable


def test_small_arrangements():
    square = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    assert separable(square, np.array([1.0, 1.0, -1.0, -1.0]))
    assert not separable(square, np.array([1.0, -1.0, -1.0, 1.0]))  # exclusive or
    assert separable(np.zeros((0, 3)), np.zeros(0))
    assert not separable(np.zeros((1, 2)), np.ones(1))
    assert not separable(np.array([[1.0], [1.0]]), np.array([1.0, -1.0]))
    with pytest.raises(ValueError, match="points must be"):
        separable(np.zeros((2, 2)), np.ones(3))


def test_the_answer_is_that_of_a_linear_program():
    linprog = pytest.importorskip("scipy.optimize").linprog
    random, answers = np.random.default_rng(0), set()
    for _ in range(40):
        count = int(random.integers(2, 30))
        dim = max(1, int(count * random.uniform(0.3, 0.7)))
        points, labels = random.normal(size=(count, dim)), random.choice([-1.0, 1.0], count)
        program = linprog(
            np.zeros(dim), A_ub=-points * labels[:, None], b_ub=-np.ones(count), bounds=(None, None), method="highs"
        )
        assert separable(points, labels) == (program.status == 0)
        answers.add(program.status == 0)
    assert answers == {True, False}


def test_no_linear_map_of_full_rank_changes_the_answer():
    random = np.random.default_rng(1)
    points, labels = random.normal(size=(24, 12)), random.choice([-1.0, 1.0], 24)
    squeezed = points @ np.diag(10.0 ** -np.linspace(0, 8, 12))
    assert separable(points, labels) == separable(squeezed, labels)


def test_covers_count_is_the_share_of_labellings():
    """All labellings of six points in general position."""
    points = np.random.default_rng(2).normal(size=(6, 3))
    labellings = [np.array(signs, dtype=float) for signs in itertools.product((-1, 1), repeat=6)]
    share = Fraction(sum(separable(points, labels) for labels in labellings), len(labellings))
    assert share == cover_probability(6, 3)
    assert cover_probability(10, 5) == Fraction(1, 2)
    assert cover_probability(10, 10) == 1
    with pytest.raises(ValueError, match="points and dim"):
        cover_probability(0, 1)
