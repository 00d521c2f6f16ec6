"""Which family holds which machine, and what a refusal says."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from transductor.automata import WeightedAutomaton, machine
from transductor.compilation import CannotCompile, compile_head
from transductor.compilation.realisation import realised
from transductor.transitions import FAMILIES, certify_laws

ANYTHING = "dense stochastic column_choice shared_basis dplr block_sparse "
PERMUTES = ANYTHING + "permutation orthogonal signed_cayley "
HOLDS = {
    ("parity", "regular"): PERMUTES + "toeplitz hankel",
    ("counter:3", "regular"): PERMUTES + "toeplitz cayley squared_cayley exponential householder",
    ("counter:4", "regular"): PERMUTES + "toeplitz",
    ("symmetric:3", "regular"): PERMUTES,
    ("adder", "regular"): ANYTHING,
    ("tomita:4", "regular"): ANYTHING,
    ("flip_flop", "regular"): ANYTHING,
    # As numbers: ±1, a third of a turn, a quarter turn.
    (
        "parity",
        "smallest",
    ): "dense column_choice shared_basis dplr block_sparse toeplitz hankel orthogonal signed_cayley signed_diagonal",
    ("counter:3", "smallest"): "dense shared_basis dplr block_sparse toeplitz orthogonal signed_cayley cayley "
    "squared_cayley exponential householder",
    ("counter:4", "smallest"): "dense shared_basis dplr block_sparse toeplitz orthogonal signed_cayley cayley "
    "column_choice squared_cayley exponential householder",
}
EXACT = {*ANYTHING.split(), "permutation", "toeplitz", "hankel"}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("name", "realisation"), HOLDS, ids=map("-".join, HOLDS))
def test_a_family_holds_a_machine_or_names_one_that_does(name, realisation, family):
    dfa, target = machine(name).dfa, realised(machine(name).dfa, realisation)
    if family in HOLDS[name, realisation].split():
        for dtype, allowed in ((torch.float32, 1e-6), (torch.float64, 2e-15)):
            head = compile_head(dfa, family=family, realisation=realisation, dtype=dtype)
            assert head.transitions.name == family
            error = np.abs(head.transitions.table().detach().double().numpy() - target.matrices).max()
            start = np.abs(head.initial_state().detach().double().numpy() - target.initial).max()
            exact = realisation == "regular" and family in EXACT
            assert max(error, start) <= (0 if exact else allowed)
            assert all(law.holds for law in certify_laws(head.transitions, head.transitions.table()))
    else:
        with pytest.raises(CannotCompile, match=r"can$") as refused:
            compile_head(dfa, family=family, realisation=realisation)
        assert refused.value.instead
        for other in refused.value.instead:
            assert repr(other) in str(refused.value)
            compile_head(dfa, family=other, realisation=realisation)


@pytest.mark.parametrize(
    ("family", "name", "why"),
    [
        ("cayley", "parity", r"eigenvalue −1 .* the letter '1' has it: .*; 'orthogonal' and 'signed_cayley' can"),
        ("cayley", "flip_flop", "the letter 's' merges states; 'stochastic' and 'dense' can"),
        ("squared_cayley", "counter:4", "det −1.*'orthogonal'"),
        ("exponential", "symmetric:3", "the letter 's' has det −1.*'orthogonal'"),
        ("householder", "parity", "one determinant, and these letters have both.*'orthogonal'"),
        ("permutation", "adder", r"the letter \(0, 0\) does not.*'stochastic'"),
        ("signed_diagonal", "parity", "realisation='smallest'"),
        ("sinkhorn", "parity", "strictly positive.*'permutation'"),
        ("scaled_cayley", "counter:3", "gain strictly between 0 and 1"),
        ("random", "parity", "drawn, not chosen"),
        ("butterfly", "parity", "no inverse chart"),
    ],
)
def test_a_refusal_says_why(family, name, why):
    with pytest.raises(CannotCompile, match=why):
        compile_head(machine(name).dfa, family=family)


def test_a_permutation_has_nothing_to_train():
    with pytest.raises(CannotCompile, match="nothing to train; 'orthogonal' and 'dense' can"):
        compile_head(machine("parity").dfa, family="permutation", trainable=True)
    assert compile_head(machine("parity").dfa, trainable=True).transitions.name == "dense"


def series(*matrices, initial=None):
    """A weighted automaton over floats with these matrices."""
    dim = len(matrices[0])
    start = np.eye(dim)[0] if initial is None else initial
    return WeightedAutomaton(start, list(matrices), np.ones(dim), range(len(matrices)), weights="float")


def random_orthogonal(rng, dim, determinant):
    basis = np.linalg.qr(rng.normal(size=(dim, dim)))[0]
    if np.sign(np.linalg.det(basis)) != determinant:
        basis[:, 0] *= -1
    return basis


def with_angles(rng, dim, angles, determinant=1):
    """A rotation with the given angles, in random planes; perhaps reflected in what is left."""
    basis, inner = random_orthogonal(rng, dim, 1), np.eye(dim)
    for plane, angle in enumerate(angles):
        turn = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
        inner[2 * plane : 2 * plane + 2, 2 * plane : 2 * plane + 2] = turn
    inner[-1, -1] *= determinant
    return basis @ inner @ basis.T


def assert_held(automaton, family, allowed=1e-13):
    head = compile_head(automaton, family=family, dtype=torch.float64)
    assert np.abs(head.transitions.table().detach().numpy() - automaton.matrices).max() < allowed


@pytest.mark.parametrize("dim", [1, 2, 3, 5, 8, 16])
@pytest.mark.parametrize("seed", range(3))
def test_any_orthogonal_matrix_is_found_again(dim, seed):
    rng = np.random.default_rng(seed)
    both = series(*(random_orthogonal(rng, dim, sign) for sign in (1, -1, 1)))
    for family in ("orthogonal", "signed_cayley"):
        assert_held(both, family)
    for sign, families in ((1, ["squared_cayley", "exponential", "cayley", "householder"]), (-1, ["householder"])):
        for family in families:
            assert_held(series(*(random_orthogonal(rng, dim, sign) for _ in range(2))), family)


@pytest.mark.parametrize("angles", [[0.0], [np.pi], [np.pi, np.pi], [np.pi, np.pi, 1.0], [1.0, 1.0], [np.pi, 0.0, 1.0]])
def test_half_turns_and_equal_angles_are_found_again(angles):
    rng = np.random.default_rng(0)
    rotation, reflection = (with_angles(rng, 7, angles, determinant) for determinant in (1, -1))
    for family in ("squared_cayley", "exponential"):
        assert_held(series(rotation), family)
        with pytest.raises(CannotCompile, match="det −1"):
            compile_head(series(reflection), family=family)
    for family in ("orthogonal", "signed_cayley"):
        assert_held(series(rotation, reflection), family)
    if np.pi in angles:
        with pytest.raises(CannotCompile, match="eigenvalue −1"):
            compile_head(series(rotation), family="cayley")


@pytest.mark.parametrize("gap", [1e-2, 1e-4, 1e-6])
def test_near_a_half_turn_the_answer_is_right_or_refused(gap):
    rotation = with_angles(np.random.default_rng(0), 3, [np.pi - gap])
    for family in ("squared_cayley", "exponential", "orthogonal", "signed_cayley"):
        assert_held(series(rotation), family)
    try:
        assert_held(series(rotation), "cayley")
    except CannotCompile as refused:
        assert "only to" in str(refused)  # noqa: PT017


def test_probabilities_are_held_where_none_is_zero():
    rng = np.random.default_rng(0)
    columns = rng.dirichlet(np.ones(3), (2, 3)).transpose(0, 2, 1)
    start = rng.dirichlet(np.ones(3))
    head = compile_head(series(*columns, initial=start), family="stochastic", dtype=torch.float64)
    assert head.transitions.temperature == 1.0
    assert np.abs(head.transitions.table().detach().numpy() - columns).max() < 1e-15
    columns[0, :, 0] = [0.5, 0.5, 0.0]
    with pytest.raises(CannotCompile, match=r"a softmax, which has no zeros.*'dense'"):
        compile_head(series(*columns, initial=start), family="stochastic")
    with pytest.raises(CannotCompile, match="distributions"):
        compile_head(series(2 * columns[1], initial=start), family="stochastic")


def test_decays_and_structured_matrices_are_held():
    assert_held(series(np.diag([0.5, 0.9, 1.0]), np.diag([3.0, 0.1, 1.0])), "diagonal", 1e-14)
    assert_held(series(np.diag([0.5, -0.9, 0.0]), np.diag([-3.0, 0.1, 1.0])), "signed_diagonal", 1e-14)
    turn = with_angles(np.random.default_rng(0), 4, [1.0, 2.0])
    assert_held(series(0.5 * turn, 0.9 * turn), "scaled_cayley")
    assert_held(series([[1.0, 2, 3], [4, 1, 2], [5, 4, 1]]), "toeplitz", 1e-300)
    assert_held(series([[1.0, 2, 3], [2, 3, 4], [3, 4, 5]]), "hankel", 1e-300)
    affine = series([[2.0, 3.0], [0.0, 1.0]], initial=[0.0, 1.0])
    assert_held(affine, "affine", 1e-300)
    assert_held(series(np.arange(16.0).reshape(4, 4) + np.eye(4)), "dplr", 1e-12)
    for family, wrong in (
        ("diagonal", np.diag([1.0, 0.0])),
        ("scaled_cayley", 2 * np.eye(2)),
        ("affine", np.eye(2) / 2),
    ):
        with pytest.raises(CannotCompile, match=r"can$"):
            compile_head(series(wrong), family=family)


def test_scaled_rotations_are_refused_where_they_are_none():
    half_turn = -0.5 * np.eye(2)
    with pytest.raises(CannotCompile, match="without the eigenvalue −1"):
        compile_head(series(half_turn), family="scaled_cayley")
    with pytest.raises(CannotCompile, match="multiples of rotations only"):
        compile_head(series(np.diag([0.5, 0.7])), family="scaled_cayley")


def test_a_family_keeps_the_matrices_of_its_letters_apart():
    dfa = machine("symmetric:3").dfa
    head = compile_head(dfa, family="orthogonal")
    assert head.transitions.signs.shape == (2, 6)
    assert sorted(head.transitions.signs.prod(-1).tolist()) == [-1, 1]
