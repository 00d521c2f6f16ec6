from __future__ import annotations

from fractions import Fraction

import pytest

from transductor.theory.optimisation import (
    _hessian_norm,
    _smoothness,
    bounded_hessian_and_smoothness,
    convex_learnability_of_rational_projections,
    gradient_maintenance_via_deep_injection,
    gradient_norm_preservation,
)

HALF = Fraction(1, 2)


def test_a_layer_norm_behind_the_injection_is_not_convex():
    assert convex_learnability_of_rational_projections(pairs=100).holds
    assert not convex_learnability_of_rational_projections(normed=True, pairs=100).holds


def test_separable_data_have_no_minimum():
    losses = convex_learnability_of_rational_projections(pairs=1).measurements["separable"]["loss"]
    assert losses == sorted(losses, reverse=True)
    assert losses[0] > losses[1] > 0


@pytest.mark.parametrize(
    "matrix",
    [
        ((Fraction(1), Fraction(1, 10)), (Fraction(0), Fraction(1))),  # a shear
        ((HALF, Fraction(0)), (Fraction(0), HALF)),  # a contraction
    ],
)
def test_only_orthogonal_matrices_preserve_the_norm(matrix):
    assert gradient_norm_preservation().holds
    assert not gradient_norm_preservation(matrices=(matrix,), steps=3).holds


def test_injections_along_the_gradient_grow_linearly_at_one():
    growth = gradient_norm_preservation(steps=1).measurements["norm_with_injections"]
    assert [one["gamma_1"] for one in growth] == [1 + one["steps"] for one in growth]
    assert all(one["gamma"] <= 10 for one in growth)


def test_matrices_above_the_bound_break_the_first_part():
    assert gradient_norm_preservation(steps=1, gamma=HALF).holds
    assert gradient_norm_preservation(steps=1, gamma=HALF, norm=Fraction(1, 3)).holds
    broken = gradient_norm_preservation(steps=1, gamma=HALF, norm=Fraction(1))
    assert not broken.holds
    assert "violated in 0" not in broken.witness


def test_the_constant_of_the_first_part_is_attained():
    for one in gradient_norm_preservation(steps=1, cases=1).measurements["norm_with_injections"]:
        left = Fraction(9, 10) ** one["steps"]
        assert one["gamma"] == pytest.approx(float(left + 10 * (1 - left)), rel=1e-15)


def test_the_exponent_as_written_is_violated():
    certificate = gradient_maintenance_via_deep_injection(cases=60)
    assert certificate.holds
    assert certificate.finding == "false as written"
    assert not gradient_maintenance_via_deep_injection(exponent="j", cases=60).holds
    # These injections do not show that the statement is false.
    assert not gradient_maintenance_via_deep_injection(injections=(HALF, HALF), cases=0).holds


def test_the_counterexample_in_one_line():
    one, two, gamma = Fraction(1), Fraction(-1, 2), HALF
    assert (abs(gamma * one + two), abs(one + gamma * two)) == (0, Fraction(3, 4))


def test_at_norm_one_the_hessian_outgrows_the_bound():
    assert bounded_hessian_and_smoothness(lengths=(8, 32, 64), curves=()).holds
    assert not bounded_hessian_and_smoothness(norm=1.0, lengths=(64,), curves=()).holds
    with pytest.raises(ValueError, match="gamma"):
        bounded_hessian_and_smoothness(gamma=1.0)


def test_the_hessian_is_that_of_finite_differences_and_below_its_bound():
    assert _hessian_norm(0.9, 1) == pytest.approx(1.0)  # of ½‖Mα − y‖²: α αᵀ for each row
    for gamma in (1.0, 0.9):
        for length in (2, 5, 16):
            assert _hessian_norm(gamma, length) <= _smoothness(gamma, length) * (1 + 1e-12)
    ratio = _hessian_norm(1.0, 64) / _hessian_norm(1.0, 32)
    assert ratio == pytest.approx(4, rel=0.05)


@pytest.mark.parametrize(
    ("statement", "arguments", "named"),
    [
        (gradient_norm_preservation, {"matrices": ()}, "matrices"),
        (gradient_norm_preservation, {"matrices": (((1, 2, 3), (4, 5, 6)),)}, "matrices"),
        (gradient_maintenance_via_deep_injection, {"exponent": "k"}, "exponent"),
        (gradient_maintenance_via_deep_injection, {"injections": ()}, "injections"),
        (bounded_hessian_and_smoothness, {"lengths": ()}, "lengths"),
        (convex_learnability_of_rational_projections, {"pairs": 0}, "pairs"),
    ],
)
def test_arguments_are_refused_by_name(statement, arguments, named):
    with pytest.raises(ValueError, match=named):
        statement(**arguments)
