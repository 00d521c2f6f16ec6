"""What single families promise beyond the shared laws."""

from __future__ import annotations

import math
from itertools import permutations, product

import pytest
import torch

from tests.comparison import assert_same
from transductor.configuration import ConfigurationError, from_plain
from transductor.heads import RationalHead
from transductor.transitions import (
    FAMILIES,
    AffineTransitions,
    Cascade,
    CayleyTransitions,
    DenseTransitions,
    DirectSum,
    DPLRTransitions,
    ExponentialTransitions,
    FamilySpec,
    HouseholderTransitions,
    OrthogonalTransitions,
    PermutationTransitions,
    RandomTransitions,
    ScaledCayleyTransitions,
    SharedBasisTransitions,
    SignedCayleyTransitions,
    SignedDiagonalTransitions,
    SinkhornTransitions,
    SpectralCap,
    SquaredCayleyTransitions,
    StochasticTransitions,
    TensorProduct,
    build_family,
    certify_laws,
    spectrally_capped,
)

EXACT = 1e-12
DIAGONAL = FAMILIES["diagonal"]


def permutation_matrix(images):
    matrix = torch.zeros(len(images), len(images), dtype=torch.float64)
    for source, target in enumerate(images):
        matrix[target, source] = 1
    return matrix


def upper(matrix):
    rows, columns = torch.triu_indices(len(matrix), len(matrix), 1)
    return matrix[rows, columns]


def skew_logarithm(rotation):
    """A real skew L with exp(L) = rotation, eigenvalue −1 included: a half turn in a plane of its own."""
    size = len(rotation)
    symmetric = (rotation + rotation.T) / 2  # cosines, each plane twice
    cosines, basis = torch.linalg.eigh(symmetric)
    logarithm = torch.zeros_like(rotation)
    used = torch.zeros(size, dtype=torch.bool)
    for i in range(size):
        if used[i] or cosines[i] > 1 - 1e-9:
            continue
        first = basis[:, i]
        if cosines[i] < -1 + 1e-9:
            partner = next(j for j in range(i + 1, size) if not used[j] and cosines[j] < -1 + 1e-9)
            second, angle = basis[:, partner], torch.pi
            used[partner] = True
        else:
            sine = (rotation - rotation.T) / 2 @ first
            angle = torch.atan2(sine.norm(), cosines[i])
            second = sine / sine.norm()
            for j in range(i + 1, size):  # the rest of this eigenspace avoids the plane
                if abs(cosines[j] - cosines[i]) < 1e-9 and not used[j]:
                    basis[:, j] -= (basis[:, j] @ second) * second + (basis[:, j] @ first) * first
            rest = [j for j in range(i + 1, size) if abs(cosines[j] - cosines[i]) < 1e-9 and not used[j]]
            smallest = min(rest, key=lambda j: basis[:, j].norm())
            used[smallest] = True
            rest.remove(smallest)
            if rest:
                basis[:, rest] = torch.linalg.qr(basis[:, rest])[0]
        used[i] = True
        logarithm += angle * (torch.outer(second, first) - torch.outer(first, second))
    return logarithm


def set_raw(family, raw):
    with torch.no_grad():
        family.source.raw.copy_(raw)
    return family


