"""Which family does which monoid: witnesses and impossibilities are recomputed, and wrong ones are refused."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch

from tests.records import records_folder
from transductor.results import read_record
from transductor.theory.finite_monoids import finite_monoid
from transductor.theory.groups_map import REASONS, Obstacle, answer, least_rank, table_of_answers
from transductor.theory.monoid_witnesses import FAMILIES, compiled, moving_points, witness_of

RECORD = read_record(records_folder("benchmarks/results") / "groups_map.json").measurements
LARGE = ("A5", "S5")
NEVER = None
# By monoid, in the order of FAMILIES; the dimensions are those of textbooks: smallest faithful real representations,
# and smallest degrees of (signed) permutations.
EXPECTED = {
    "Z2": (NEVER, 1, 2, 1, 2, 1, NEVER, 1, 1),
    "Z3": (NEVER, NEVER, 2, 3, 3, 2, 2, 2, 2),
    "Z4": (NEVER, NEVER, 2, 2, 4, 2, 2, 2, 2),
    "Z5": (NEVER, NEVER, 2, 5, 5, 2, 2, 2, 2),
    "Z6": (NEVER, NEVER, 2, 3, 5, 2, 2, 2, 2),
    "Z2xZ2": (NEVER, 2, 4, 2, 4, 2, NEVER, 2, 2),
    "S3": (NEVER, NEVER, NEVER, 3, 3, 2, NEVER, 2, 2),
    "D4": (NEVER, NEVER, NEVER, 2, 4, 2, NEVER, 2, 2),
    "Q8": (NEVER, NEVER, NEVER, 4, 8, 4, 4, 4, 4),
    "A4": (NEVER, NEVER, NEVER, 3, 4, 3, 3, 3, 3),
    "S4": (NEVER, NEVER, NEVER, 3, 4, 3, NEVER, 3, 3),
    "seen": (2, 2, NEVER, 2, 3, NEVER, NEVER, NEVER, 2),
    "flip-flop": (NEVER, NEVER, NEVER, 2, 2, NEVER, NEVER, NEVER, 2),
    "staircase": (NEVER, NEVER, NEVER, 3, 3, NEVER, NEVER, NEVER, 3),
    "T3": (NEVER, NEVER, NEVER, 3, 3, NEVER, NEVER, NEVER, 3),
    "A5": (NEVER, NEVER, NEVER, 5, 5, 3, 3, 3, 3),
    "S5": (NEVER, NEVER, NEVER, 5, 5, 4, NEVER, 4, 4),
}
REFLECTIONS = {"Z2": 1, "Z3": 2, "Z2xZ2": 1, "S3": 2, "D4": 2, "Q8": 4, "A4": 2, "S4": 2, "A5": 2, "S5": 4}


def checked(name):
    for family, least in zip(FAMILIES, EXPECTED[name], strict=True):
        cell = answer(family, finite_monoid(name))
        assert cell.faults() == [], (name, family)
        assert cell.verdict == ("impossible" if least is NEVER else f"d = {least}"), (name, family)
        assert cell.possible == (least is not NEVER)
        if family == "Householder" and name in REFLECTIONS:
            assert cell.witness.reflections == REFLECTIONS[name]


@pytest.mark.parametrize("name", [name for name in EXPECTED if name not in LARGE])
def test_every_cell_is_decided_and_passes_its_checks(name):
    checked(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_and_of_large_groups(name):
    checked(name)


def test_the_record_holds_what_is_computed():
    names = list(dict.fromkeys(one["monoid"] for one in RECORD["answers"]))
    assert set(names) <= set(EXPECTED)
    computed = table_of_answers([finite_monoid(name) for name in names if name not in LARGE])
    kept = [one for one in RECORD["answers"] if one["monoid"] not in LARGE]
    assert [cell.plain() for cell in computed] == kept
    for one in RECORD["answers"]:
        least = EXPECTED[one["monoid"]][FAMILIES.index(one["family"])]
        assert (one["least"], one["verdict"] == "impossible") == (least, least is NEVER)
        assert one["faults"] == []


def matrices_of(dim, signed):
    """All permutation matrices, or with all signs."""
    for images in itertools.permutations(range(dim)):
        for signs in itertools.product((1, -1), repeat=dim) if signed else [(1,) * dim]:
            yield tuple((target, sign) for target, sign in zip(images, signs, strict=True))


def can_be_told(monoid, letters):
    """Whether no matrix belongs to two elements: without that no readout of any state can be right."""
    start = (0, tuple((point, 1) for point in range(len(letters[0]))))
    seen, pending, owner = {start}, [start], {start[1]: 0}
    for element, matrix in pending:
        for letter, moves in enumerate(letters):
            product = tuple((moves[to][0], sign * moves[to][1]) for to, sign in matrix)
            after = (int(monoid.after[element, letter]), product)
            if owner.setdefault(product, after[0]) != after[0]:
                return False
            if after not in seen:
                seen.add(after)
                pending.append(after)
    return True


@pytest.mark.parametrize(("name", "signed"), [
    ("Z3", True), ("Z6", True), ("S3", True), ("A4", True), ("Z6", False), ("S3", False), ("D4", False), ("A4", False),
])  # fmt: skip
def test_one_dimension_less_is_not_enough_by_trying_all(name, signed):
    monoid = finite_monoid(name)
    least = answer("permutation × diagonal" if signed else "column-stochastic", monoid).least
    for dim, enough in ((least - 1, False), (least, True)):
        if dim > 3:
            continue  # too many to try
        identity = tuple((point, 1) for point in range(dim))
        every = list(matrices_of(dim, signed))
        tried = itertools.product(every, repeat=len(monoid.letters) - 1)
        assert any(can_be_told(monoid, (identity, *chosen)) for chosen in tried) == enough


def cell(family, name):
    made = answer(family, finite_monoid(name))
    assert made.faults() == []
    return made


def test_a_swapped_or_changed_matrix_is_refused():
    # Swapped with the letter that waits: to exchange two generators can be an automorphism, and right again.
    for family, name in (("orthogonal", "A4"), ("Cayley", "Q8"), ("permutation × diagonal", "D4"), ("dense", "T3"),
                         ("column-stochastic", "S3"), ("Householder", "S3")):  # fmt: skip
        witness = cell(family, name).witness
        first, second, third, *rest = witness.matrices
        swapped = replace(witness, matrices=(second, first, third, *rest))
        assert any("elsewhere" in fault for fault in swapped.faults()), family
        assert any("elsewhere" in fault for fault in replace(cell(family, name), witness=swapped).faults())
        changed = second.copy()
        changed[0, 0] = changed[0, 0] + Fraction(1, 1000)
        assert replace(witness, matrices=(first, changed, third, *rest)).faults(), family
        assert any("one state" in fault for fault in replace(witness, initial=0 * witness.initial).faults())
        assert "one (" in replace(witness, matrices=witness.matrices[1:]).faults()[0]
        assert "independent" in replace(witness, basis=0 * witness.basis).faults()[0]


def test_matrices_of_another_family_are_refused():
    turn = cell("orthogonal", "Z4").witness
    for family in set(FAMILIES) - {"orthogonal", "dense", "rotating planes", "Cayley", "permutation × diagonal"}:
        assert any(f"is not {family}" in fault for fault in replace(turn, family=family).faults()), family
    assert replace(turn, family="Householder", reflections=2).faults() == []
    assert any("as many reflections" in each for each in replace(turn, family="Householder", reflections=1).faults())
    for family, fault in (("Cayley", "−1 is an eigenvalue"), ("rotating planes", "reflects a plane")):
        mirrored = replace(cell("orthogonal", "S3").witness, family=family)
        assert any(fault in each for each in mirrored.faults())
    assert any(
        "mixes planes" in each for each in replace(cell("Cayley", "Q8").witness, family="rotating planes").faults()
    )
    weights = cell("column-stochastic", "S3").witness
    negative = tuple(-matrix for matrix in weights.matrices)
    assert any("sum to 1" in each for each in replace(weights, matrices=negative).faults())
    merging = moving_points("orthogonal", finite_monoid("T3"))
    assert any("changes lengths" in each for each in merging.faults())


WRONG = (
    ("diagonal", "Z6", Obstacle("letters that do not commute", (1, 2))),
    ("diagonal", "T3", Obstacle("letters that do not commute", (0, 1))),
    ("dense", "S3", Obstacle("letters that do not commute", (1, 2))),
    ("signed diagonal", "Z2", Obstacle("no such root", (1,))),
    ("diagonal", "flip-flop", Obstacle("no such root", (1,))),
    ("diagonal", "Z3", Obstacle("no such root", (0,))),
    ("orthogonal", "S3", Obstacle("no reset", (1,))),
    ("orthogonal", "T3", Obstacle("no reset", (0,))),
    ("dense", "flip-flop", Obstacle("no reset", (1,))),
    ("Cayley", "Z3", Obstacle("no half turn", (1,))),
    ("Cayley", "S3", Obstacle("no half turn", (0,))),
    ("Cayley", "S3", Obstacle("no half turn", (1,), 2)),
    ("orthogonal", "Q8", Obstacle("faithful representation", (), 5)),
    ("orthogonal", "T3", Obstacle("faithful representation", (), 2)),
    ("Householder", "S3", Obstacle("faithful representation", (), 2, 3)),
    ("dense", "T3", Obstacle("ranks of idempotents", (0, 3, 16), 4)),
    ("dense", "T3", Obstacle("ranks of idempotents", (16, 3, 0), 3)),
    ("dense", "T3", Obstacle("ranks of idempotents", (0, 1, 16), 3)),
    ("dense", "T3", Obstacle("ranks of idempotents", (0, 16), 3)),
    ("dense", "seen", Obstacle("ranks of idempotents", (0, 1, 3), 3)),
    ("dense", "T3", Obstacle("ranks of idempotents", (), 3)),
    ("dense", "T3", Obstacle("ranks of idempotents", (0, 3, 99), 3)),
)


@pytest.mark.parametrize(("family", "name", "obstacle"), WRONG)
def test_an_argument_whose_hypothesis_is_wrong_is_refused(family, name, obstacle):
    assert obstacle.faults(family, finite_monoid(name)) != []


def test_every_argument_is_used_and_refused():
    used = {one["reason"] for one in RECORD["answers"] if one["reason"]}
    assert used == set(REASONS) == {obstacle.reason for _, _, obstacle in WRONG}
    with pytest.raises(ValueError, match="reason must be"):
        Obstacle("tea", ()).faults("dense", finite_monoid("Z2"))


def test_answers_that_contradict_themselves_are_refused():
    possible, never = cell("dense", "S3"), cell("diagonal", "S3")
    both = replace(never, witness=replace(possible.witness, family="dense"))
    assert any("said to be impossible" in fault for fault in both.faults())
    assert any("another cell" in fault for fault in both.faults())
    too_high = replace(possible, obstacle=Obstacle("ranks of idempotents", (0,), 3))
    assert len(too_high.faults()) == 2  # the bound is not shown, and the witness is below it


def test_the_bound_by_ranks_counts_groups_and_zeros():
    full = finite_monoid("T4")
    assert len(full.chain) == least_rank("dense", full)[0] == least_rank("dense", full, full.chain)[0] == 4
    assert least_rank("dense", finite_monoid("seen"))[0] == 2
    assert least_rank("column-stochastic", finite_monoid("seen"))[0] == 3
    assert least_rank("permutation × diagonal", finite_monoid("Q8")) == (4, (0,))


@pytest.mark.parametrize("name", ["Z5", "A4", "T3", "seen"])
def test_witnesses_compile_to_models_that_are_right(name):
    monoid = finite_monoid(name)
    tokens = torch.randint(len(monoid.letters), (3, 200), generator=torch.Generator().manual_seed(0))
    elements, labels = np.zeros(3, dtype=np.int64), []
    for letters in tokens.T.numpy():
        elements = monoid.after[elements, letters]
        labels.append(elements)
    for family in FAMILIES:
        witness = answer(family, monoid).witness
        if witness is not None:
            with torch.no_grad():
                assert (compiled(witness)(tokens).argmax(-1).numpy() == np.stack(labels, 1)).all(), family


def test_floats_of_orthogonal_families_are_orthogonal():
    matrices, _, weights, biases = cell("orthogonal", "A4").witness.floats()
    # A product of d numbers rounded to 2^-53 each, and a Cholesky factor of condition below 10.
    assert np.abs(matrices.transpose(0, 2, 1) @ matrices - np.eye(3)).max() < 100 * 2**-53
    assert weights.shape == (12, 3)
    assert np.allclose(biases, -((weights / 2) ** 2).sum(1))


def test_a_start_is_sought_until_elements_differ():
    still = [np.eye(2, dtype=object)] * 3
    assert any("one state" in fault for fault in witness_of("dense", finite_monoid("Z3"), still).faults())
    with pytest.raises(ValueError, match="family must be"):
        answer("tea", finite_monoid("Z3"))
