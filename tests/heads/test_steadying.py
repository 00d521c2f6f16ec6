"""Heads whose states keep their norm: what is kept, what changes, and what is refused."""

from __future__ import annotations

import pytest
import torch

from tests.comparison import assert_same
from transductor.certification import certify
from transductor.checks import LAW_TOLERANCE
from transductor.heads import LookbackHead, RandomFeatureHead, RationalHead, UniversalHead, steadied
from transductor.model import BackboneConfig, RationalReadout, RationalTransductor, load, save
from transductor.tasks import ModularCounting
from transductor.transitions import FAMILIES, DirectSum, OrthogonalTransitions, PermutationTransitions, steadied_table
from transductor.transitions.laws import Orthogonal
from transductor.transitions.steadying import is_orthogonal

ORTHOGONAL = ["orthogonal", "cayley", "squared_cayley", "signed_cayley", "exponential", "householder"]
SIZES = [1, 2, 3, 5, 6, 16]


@pytest.fixture(autouse=True)
def repeatable():
    torch.manual_seed(0)


def trained(family, dim=8, vocab_size=4, kind=RationalHead):
    """A head away from its start, as training leaves it."""
    head = kind(FAMILIES[family](vocab_size=vocab_size, state_dim=dim)).requires_grad_(False)
    for parameter in head.transitions.parameters():
        parameter.add_(0.3 * torch.randn_like(parameter))
    return head


def growth(table):
    """What a long random word does to the logarithm of the norm at each step."""
    return 0.5 * (table.double().square().sum((1, 2)) / table.shape[-1] - 1)


@pytest.mark.parametrize("dim", SIZES)
@pytest.mark.parametrize("family", ORTHOGONAL)
def test_the_table_stays_where_it_was_and_keeps_the_norm(family, dim):
    head = trained(family, dim)
    before, after = head.transitions.table(), steadied(head).transitions.table()
    assert after.dtype == torch.float32
    assert (after - before).abs().max() < LAW_TOLERANCE[torch.float32]
    assert Orthogonal().deviation(after).max() < LAW_TOLERANCE[torch.float32]
    # Small matrices have few entries to choose from, those of two dimensions four.
    allowed = {1: 0.0, 2: 2e-8, 16: 1e-11}.get(dim, 1e-9)
    assert growth(after).abs().max() <= allowed


@pytest.mark.parametrize("dim", [3, 6, 7, 16])
@pytest.mark.parametrize("family", ORTHOGONAL)
def test_a_head_at_its_start_keeps_the_norm_too(family, dim):
    """Near the identity, small entries moved by an ulp are no match for the rounding of those near 1."""
    before = FAMILIES[family](vocab_size=8, state_dim=dim).requires_grad_(False)
    after = steadied_table(before.double().table())
    assert growth(after).abs().max() <= {3: 2e-10}.get(dim, 2e-11)
    assert (after.double() - before.table()).abs().max() < 2e-6


@pytest.mark.parametrize("seed", [122, 278, 352])
def test_starts_that_lost_ten_times_as_much_as_the_rest(seed):
    """The worst of 400 starts of the block in docs/heads.md: two of four matrices lost 5e-10 of the norm a step."""
    torch.manual_seed(seed)
    head = RationalHead(OrthogonalTransitions(vocab_size=4, state_dim=16))
    assert growth(steadied(head).transitions.table()).abs().max() <= 1e-11


