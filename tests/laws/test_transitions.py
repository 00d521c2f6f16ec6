"""What every family inherits: its laws hold everywhere, it starts near its start, gradients and steps agree."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch

from tests.comparison import assert_same
from transductor.checks import LAW_TOLERANCE
from transductor.configuration import from_json, to_json
from transductor.transitions import (
    COMPOSITES,
    FAMILIES,
    AffineTransitions,
    Cascade,
    CayleyTransitions,
    DenseTransitions,
    DirectSum,
    DPLRTransitions,
    ExponentialTransitions,
    OrthogonalTransitions,
    PermutationTransitions,
    SinkhornTransitions,
    SpectralCap,
    SquaredCayleyTransitions,
    StochasticTransitions,
    TensorProduct,
    build_family,
    certify_laws,
)

DIMS = [1, 2, 3, 8, 16, 32]
VOCABULARIES = [1, 2, 100]
DTYPES = [torch.float32, torch.float64]
FEATURES = 6


def composite_examples(**drive):
    """Composites of every kind, nested too."""

    def dim(d):
        return {"state_dim": d, **drive}

    rotation, switch = CayleyTransitions(**dim(3)), StochasticTransitions(**dim(2))
    return {
        "direct_sum": DirectSum(rotation, StochasticTransitions(**dim(3))),
        "direct_sum_of_rotations": DirectSum(CayleyTransitions(**dim(3)), SquaredCayleyTransitions(**dim(2))),
        "tensor_product": TensorProduct(SquaredCayleyTransitions(**dim(2)), ExponentialTransitions(**dim(3))),
        "tensor_product_of_distributions": TensorProduct(SinkhornTransitions(**dim(3)), SinkhornTransitions(**dim(2))),
        "cascade": Cascade(ExponentialTransitions(**dim(3)), DPLRTransitions(**dim(4)), switch),
        "spectral_cap": SpectralCap(DenseTransitions(**dim(4)), spectral_cap=0.9),
        "nested": DirectSum(
            Cascade(TensorProduct(CayleyTransitions(**dim(2)), switch), AffineTransitions(**dim(2))),
            SpectralCap(DirectSum(DenseTransitions(**dim(2)), DPLRTransitions(**dim(3)))),
        ),
    }


def shaken(family, steps=100):
    """After optimiser steps with random gradients that also share a direction, so parameters travel far."""
    trainable = [parameter for parameter in family.parameters() if parameter.requires_grad]
    if not trainable:
        return family
    optimiser = torch.optim.Adam(trainable, lr=0.05, fused=True)
    drift = [torch.randn_like(parameter) for parameter in trainable]
    for _ in range(steps):
        for parameter, direction in zip(trainable, drift, strict=True):
            parameter.grad = direction + torch.randn_like(parameter)
        optimiser.step()
    return family


# Families with options other than the defaults, for the law suite.
OPTIONS = {
    "diagonal": {"spectral_cap": 0.9},
    "signed_diagonal": {"spectral_cap": 2.0},
    "dplr": {"rank": 3, "spectral_cap": 0.5},
    "orthogonal": {"negatives": 0},
    "signed_cayley": {"negatives": 2},
    "scaled_cayley": {"gains": "signed"},
    "householder": {"reflections": 3},
    "stochastic": {"temperature": 0.1},
    "sinkhorn": {"temperature": 0.1, "iterations": 3},
    "shared_basis": {"basis_size": 2},
    "butterfly": {"spectral_cap": 0.5},
    "toeplitz": {"spectral_cap": 50.0},
    "hankel": {"spectral_cap": 0.5},
    "block_sparse": {"block_size": 3, "bandwidth": 0},
    "random": {"spectral_cap": 0.1},
    "positive": {"leak": 0.1},
    "column_choice": {"gains": "fixed", "gain_cap": 2.0, "surrogate_temperature": 0.3},
}

# A choice jumps: its gradient is another map's, and no constant bounds its change.
CHOOSES = ("column_choice",)
# No constant bounds how fast an exponential grows.
GROWS = ("positive",)


def assert_lawful(family, matrices=None):
    for certificate in certify_laws(family, matrices):
        assert certificate.holds, f"{family.name}: {certificate}"


def feature_driven():
    return [name for name in FAMILIES if name != "permutation"]


@pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "float64"])
@pytest.mark.parametrize("vocab_size", VOCABULARIES)
@pytest.mark.parametrize("state_dim", DIMS)
@pytest.mark.parametrize("name", FAMILIES)
def test_laws_hold_before_and_after_training(name, state_dim, vocab_size, dtype):
    family = FAMILIES[name](state_dim=state_dim, vocab_size=vocab_size).to(dtype)
    table = family.table()
    assert table.shape == (vocab_size, state_dim, state_dim)
    assert table.dtype == dtype
    assert_lawful(family)
    assert_lawful(shaken(family))


@pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "float64"])
@pytest.mark.parametrize("state_dim", [3, 16])
@pytest.mark.parametrize("name", OPTIONS)
def test_laws_hold_for_other_options(name, state_dim, dtype):
    family = FAMILIES[name](state_dim=state_dim, vocab_size=6, **OPTIONS[name]).to(dtype)
    assert_lawful(family)
    assert_lawful(shaken(family))
    assert build_family(family.spec()).spec() == family.spec()


@pytest.mark.parametrize("scale", [30.0, 1e3])
@pytest.mark.parametrize("state_dim", [3, 4, 33])
@pytest.mark.parametrize("name", ["cayley", "squared_cayley", "orthogonal", "signed_cayley", "scaled_cayley"])
def test_rotations_stay_rotations_far_from_the_start(name, state_dim, scale):
    assert_lawful(FAMILIES[name](state_dim=state_dim, vocab_size=10, init_scale=scale))


@pytest.mark.parametrize("size", [0.0, 1e-30, 1e-20])
def test_reflections_along_vanishing_normals_are_reflections(size):
    family = FAMILIES["householder"](state_dim=3, vocab_size=2)
    with torch.no_grad():
        family.source.raw.mul_(size)
    assert_lawful(family)
    family.table().sum().backward()
    assert torch.isfinite(family.source.raw.grad).all()


@pytest.mark.parametrize("name", FAMILIES)
def test_autocast_does_not_touch_the_matrices(name):
    family = FAMILIES[name](state_dim=6, vocab_size=5)
    expected = family.table()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(family.table(), expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "float64"])
@pytest.mark.parametrize("drive", [{"vocab_size": 1}, {"vocab_size": 5}, {"feature_dim": FEATURES}], ids=str)
@pytest.mark.parametrize("name", composite_examples(vocab_size=1))
def test_laws_of_composites_follow_from_the_parts(name, drive, dtype):
    family = composite_examples(**drive)[name].to(dtype)
    assert family.laws()
    for _ in range(2):
        matrices = None if "vocab_size" in drive else family.matrices(3 * torch.randn(50, FEATURES, dtype=dtype))
        assert_lawful(family, matrices)
        shaken(family)


def test_bounds_of_norms_follow_from_the_parts():
    rotation, mixing = OrthogonalTransitions(state_dim=2, vocab_size=3), DPLRTransitions(state_dim=3, vocab_size=3)
    for family in (DirectSum(rotation, mixing), TensorProduct(rotation, mixing)):
        assert "‖M‖₂ ≤ 1" in [law.claim for law in family.laws()]


def test_starts_of_products_are_products_of_starts():
    distributions = TensorProduct(*(StochasticTransitions(state_dim=d, vocab_size=1) for d in (2, 3)))
    start = distributions.start_from(torch.randn(6))
    assert (start >= 0).all()
    assert abs(start.sum().item() - 1) < 1e-6
    affine = TensorProduct(*(AffineTransitions(state_dim=d, vocab_size=1) for d in (2, 3)))
    assert affine.start_from(torch.randn(6))[-1] == 1
    free = TensorProduct(*(CayleyTransitions(state_dim=d, vocab_size=1) for d in (2, 3)))
    raw = torch.randn(6)
    assert torch.equal(free.start_from(raw), raw)


def test_low_precision_composites_are_built_in_float32():
    exact, rotation = PermutationTransitions(state_dim=3, vocab_size=2), CayleyTransitions(state_dim=3, vocab_size=2)
    family = DirectSum(exact, rotation).to(torch.bfloat16)
    assert family.table().dtype == torch.float32
    assert_lawful(family)


def test_a_direct_sum_of_rotations_is_known_to_be_a_rotation():
    claims = [law.claim for law in composite_examples(vocab_size=2)["direct_sum_of_rotations"].laws()]
    assert "MᵀM = I" in claims
    assert "det M = +1" in claims


@pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "float64"])
@pytest.mark.parametrize("state_dim", DIMS)
@pytest.mark.parametrize("name", feature_driven())
def test_laws_hold_for_every_feature_vector(name, state_dim, dtype):
    family = FAMILIES[name](state_dim=state_dim, feature_dim=FEATURES).to(dtype)
    for scale in (0.1, 1.0, 10.0):
        features = scale * torch.randn(4, 5, FEATURES, dtype=dtype)
        matrices = family.matrices(features)
        assert matrices.shape == (4, 5, state_dim, state_dim)
        assert_lawful(family, matrices.flatten(0, 1))


@pytest.mark.parametrize("state_dim", DIMS)
@pytest.mark.parametrize("name", FAMILIES)
def test_starts_near_its_start(name, state_dim):
    family = FAMILIES[name](state_dim=state_dim, vocab_size=20)
    start = family.start_matrix()
    if start is None:
        assert name in ("permutation", "random", "positive")
        return
    distance = torch.linalg.matrix_norm(family.table() - start, 2)
    assert distance.max() < 0.6, f"‖M − start‖₂ = {distance.max():.2f}"
    if name not in ("hankel", "signed_cayley", "orthogonal"):  # no Hankel matrix is the identity; signs are chosen
        assert torch.allclose(start, torch.eye(state_dim))


@pytest.mark.parametrize("name", [*FAMILIES, *composite_examples(vocab_size=1)])
def test_gradient_reaches_every_parameter(name):
    family = FAMILIES[name](state_dim=5, vocab_size=4) if name in FAMILIES else composite_examples(vocab_size=4)[name]
    shaken(family, steps=3).double()
    parameters = {key: value for key, value in family.named_parameters() if value.requires_grad}
    if name in ("permutation", "random"):
        assert not parameters
        return
    cotangent = torch.randn_like(family.table())
    (family.table() * cotangent).sum().backward()
    for key, parameter in parameters.items():
        assert parameter.grad is not None, key
        assert torch.isfinite(parameter.grad).all(), key
        assert (parameter.grad != 0).any(), key


@pytest.mark.parametrize("name", [name for name in FAMILIES if name not in ("permutation", "random", *CHOOSES)])
def test_gradient_is_right(name):
    family = FAMILIES[name](state_dim=3, vocab_size=2).double()
    shaken(family, steps=5)
    raw = family.raw_numbers(None).detach().requires_grad_()
    assert torch.autograd.gradcheck(family.chart, (raw,), atol=1e-6)


@pytest.mark.parametrize("drive", [{"vocab_size": 7}, {"feature_dim": FEATURES}], ids=["tokens", "features"])
@pytest.mark.parametrize("name", [*FAMILIES, *composite_examples(vocab_size=1)])
def test_a_step_is_the_matrix(name, drive):
    if name == "permutation" and "feature_dim" in drive:
        with pytest.raises(TypeError, match="feature_dim"):
            PermutationTransitions(state_dim=5, feature_dim=FEATURES)
        return
    family = FAMILIES[name](state_dim=6, **drive) if name in FAMILIES else composite_examples(**drive)[name]
    shaken(family, steps=5).double()
    state = torch.randn(11, family.state_dim, dtype=torch.float64)
    if "vocab_size" in drive:
        signal = torch.randint(0, 7, (11,))
        matrices = family.table()[signal]
    else:
        signal = torch.randn(11, FEATURES, dtype=torch.float64)
        matrices = family.matrices(signal)
    assert_same(family.stepper()(state, signal), (matrices @ state.unsqueeze(-1)).squeeze(-1))
    assert 0 < family.step_cost() <= family.state_dim**2 * 2


@pytest.mark.parametrize("name", [*FAMILIES, *composite_examples(vocab_size=1)])
def test_a_step_by_tokens_knows_only_what_it_keeps(name):
    """So its tensors can be copied to where a captured graph reads them, and overwritten there."""
    drive = {"vocab_size": 7}
    family = FAMILIES[name](state_dim=6, **drive) if name in FAMILIES else composite_examples(**drive)[name]
    stepper = family.stepper()
    other = shaken(copy.deepcopy(family), steps=5).stepper()
    state, tokens = torch.randn(11, family.state_dim), torch.randint(0, 7, (11,))
    expected = other(state, tokens)
    for parameter in family.parameters():
        torch.nn.init.zeros_(parameter)
    given = replace(stepper, kept=tuple(tensor.clone() for tensor in other.kept))
    assert torch.equal(given(state, tokens), expected)


def assert_lipschitz(family, bound):
    base = 2 * torch.randn(200, FEATURES, dtype=torch.float64)
    for step in (1e-4, 1e-1, 1.0):
        other = base + step * torch.nn.functional.normalize(torch.randn_like(base), dim=-1)
        moved = torch.linalg.matrix_norm(family.matrices(other) - family.matrices(base))
        ratio = (moved / (other - base).norm(dim=-1)).max().item()
        assert ratio <= (1e4 if bound is None else bound * (1 + 1e-6)), f"{ratio} > {bound}"


@pytest.mark.parametrize("name", [name for name in feature_driven() if name not in (*CHOOSES, *GROWS)])
def test_lipschitz_in_the_features(name):
    family = FAMILIES[name](state_dim=5, feature_dim=FEATURES).double()
    shaken(family, steps=20)
    bound = family.lipschitz_bound()
    # These are smooth, but products of raw numbers (or directions of vanishing ones) have no global constant.
    assert (bound is None) == (name in ("dplr", "butterfly", "householder"))
    assert_lipschitz(family, bound)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("scaled_cayley", {"gains": "signed"}),
        ("sinkhorn", {"temperature": 0.1, "iterations": 1}),
        ("stochastic", {"temperature": 0.1}),
        ("toeplitz", {"spectral_cap": 50.0}),
    ],
)
def test_lipschitz_in_the_features_for_other_options(name, options):
    family = FAMILIES[name](state_dim=4, feature_dim=FEATURES, **options).double()
    shaken(family, steps=20)
    assert_lipschitz(family, family.lipschitz_bound())
    assert FAMILIES["butterfly"](state_dim=2, feature_dim=FEATURES).lipschitz_bound() is not None


@pytest.mark.parametrize("name", composite_examples(vocab_size=1))
def test_composites_are_lipschitz_where_their_parts_are(name):
    """DPLR has no constant, and an affine factor has no bounded norm; every other composite has one."""
    family = composite_examples(feature_dim=FEATURES)[name].double()
    shaken(family, steps=20)
    bound = family.lipschitz_bound()
    assert (bound is None) == (name in ("cascade", "nested"))
    assert_lipschitz(family, bound)
    by_token = composite_examples(vocab_size=2)[name]
    assert by_token.lipschitz_bound() is None


def test_a_cascade_counts_its_couplings():
    parts = [CayleyTransitions(state_dim=2, feature_dim=FEATURES) for _ in range(2)]
    family = Cascade(*parts, init_scale=30.0).double()
    assert family.lipschitz_bound() > 2 * DirectSum(*(copy.deepcopy(part) for part in parts)).lipschitz_bound()
    assert_lipschitz(family, family.lipschitz_bound())


def test_a_product_with_an_unbounded_factor_has_no_constant():
    def of(family):
        return family(state_dim=2, feature_dim=FEATURES)

    assert TensorProduct(of(CayleyTransitions), of(DenseTransitions)).lipschitz_bound() is None
    assert TensorProduct(of(CayleyTransitions), of(StochasticTransitions)).lipschitz_bound() is not None


@pytest.mark.parametrize("drive", [{"vocab_size": 3}, {"feature_dim": FEATURES}], ids=["tokens", "features"])
@pytest.mark.parametrize("name", [*FAMILIES, *composite_examples(vocab_size=1)])
def test_a_spec_builds_the_same_family_again(name, drive):
    if name == "permutation":
        drive = {"vocab_size": 3}
    family = FAMILIES[name](state_dim=4, **drive) if name in FAMILIES else composite_examples(**drive)[name]
    spec = from_json(to_json(family.spec()))
    assert spec == family.spec()
    again = build_family(spec)
    again.load_state_dict(shaken(family, steps=2).state_dict())
    features = torch.randn(3, FEATURES) if "feature_dim" in drive else None
    assert torch.equal(again.build(features), family.build(features))
    assert again.parameter_count() == family.parameter_count()


@pytest.mark.parametrize("name", FAMILIES)
def test_low_precision_parameters_still_give_lawful_matrices(name):
    """After `.to(bfloat16)` the chart is computed in float32, so a rotation is still a rotation."""
    family = FAMILIES[name](state_dim=8, vocab_size=5).to(torch.bfloat16)
    table = family.table()
    assert table.dtype == torch.float32
    assert_lawful(family, table)


def test_composites_and_families_have_different_names():
    assert not set(FAMILIES) & set(COMPOSITES)
    assert set(LAW_TOLERANCE) == set(DTYPES)