class TestTheOrthogonalGroup:
    @pytest.mark.parametrize("images", list(permutations(range(4))))
    def test_every_rotation_is_reached_by_the_exponential_and_the_squared_cayley_map(self, images):
        target = permutation_matrix(images)
        if torch.linalg.det(target) < 0:  # an odd permutation becomes a rotation in one more dimension
            target = torch.block_diag(target, -torch.ones(1, 1, dtype=torch.float64))
        logarithm = skew_logarithm(target)
        size = len(target)
        exponential = set_raw(ExponentialTransitions(state_dim=size, vocab_size=1).double(), upper(logarithm))
        assert (exponential.table()[0] - target).abs().max() < EXACT
        # C(A) = exp(L/2) for A = tanh(L/4), and tanh(X) = (e^2X − 1)(e^2X + 1)⁻¹.
        quarter = torch.linalg.matrix_exp(logarithm / 2)
        eye = torch.eye(size, dtype=torch.float64)
        half_angle = torch.linalg.solve(quarter + eye, quarter - eye)
        squared = set_raw(SquaredCayleyTransitions(state_dim=size, vocab_size=1).double(), upper(half_angle))
        assert (squared.table()[0] - target).abs().max() < EXACT

    @pytest.mark.parametrize("images", list(permutations(range(4))))
    def test_every_permutation_is_reached_by_the_default(self, images):
        """Signs carry the determinant, the squared Cayley map the rotation that is left."""
        target = permutation_matrix(images)
        family = OrthogonalTransitions(state_dim=4, vocab_size=1, negatives=int(torch.linalg.det(target) < 0)).double()
        quarter = torch.linalg.matrix_exp(skew_logarithm(target * family.signs) / 2)
        eye = torch.eye(4, dtype=torch.float64)
        set_raw(family, upper(torch.linalg.solve(quarter + eye, quarter - eye)))
        assert (family.table()[0] - target).abs().max() < EXACT

    @pytest.mark.parametrize("images", list(permutations(range(4))))
    def test_every_permutation_is_a_signed_cayley_matrix(self, images):
        target = permutation_matrix(images)
        eye = torch.eye(4, dtype=torch.float64)
        signs = next(
            s for s in map(torch.tensor, product((1.0, -1.0), repeat=4))
            if torch.linalg.svdvals(target * s + eye).min() > 0.1
        ).double()  # fmt: skip
        rotation = target * signs
        family = SignedCayleyTransitions(state_dim=4, vocab_size=1).double()
        set_raw(family, upper(torch.linalg.solve(rotation + eye, rotation - eye)))
        family.signs.copy_(signs)
        assert (family.table()[0] - target).abs().max() < EXACT

    def test_every_permutation_is_a_product_of_reflections(self):
        for images in permutations(range(4)):
            # Sort by transpositions; each is the reflection along e_i − e_j.  Pairs that cancel fill up to k.
            swaps, current = [], list(images)
            for i in range(4):
                while current[i] != i:
                    j = current[i]
                    swaps.append((i, j))
                    current[i], current[j] = current[j], current[i]
            normals = [torch.eye(4)[i] - torch.eye(4)[j] for i, j in swaps]
            normals += [torch.eye(4)[0]] * (4 + len(swaps) % 2 - len(swaps))
            family = HouseholderTransitions(state_dim=4, vocab_size=1, reflections=len(normals)).double()
            set_raw(family, torch.stack(normals).flatten())
            entries = family.table()[0].abs()
            assert (entries.round() - entries).abs().max() < EXACT
            assert tuple(entries.argmax(0).tolist()) == images

    def test_the_default_reaches_eigenvalue_minus_one_and_pure_cayley_does_not(self):
        flip = set_raw(OrthogonalTransitions(state_dim=2, vocab_size=1).double(), torch.tensor([0.0]))
        assert torch.equal(flip.table()[0], torch.diag(torch.tensor([1.0, -1.0], dtype=torch.float64)))
        half_turn = set_raw(OrthogonalTransitions(state_dim=2, vocab_size=1, negatives=0).double(), torch.tensor([1.0]))
        assert (half_turn.table()[0] + torch.eye(2)).abs().max() < EXACT
        for angle in (1.0, 10.0, 1e4):
            plain = set_raw(CayleyTransitions(state_dim=2, vocab_size=1).double(), torch.tensor([angle]))
            assert torch.linalg.svdvals(plain.table()[0] + torch.eye(2)).min() > 1e-5

    def test_signed_diagonal_reaches_both_ends_exactly(self):
        family = SignedDiagonalTransitions(state_dim=2, vocab_size=1).double()
        set_raw(family, torch.tensor([0.0, torch.pi], dtype=torch.float64))
        assert torch.equal(family.table()[0], torch.diag(torch.tensor([1.0, -1.0], dtype=torch.float64)))


class TestStochastic:
    def test_temperature_zero_is_a_deterministic_automaton(self):
        family = StochasticTransitions(state_dim=5, vocab_size=3, init_scale=2.0)
        soft = family.table()
        family.temperature = 0
        hard = family.table()
        assert set(hard.unique().tolist()) == {0.0, 1.0}
        assert torch.equal(hard.argmax(-2), soft.argmax(-2))
        assert certify_laws(family)[0].measured == 0
        start = family.start_from(torch.randn(5))
        assert sorted(start.tolist()) == [0, 0, 0, 0, 1]

    def test_the_mass_of_a_distribution_is_preserved(self):
        family = StochasticTransitions(state_dim=5, vocab_size=3).double()
        start = family.start_from(torch.randn(5, dtype=torch.float64))
        after = family.table() @ start
        assert (after.sum(-1) - 1).abs().max() < EXACT

    def test_a_cold_sinkhorn_is_almost_a_permutation(self):
        family = SinkhornTransitions(state_dim=4, vocab_size=1).double()
        images = (2, 0, 3, 1)
        set_raw(family, (3 * permutation_matrix(images) + torch.rand(4, 4, dtype=torch.float64)).flatten())
        family.temperature = 0.05
        assert (family.table()[0] - permutation_matrix(images)).abs().max() < 1e-12
        assert all(certificate.holds for certificate in certify_laws(family))