def test_entries_too_small_for_a_float_do_not_stop_the_search():
    """A few ulps below the smallest numbers of float32 there is no number, and NaN compares with nothing."""
    turn = 0.3 * torch.tensor([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    table = torch.linalg.matrix_exp(turn)[None]
    table[0, 2, 0] = 3e-45
    after = steadied_table(table)
    assert after.isfinite().all()
    assert after[0, 2, 0] == torch.tensor(3e-45)
    assert growth(after).abs().max() < 1e-8 < growth(table.float()).abs().max()


@pytest.mark.parametrize("family", ["orthogonal", "householder"])
def test_the_norm_lasts_a_million_steps(family):
    """With all letters and with one; the old table loses a hundred times as much."""
    head = trained(family, 16)
    head.raw_initial_state.div_(head.raw_initial_state.norm())
    steady, tokens = steadied(head), torch.randint(0, 4, (1, 1_000_000))
    for words, allowed in ((tokens, 1e-4), (torch.zeros_like(tokens), 1e-2)):
        _, final = steady(words, return_final=True)
        assert abs(final.double().norm() - 1) < allowed
    lost = growth(head.transitions.table()).mean().abs()
    assert lost > 100 * growth(steady.transitions.table()).mean().abs()


def test_eigenvalues_are_nearer_to_the_circle():
    head = trained("orthogonal", 16)
    before, after = (
        torch.linalg.eigvals(each.transitions.table().double()).abs().log().abs().max()
        for each in (head, steadied(head))
    )
    assert after < before / 5


def test_all_at_once_and_step_by_step_multiply_by_the_same_numbers():
    """A Householder head steps by its reflections; a steadied one steps by its table."""
    steady, tokens = steadied(trained("householder")), torch.randint(0, 4, (2, 50))
    together, stream, stepped = steady(tokens), steady.start(2), []
    assert torch.equal(stream.table, steady.transitions.table())
    assert stream.step.multiplies_table
    for t in range(50):
        state, stream = steady.advance(tokens[:, t : t + 1], stream)
        stepped.append(state)
    assert_same(torch.cat(stepped, 1), together)


def test_states_are_those_of_the_head_it_was_made_of():
    head, tokens = trained("orthogonal"), torch.randint(0, 4, (2, 200))
    assert_same(steadied(head)(tokens), head(tokens))
    assert not any(parameter.requires_grad for parameter in steadied(head).parameters())


def test_a_head_that_looks_back_still_does():
    head, tokens = trained("orthogonal", kind=LookbackHead), torch.randint(0, 4, (2, 9))
    steady = steadied(head)
    assert isinstance(steady, LookbackHead)
    assert_same(steady(tokens), head(tokens))


def test_blocks_keep_their_norms_one_by_one():
    """A block that loses what another gains would not do: parts of a sum, and coordinates that nothing joins."""
    parts = [trained("orthogonal", dim).transitions for dim in (6, 8)]
    head = RationalHead(DirectSum(*parts, PermutationTransitions(permutations=[(1, 0)] * 4)))
    steady = steadied(head)
    assert_same(steady(torch.arange(4)[None]), head(torch.arange(4)[None]))
    joined = torch.block_diag(*(part.double().table()[0] for part in parts))[None]
    for table in (steady.transitions.table(), steadied_table(joined)):
        for block in (slice(0, 6), slice(6, 14)):
            assert growth(table[:, block, block]).abs().max() < 1e-10
    assert torch.equal(steady.transitions.table()[:, 14:, 14:], head.transitions.table()[:, 14:, 14:])
    assert (steadied_table(joined)[joined == 0] == 0).all()


def test_only_the_orthogonal_part_of_a_universal_head_changes():
    head = UniversalHead(vocab_size=3, orthogonal_dim=6, stochastic_dim=4)
    steady, tokens = steadied(head), torch.randint(0, 3, (2, 30))
    assert_same(steady(tokens), head(tokens))
    assert torch.equal(steady.transitions.table()[:, 6:, 6:], head.transitions.table()[:, 6:, 6:])


def test_a_permutation_is_exact_already():
    head = RationalHead(PermutationTransitions(permutations=[(1, 2, 0), (0, 1, 2)]))
    assert steadied(head).transitions.name == "permutation"


def test_a_model_is_copied_saved_and_loaded(tmp_path):
    model = RationalTransductor(
        RationalHead(OrthogonalTransitions(vocab_size=3, state_dim=6)),
        BackboneConfig(vocab_size=3, width=8, layers=1, attention_heads=2),
    ).eval()
    before, tokens = model.rational_head.transitions, torch.randint(0, 3, (2, 20))
    steady = steadied(model)
    assert model.rational_head.transitions is before
    assert growth(steady.rational_head.transitions.table()).abs().max() < 1e-9  # near its start, most entries are tiny
    assert_same(steady(tokens), model(tokens))
    save(steady, tmp_path / "steady")
    again = load(tmp_path / "steady")
    assert torch.equal(again.rational_head.transitions.table(), steady.rational_head.transitions.table())


def test_what_cannot_be_steadied_is_refused():
    with pytest.raises(ValueError, match="orthogonal transitions; got dense"):
        steadied(RationalHead(FAMILIES["dense"](vocab_size=3, state_dim=4)))
    with pytest.raises(ValueError, match="orthogonal transitions; got random"):
        steadied(RandomFeatureHead(vocab_size=3, state_dim=4))
    with pytest.raises(ValueError, match="got no head"):
        steadied(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match="driven by tokens"):
        steadied(RationalHead(OrthogonalTransitions(feature_dim=3, state_dim=4)))
    with pytest.raises(ValueError, match=r"must be in float32; got torch\.float64"):
        steadied(trained("orthogonal").double())
    with pytest.raises(ValueError, match="table must be float64"):
        steadied_table(torch.eye(3)[None])
    with pytest.raises(ValueError, match=r"orthogonal matrices; MᵀM − I has an entry of 3.0e\+00"):
        steadied_table(2 * torch.eye(3, dtype=torch.float64)[None])


def test_families_that_promise_orthogonality_are_those_of_the_benchmark():
    names = [
        name for name in FAMILIES if name != "permutation" and is_orthogonal(FAMILIES[name](vocab_size=2, state_dim=4))
    ]
    assert sorted(names) == sorted(ORTHOGONAL)


def test_a_readout_too():
    model = RationalReadout(trained("orthogonal"), output_size=2)
    assert steadied(model).rational_head.transitions.name == "dense"


def test_certify_reads_the_table_like_any_other():
    """A model that knows nothing is refuted by a word, steadied or not; the word is read with the new numbers."""
    model = RationalReadout(trained("orthogonal", vocab_size=2), output_size=2).eval()
    certificate = certify(steadied(model), against=ModularCounting(2).automaton())
    assert certificate.verdict == "refuted"
