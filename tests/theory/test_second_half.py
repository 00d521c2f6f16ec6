"""Statements 20 to 30: for each, a construction that lacks what the claim needs is refused."""

from __future__ import annotations

from fractions import Fraction

import pytest

from transductor.theory import STATEMENTS, generalisation, optimisation

HALF = Fraction(1, 2)
SHEAR = ((Fraction(1), Fraction(1, 10)), (Fraction(0), Fraction(1)))
# By name: arguments at which a statement takes a moment, and those that change the construction.
CHANGED = [
    ("universality_of_random_rational_features", {"length": 3, "curve": ()}, {"family": "diagonal"}),
    ("uniform_spectral_approximation_bound", {"dim": 400, "dims": (8,), "draws": 1, "length": 3}, {"features": "haar"}),
    ("compactness_gap", {"length": 5, "trials": 40}, {"flip": ((1, 0), (0, 1))}),
    ("convex_learnability_of_rational_projections", {"pairs": 50}, {"normed": True}),
    ("gradient_norm_preservation", {"steps": 3}, {"matrices": (SHEAR,)}),
    ("gradient_norm_preservation", {"steps": 3}, {"norm": Fraction(11, 10)}),
    ("gradient_maintenance_via_deep_injection", {"cases": 60}, {"exponent": "j"}),
    ("gradient_maintenance_via_deep_injection", {"cases": 0}, {"injections": (HALF, HALF)}),
    ("bounded_hessian_and_smoothness", {"lengths": (8, 64), "curves": ()}, {"norm": 1.0}),
    ("time_invariant_error_bounding", {"drifts": ()}, {"norm": 1.0}),
    ("length_independent_generalization", {}, {"tokens": 9}),
    ("hankel_rademacher_complexity", {"lengths": ()}, {"empty_prefix": False}),
    ("lipschitz_input_stability", {}, {"norm": Fraction(1)}),
]


def test_every_statement_of_the_second_half_is_here():
    assert {name for name, *_ in CHANGED} == {each.name for each in STATEMENTS.values() if 20 <= each.numbers[0] <= 30}


@pytest.mark.parametrize(("name", "small", "changed"), CHANGED)
def test_a_changed_construction_is_refused(name, small, changed):
    confirmed = STATEMENTS[name].run(**small)
    assert confirmed
    assert not confirmed.shown.startswith("NOT")
    refused = STATEMENTS[name].run(**small, **changed)
    assert not refused
    assert "NOT CONFIRMED" in str(refused)
    assert refused.shown.startswith("NOT CONFIRMED")


def test_another_formula_is_refused(monkeypatch):
    """The complexity without its second factor, and the powers in the order of the statement."""
    monkeypatch.setattr(generalisation, "rademacher", lambda tokens, copies, gamma, length=1: gamma / tokens)
    assert not STATEMENTS["length_independent_generalization"].run()
    monkeypatch.setitem(optimisation._EXPONENTS, "k-1-j", lambda j, k: j)
    assert not STATEMENTS["gradient_maintenance_via_deep_injection"].run(cases=60)