class TestSpectralControl:
    def test_untouched_below_the_cap(self):
        matrices = torch.randn(6, 4, 4)
        norms = torch.linalg.matrix_norm(matrices, 2)
        cap = norms.median().item()
        capped = spectrally_capped(matrices, cap)
        below = norms <= cap
        assert torch.equal(capped[below], matrices[below])
        assert (torch.linalg.matrix_norm(capped, 2)[~below] - cap).abs().max() < 1e-5

    def test_caps_any_family(self):
        family = SpectralCap(DirectSum(DenseTransitions(state_dim=3, vocab_size=2)), spectral_cap=0.5)
        assert torch.linalg.matrix_norm(family.table(), 2).max() <= 0.5 + 1e-6

    def test_structure_survives_the_cap(self):
        family = SpectralCap(DIAGONAL(state_dim=3, vocab_size=2), spectral_cap=0.5)
        assert [law.claim for law in family.laws()] == ["‖M‖₂ ≤ 0.5", "diagonal support"]
        assert all(certificate.holds for certificate in certify_laws(family))


class TestParameterCounts:
    def test_shared_basis(self):
        assert SharedBasisTransitions(state_dim=8, vocab_size=100, basis_size=3).parameter_count() == 100 * 3 + 3 * 64

    @pytest.mark.parametrize(
        ("name", "count"),
        [("dense", 64), ("cayley", 28), ("orthogonal", 28), ("squared_cayley", 28), ("exponential", 28),
         ("signed_cayley", 28), ("scaled_cayley", 29), ("diagonal", 8), ("dplr", 24), ("householder", 32),
         ("stochastic", 64), ("column_choice", 72), ("positive", 64),
         ("toeplitz", 15), ("hankel", 15), ("butterfly", 48),
         ("affine", 56), ("random", 0), ("permutation", 0)],
    )  # fmt: skip
    def test_per_token(self, name, count):
        assert FAMILIES[name](state_dim=8, vocab_size=10).parameter_count() == 10 * count

    def test_step_costs(self):
        assert FAMILIES["column_choice"](state_dim=32, vocab_size=1).step_cost() == 32
        assert FAMILIES["diagonal"](state_dim=32, vocab_size=1).step_cost() == 32
        assert DPLRTransitions(state_dim=32, vocab_size=1, rank=2).step_cost() == 32 * 5
        assert DenseTransitions(state_dim=32, vocab_size=1).step_cost() == 32 * 32


class TestAlgebra:
    def test_direct_sum_and_tensor_product_of_known_machines(self):
        flip = PermutationTransitions(permutations=[(0, 1), (1, 0)])
        turn = PermutationTransitions(permutations=[(0, 1, 2), (1, 2, 0)])
        together = DirectSum(flip, turn).table()
        assert torch.equal(together[1], torch.block_diag(flip.table()[1], turn.table()[1]))
        in_step = TensorProduct(flip, turn).table()
        assert torch.equal(in_step[1], torch.kron(flip.table()[1], turn.table()[1]))

    def test_a_part_of_a_cascade_reads_the_previous_state_of_its_predecessor(self):
        first, second = (DenseTransitions(state_dim=2, vocab_size=1).double() for _ in range(2))
        family = Cascade(first, second).double()
        with torch.no_grad():
            family.couplings[0].copy_(torch.tensor([[1.0, 2.0, 3.0, 4.0]]))
        h1, h2 = torch.randn(2, dtype=torch.float64), torch.randn(2, dtype=torch.float64)
        after = family.table()[0] @ torch.cat((h1, h2))
        coupling = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)
        assert_same(after[:2], first.table()[0] @ h1)
        assert_same(after[2:], second.table()[0] @ h2 + coupling @ h1)

    def test_an_affine_family_adds_its_bias(self):
        family = AffineTransitions(state_dim=3, vocab_size=1)
        start = family.start_from(torch.randn(3))
        matrix = family.table()[0]
        assert start[-1] == 1
        assert_same((matrix @ start)[:2], matrix[:2, :2] @ start[:2] + matrix[:2, 2])

    def test_permutations_send_states_where_they_say(self):
        family = PermutationTransitions(permutations=[(2, 0, 1)])
        assert (family.table()[0] @ torch.eye(3)[0]).argmax() == 2
        assert torch.equal(family.stepper()(torch.eye(3)[:1], torch.tensor([0])), torch.eye(3)[2:])


