"""Finite monoids, their characters and actions, and the exact numbers that they need."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from transductor.automata.decomposition.permutation_groups import PermutationGroup
from transductor.theory.characters import Characters
from transductor.theory.finite_monoids import FiniteMonoid, finite_monoid
from transductor.theory.group_actions import coset_actions, least_faithful, subgroups
from transductor.theory.monoid_witnesses import realised
from transductor.theory.real_cyclotomic import RealCyclotomic, echelon, exact_matrix, minimal_polynomial, rank

SIZES = {"Z2": 2, "Z6": 6, "S3": 6, "D4": 8, "Q8": 8, "A4": 12, "Z2xS3": 12, "seen": 4, "flip-flop": 3,
         "staircase": 8, "T2": 4, "T3": 27, "T4": 256}  # fmt: skip


@pytest.mark.parametrize(("name", "size"), SIZES.items())
def test_monoids_have_their_size_and_their_product(name, size):
    monoid = finite_monoid(name)
    assert len(monoid) == size
    assert (monoid.times[0] == np.arange(size)).all()
    draw = np.random.default_rng(0)
    for x, y, z in draw.integers(size, size=(20, 3)):
        assert monoid.times[monoid.times[x, y], z] == monoid.times[x, monoid.times[y, z]]
        assert [monoid.elements[y][to] for to in monoid.elements[x]] == list(monoid.elements[monoid.times[x, y]])
    assert (monoid.times[:, list(monoid.of_letter)] == monoid.after).all()
    assert monoid.is_group == (name[0] in "ZSDQA")
    assert repr(monoid).startswith(f"FiniteMonoid({name}, {size} elements")


def test_quaternions_are_those():
    monoid = finite_monoid("Q8")
    assert PermutationGroup(8, tuple(monoid.elements[x] for x in monoid.of_letter)).name == "Q8"


def test_idempotents_zeros_and_groups():
    full = finite_monoid("T3")
    assert (len(full.idempotents), full.zero, len(full.chain)) == (10, None, 3)
    assert [len(full.subgroup_at(e)) for e in full.chain] == [6, 2, 1]
    assert full.group_at(0).is_group
    assert finite_monoid("seen").zero == 3
    assert finite_monoid("staircase").not_commuting == ("up", "down")
    assert finite_monoid("seen").not_commuting is None
    with pytest.raises(ValueError, match="idempotent must be"):
        full.subgroup_at(1)
    for ask in (lambda: full.order_of, lambda: full.inverse_of, lambda: Characters(full)):
        with pytest.raises(ValueError, match="must be a group"):
            ask()


def test_own_monoids_are_checked():
    own = FiniteMonoid.generated("own", {"a": (1, 2, 0), "b": (0, 0, 0)})
    assert (len(own), own.letters) == (6, ("a", "b"))
    assert len(FiniteMonoid.generated("one", {"wait": (0,)})) == 1
    for letters, fault in (({}, "at least one letter"), ({"a": (0, 2)}, "must move the points"),
                           ({"a": (0,), "b": (0, 1)}, "must move the points"),
                           ({"a": (1, *range(2, 7), 0), "b": (1, 0, *range(2, 7))}, "at most 720")):  # fmt: skip
        with pytest.raises(ValueError, match=fault):
            FiniteMonoid.generated("own", letters)
    for name in ("tea", "T5", "Z1", "seen2"):
        with pytest.raises(ValueError, match="must be"):
            finite_monoid(name)


REAL = {
    "Z2": [1, 1], "Z5": [1, 2, 2], "S3": [1, 1, 2], "D4": [1, 1, 1, 1, 2], "Q8": [1, 1, 1, 1, 4],
    "A4": [1, 2, 3], "S4": [1, 1, 2, 3, 3], "D5": [1, 1, 2, 2], "Z2xZ3": [1, 1, 2, 2],
}  # fmt: skip


@pytest.mark.parametrize(("name", "dims"), REAL.items())
def test_real_representations_are_those_of_textbooks(name, dims):
    table = Characters(finite_monoid(name))
    assert sorted(each.dim for each in table.irreducibles) == dims
    assert table.faults() == []
    assert table.irreducibles[0].eigenvalues == tuple((1, *[0] * (len(row) - 1)) for row in
                                                      table.irreducibles[0].eigenvalues)  # fmt: skip


def test_kinds_eigenvalues_and_kernels():
    quaternions = Characters(finite_monoid("Q8"))
    (large,) = (each for each in quaternions.irreducibles if each.dim == 4)
    assert large.kind == "quaternionic"
    assert quaternions.kernel([large]) == {0}
    centre = next(c for c, x in enumerate(quaternions.representatives) if quaternions.group.order_of[x] == 2)
    assert (large.half_turns(centre), large.moved(centre), large.moved(0)) == (4, 4, 0)
    turned = Characters(finite_monoid("Z5")).irreducibles[1]
    assert turned.kind == "complex"
    assert sorted(float(turned.character(c, 5)) for c in range(5)) == pytest.approx(
        sorted(2 * math.cos(2 * math.pi * k / 5) for k in range(5))
    )


def test_a_wrong_table_of_characters_is_noticed():
    table = Characters(finite_monoid("S3"))
    right = table.complex_irreducibles
    for wrong, fault in ((right[:2], "do not sum to 6"), ((right[0], right[0], right[2]), "square roots"),
                         ((right[0], right[1], (right[2][0], *right[1][1:])), "do not sum to the degree")):  # fmt: skip
        broken = Characters(finite_monoid("S3"))
        broken.__dict__["complex_irreducibles"] = wrong
        assert any(fault in each for each in broken.faults()), fault


def test_matrices_of_a_representation_have_its_character():
    table = Characters(finite_monoid("S4"))
    for irreducible in table.irreducibles:
        matrices, basis = realised(table, irreducible)
        form = basis.T @ basis
        for letter, matrix in zip(table.group.of_letter, matrices, strict=True):
            assert np.array_equal(matrix.T @ form @ matrix, form)
            trace = sum(matrix.diagonal())
            assert trace == irreducible.character(int(table.class_of[letter]), table.exponent)


@pytest.mark.parametrize(("name", "count"), [("Z6", 4), ("S3", 6), ("D4", 10), ("Q8", 6), ("A4", 10), ("S4", 30)])
def test_all_subgroups_are_there(name, count):
    group = finite_monoid(name)
    every = [each for conjugates in subgroups(group) for each in conjugates]
    assert len(set(every)) == len(every) == count
    for subgroup in every:
        assert {int(group.times[x, y]) for x in subgroup for y in subgroup} == subgroup


def test_actions_are_homomorphisms_and_least_ones_are_known():
    group = finite_monoid("D4")
    for action in coset_actions(group, signed=True):
        matrices = action.matrices(range(len(group)))
        for x, y in ((1, 2), (3, 5), (7, 7)):
            assert np.array_equal(matrices[y] @ matrices[x], matrices[group.times[x, y]])
        still = {x for x, matrix in enumerate(matrices) if np.array_equal(matrix, np.eye(action.degree, dtype=int))}
        assert still == action.kernel
        assert action.signed == any((matrix < 0).any() for matrix in matrices)
    for name, plain, signed in (("D4", 4, 2), ("Q8", 8, 4), ("Z6", 5, 3), ("A4", 4, 3), ("Z2", 2, 1)):
        for degree, with_signs in ((plain, False), (signed, True)):
            chosen = least_faithful(coset_actions(finite_monoid(name), signed=with_signs))
            assert sum(action.degree for action in chosen) == degree
    with pytest.raises(ValueError, match="faithful together"):
        least_faithful([action for action in coset_actions(group, signed=False) if action.degree == 1])
    with pytest.raises(ValueError, match="at least one"):
        least_faithful([])


@pytest.mark.parametrize("n", [1, 2, 3, 5, 7, 12, 30])
def test_exact_numbers_are_the_cosines_they_stand_for(n):
    root = 2 * math.cos(2 * math.pi / n)
    assert sum(float(each) * root**power for power, each in enumerate(minimal_polynomial(n))) == pytest.approx(0)
    numbers = [RealCyclotomic.cosine(n, turns) for turns in range(n)]
    assert [float(each) for each in numbers] == pytest.approx([2 * math.cos(2 * math.pi * j / n) for j in range(n)])
    assert numbers[1 % n] == numbers[-1 % n]
    draw = np.random.default_rng(n)
    for a, b in draw.choice(n, (6, 2)):
        x, y = numbers[a] + Fraction(1, 3), 2 - numbers[b] * 5
        assert float(x * y) == pytest.approx(float(x) * float(y))
        assert float(x - y) == pytest.approx(float(x) - float(y))
        assert (x + y) * (x - y) == x * x - y * y
        if y:
            assert x / y * y == x
            assert 1 / y * y == 1


def test_exact_numbers_refuse_others():
    golden = RealCyclotomic.cosine(5, 1)
    assert golden * golden + golden == 1
    assert hash(golden - golden + 3) == hash(RealCyclotomic(5, (3,)))
    assert repr(golden - golden) == "0"
    with pytest.raises(ValueError, match="one field"):
        golden + RealCyclotomic.cosine(7, 1)
    with pytest.raises(ZeroDivisionError, match="reciprocal"):
        1 / (golden - golden)
    with pytest.raises(TypeError):
        golden * 0.5
    for entry in (0.5, True, "1"):
        with pytest.raises(ValueError, match="exact numbers"):
            exact_matrix([[entry]])
    matrix = exact_matrix([[1, golden, 0], [golden, golden * golden, 0]])
    assert rank(matrix) == 1
    assert echelon(matrix)[1] == (0,)
