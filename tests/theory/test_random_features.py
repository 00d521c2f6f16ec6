from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from transductor.theory import random_features
from transductor.theory.random_features import (
    compactness_gap,
    drawn,
    parity_labels,
    states_of_length,
    states_up_to,
    uniform_spectral_approximation_bound,
    universality_of_random_rational_features,
)

FEW = {"dims": (8, 32), "draws": 2, "length": 4}


def test_a_commuting_family_is_not_universal():
    certificate = universality_of_random_rational_features(length=4)
    assert certificate.holds
    assert (certificate.measured, certificate.bound) == (31, 31)
    commuting = universality_of_random_rational_features(length=4, family="diagonal")
    assert not commuting.holds
    assert commuting.measured == math.comb(6, 2)
    assert universality_of_random_rational_features(letters=3, length=2, curve=()).measured == 13
    for one in certificate.measurements["ranks"]:
        assert (one["dense"], one["diagonal"]) == (one["words"], one["parikh_vectors"])


def test_independent_enough_features_are_no_counterexample():
    certificate = uniform_spectral_approximation_bound(**FEW)
    assert certificate.holds
    assert certificate.finding == "false as written"
    assert certificate.measured == pytest.approx(0.5)
    assert not uniform_spectral_approximation_bound("haar", **FEW).holds
    assert not uniform_spectral_approximation_bound(dim=8, **FEW).holds  # there the bound is no promise


def test_a_start_near_the_identity_is_the_worst_conditioned():
    conditions = universality_of_random_rational_features(length=1, curve=()).measurements
    worst = max(conditions["median_condition_at_length_6"].items(), key=lambda item: item[1])
    assert worst[0] == "near_identity"


def test_no_draw_of_signs_comes_near():
    """The seeds have all four pairs of signs among them, so these are all draws that there are."""
    signs = set()
    for seed in range(16):
        certificate = uniform_spectral_approximation_bound(seed=seed, dim=2, dims=(8,), draws=1, length=1)
        assert certificate.measured == pytest.approx(0.5)
        signs.add(tuple(drawn("signs", 2, 2, np.random.default_rng([seed, 0]))[0][:, 0, 0]))
    assert len(signs) == 4


def test_with_a_dimension_for_every_word_the_error_is_rounding(monkeypatch):
    options = {"length": 4, "trials": 40}
    certificate = compactness_gap(**options)
    assert certificate.measurements["rounding"]["error_at_all_words"] < 1e-9
    monkeypatch.setattr(
        random_features, "_misfit", lambda features, dim, *rest: original_misfit(features, dim - 1, *rest)
    )
    assert not compactness_gap(**options)


original_misfit = random_features._misfit


def test_the_counterexample_in_one_line():
    """K(ε, ·) = 1, 0, 0 and f = c, ±c, ±c: the best c is a half, whatever the signs and the dimension are."""
    for first, second in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
        errors = [max(abs(1 - c), abs(c * first), abs(c * second)) for c in np.linspace(-1, 2, 301)]
        assert min(errors) == pytest.approx(0.5)


def test_the_gram_matrix_shrinks_with_the_dimension():
    curve = uniform_spectral_approximation_bound(**FEW).measurements["curve"]
    for one in curve:
        assert one["rms"] == pytest.approx(one["sampling_noise"], rel=0.3)


def test_frozen_features_separate_parity_at_half_of_the_words():
    options = {"length": 5, "trials": 40}
    assert compactness_gap(**options).holds
    assert not compactness_gap(features="near_identity", **options).holds
    assert not compactness_gap(features="signs", **options).holds
    assert not compactness_gap(flip=((1, 0), (0, 1)), **options).holds
    late = compactness_gap(ratios=(Fraction(3, 4),), **options)
    assert late.measurements["points"][0]["separated"] >= 38


def test_the_order_of_words_is_that_of_their_numbers():
    table, start = drawn("haar", 3, 2, np.random.default_rng(0))
    states = states_of_length(table, start, 3)
    for number in range(8):
        state = start
        for place in range(3):
            state = table[number >> place & 1] @ state
        np.testing.assert_allclose(states[number], state, atol=1e-12)
        assert parity_labels(3)[number] == (-1) ** bin(number).count("1")
    assert len(states_up_to(table, start, 3)) == 15
    np.testing.assert_allclose(np.linalg.norm(states, axis=1), 1)


def test_arguments_are_refused_by_name():
    with pytest.raises(ValueError, match="family"):
        universality_of_random_rational_features(family="nilpotent")
    with pytest.raises(ValueError, match="features"):
        compactness_gap(features="cold")
    with pytest.raises(ValueError, match="delta"):
        uniform_spectral_approximation_bound(delta=1.5)
    with pytest.raises(ValueError, match="dim"):
        uniform_spectral_approximation_bound(dim=1)
    with pytest.raises(ValueError, match="trials"):
        compactness_gap(trials=0)