@pytest.mark.parametrize(
    ("error", "words", "build"),
    [
        (ValueError, "vocab_size must be a positive", lambda: CayleyTransitions(state_dim=2, vocab_size=0)),
        (ValueError, "exactly one of vocab_size", lambda: CayleyTransitions(state_dim=2)),
        (ValueError, "exactly one of", lambda: CayleyTransitions(state_dim=2, vocab_size=2, feature_dim=2)),
        (ValueError, "init_scale must be", lambda: CayleyTransitions(state_dim=2, vocab_size=2, init_scale=-1.0)),
        (ValueError, "rank must be a positive", lambda: DPLRTransitions(state_dim=2, vocab_size=2, rank=0)),
        (ValueError, "spectral_cap must be", lambda: RandomTransitions(state_dim=2, vocab_size=2, spectral_cap=0)),
        (ValueError, "temperature must be", lambda: StochasticTransitions(state_dim=2, vocab_size=2, temperature=-1)),
        (ValueError, "temperature must be", lambda: SinkhornTransitions(state_dim=2, vocab_size=2, temperature=0)),
        (ValueError, "temperature must be", lambda: StochasticTransitions(state_dim=2, vocab_size=2, temperature="a")),
        (ValueError, "init_scale must be", lambda: Cascade(DIAGONAL(state_dim=2, vocab_size=2), init_scale=-1)),
        (ValueError, "must be different objects", lambda: DirectSum(*[DIAGONAL(state_dim=2, vocab_size=2)] * 2)),
        (TypeError, "must be a floating-point tensor", lambda: DIAGONAL(state_dim=2, feature_dim=2).matrices([1])),
        (ValueError, "identity_weight", lambda: StochasticTransitions(state_dim=2, vocab_size=2, identity_weight=1)),
        (ValueError, "negatives must be", lambda: SignedCayleyTransitions(state_dim=2, vocab_size=2, negatives=3)),
        (ValueError, "rearrangements of 0", lambda: PermutationTransitions(permutations=[(0, 0)])),
        (ValueError, "must share one drive", lambda: DirectSum(*(DIAGONAL(state_dim=2, vocab_size=v) for v in (1, 2)))),
        (ValueError, "at least one part", lambda: DirectSum()),
        (TypeError, "must be transition families; got Linear", lambda: DirectSum(torch.nn.Linear(2, 2))),
        (ValueError, "family must be one of 'dense', 'affine'", lambda: build_family(FamilySpec("celery"))),
        (ConfigurationError, "kind must be one of", lambda: from_plain({"kind": "Recipe"})),
        (ConfigurationError, "has no field 'size'", lambda: from_plain({"kind": "FamilySpec", "size": 2})),
        (ValueError, r"call matrices\(features\)", lambda: CayleyTransitions(state_dim=2, feature_dim=2).table()),
        (ValueError, r"call table\(\)", lambda: DIAGONAL(state_dim=2, vocab_size=2).matrices(torch.ones(2))),
        (ValueError, "end in dimension 2", lambda: DIAGONAL(state_dim=2, feature_dim=2).matrices(torch.ones(3))),
    ],
)  # fmt: skip
def test_bad_arguments_are_refused_by_name(error, words, build):
    with pytest.raises(error, match=words):
        build()


@pytest.mark.parametrize("state_dim", [0, -1, 2.5, "8", True])
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_refuses_a_bad_dimension(name, state_dim):
    with pytest.raises(ValueError, match="state_dim must be a positive integer; got"):
        FAMILIES[name](state_dim=state_dim, vocab_size=2)


def test_signed_gains_conserve_for_some_tokens_and_forget_or_turn_round_for_others():
    family = ScaledCayleyTransitions(vocab_size=4, state_dim=3, gains="signed")
    with torch.no_grad():
        family.source.raw[:, -1] = torch.tensor([0.0, math.pi, math.pi / 2, math.acos(0.5)])
    norms = torch.linalg.matrix_norm(family.table(), 2)
    torch.testing.assert_close(norms, torch.tensor([1.0, 1.0, 0.0, 0.5]), atol=1e-6, rtol=0)
    torch.testing.assert_close(torch.linalg.det(family.table()[:2]), torch.tensor([1.0, -1.0]))
    head = RationalHead(family)
    kept = head(torch.zeros(1, 5000, dtype=torch.long)).norm(dim=-1)
    torch.testing.assert_close(kept, kept[:, :1].expand_as(kept), atol=1e-3, rtol=1e-3)
    turned = head(torch.ones(1, 2, dtype=torch.long)).norm(dim=-1)
    torch.testing.assert_close(turned, kept[:, :2])
    assert head(torch.full((1, 1), 2)).abs().max() < 1e-6


def test_gains_of_a_scaled_cayley_head_start_alike_and_are_named():
    for gains in ("decay", "signed"):
        family = ScaledCayleyTransitions(vocab_size=2, state_dim=4, gains=gains, init_scale=0)
        torch.testing.assert_close(family.table(), 0.95 * torch.eye(4).expand(2, 4, 4))
    with pytest.raises(ValueError, match="gains must be one of"):
        ScaledCayleyTransitions(vocab_size=2, state_dim=4, gains="cosine")
