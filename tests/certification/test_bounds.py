from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from tests.certification.perturbed import (
    counter,
    labels_of,
    one_hot,
    random_machine,
    readout_model,
    rotating_counter,
    turn,
)
from transductor.certification.ball_arithmetic import Ball, gamma, is_positive, ordered_product, power_above, sum_above
from transductor.certification.bounds.anchors import margins_at
from transductor.certification.bounds.horizon import bounded, enumerated, readout_margins
from transductor.certification.bounds.norms import Atoms, Ellipsoid, Euclidean, Largest, NormError, Sum
from transductor.certification.bounds.stream import stream_logits
from transductor.certification.exactness import exactness
from transductor.certification.reachability import product_graph, refined_graph
from transductor.certification.search.anchor_points import _invariant_form, best_anchors
from transductor.certification.subjects import Subject, subject_of
from transductor.heads import RationalHead
from transductor.model import BackboneConfig, NoAttention, RationalTransductor
from transductor.recurrence import scan
from transductor.transitions import DenseTransitions, PermutationTransitions


def all_words(letters, length):
    return torch.tensor(list(itertools.product(range(letters), repeat=length)))


# Arithmetic


def test_a_ball_holds_what_it_should():
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=(4, 6)), rng.normal(size=(6, 3))
    exact = np.vectorize(float)(
        np.array([[sum(a * b for a, b in zip(row, column, strict=True)) for column in right.T] for row in left])
    )
    product = Ball.exactly(left) @ Ball.exactly(right)
    assert (np.abs(product.centre - exact) <= product.radius).all()
    assert (product.radius < 1e-13).all()
    wide = Ball(left, np.full(left.shape, 0.1)) @ Ball(right, np.full(right.shape, 0.2))
    for _ in range(50):
        inside = (left + rng.uniform(-0.1, 0.1, left.shape)) @ (right + rng.uniform(-0.2, 0.2, right.shape))
        assert (np.abs(wide.centre - inside) <= wide.radius).all()


def test_upper_bounds_are_above():
    rng = np.random.default_rng(1)
    values = rng.random((1000, 3)).astype(np.float32).astype(np.float64)
    exact = [math.fsum(column) for column in values.T]
    assert (sum_above(values) >= exact).all()
    assert (sum_above(values) <= np.array(exact) * (1 + 1e-11)).all()
    assert power_above(1 + 2**-30, 10**6) >= float((1 + 2**-30) ** 10**6)
    assert gamma(2, 0.3) == math.inf


def test_positive_matrices_are_told_from_others():
    rng = np.random.default_rng(2)
    for dim in (1, 2, 7, 20):
        factor = rng.normal(size=(dim, dim))
        basis = np.linalg.qr(factor)[0]
        values = np.linspace(0.1, 2, dim)
        good = (basis * values) @ basis.T
        values[0] = -1e-9
        bad = (basis * values) @ basis.T
        assert is_positive(Ball.exactly(0.5 * (good + good.T)))
        assert not is_positive(Ball.exactly(0.5 * (bad + bad.T)))
        assert not is_positive(Ball(good, np.full((dim, dim), 0.2)))


# Norms


def norms(table, points):
    dim = table.shape[1]
    yield Sum()
    yield Largest()
    yield Euclidean(dim)
    form = _invariant_form(table)
    yield Ellipsoid(np.diag(np.arange(1.0, dim + 1)) if form is None else form)
    yield Atoms(points, np.zeros((dim, 0)), np.linalg.pinv(points))


def distance(norm, vector):
    """The norm of one vector by its definition; of atoms, an upper bound by other means is enough."""
    match norm.kind:
        case "sum":
            return np.abs(vector).sum()
        case "largest":
            return np.abs(vector).max()
        case "euclidean":
            return np.linalg.norm(vector)
        case "ellipsoid":
            return math.sqrt(vector @ norm.form.centre @ vector)
    return None


def test_every_norm_bounds_what_it_measures():
    rng = np.random.default_rng(3)
    change = rng.normal(size=(3, 3))
    table = np.stack([change @ np.roll(np.eye(3), k, 0) @ np.linalg.inv(change) for k in range(2)])
    for norm in norms(table, change @ np.eye(3)):
        growths = norm.growths(table)
        for _ in range(100):
            vector, functional = rng.normal(size=3), rng.normal(size=3)
            size = norm.sizes(Ball.exactly(vector[:, None]))[0]
            true = distance(norm, vector)
            if true is not None:
                assert true <= size <= true * (1 + 1e-9), norm.kind
            assert abs(functional @ vector) <= norm.duals(functional[None])[0] * size * (1 + 1e-12), norm.kind
            for matrix, growth in zip(table, growths, strict=True):
                after = norm.sizes(Ball.exactly((matrix @ vector)[:, None]))[0]
                if norm.kind != "atoms":  # whose sizes are bounds, not values
                    assert after <= growth * size * (1 + 1e-9), norm.kind
        if norm.kind in ("ellipsoid", "atoms"):  # these fit the head: it does not grow
            assert growths.max() < 1 + 1e-9, norm.kind


def test_atoms_measure_the_span_of_anchor_points():
    """In the plane the norm of five corners is that of their polygon: a linear program by hand."""
    corners = np.stack([turn(2 * math.pi * k / 5)[:, 0] for k in range(5)], 1)
    norm = Atoms(corners, np.zeros((2, 0)), np.linalg.pinv(corners))
    both = np.concatenate((corners, -corners), 1)
    rng = np.random.default_rng(4)
    for _ in range(50):
        vector = rng.normal(size=2)
        pairs = (
            np.linalg.solve(both[:, [i, j]], vector) for i, j in itertools.combinations(range(10), 2) if (j - i) != 5
        )
        least = min(weights.sum() for weights in pairs if (weights >= -1e-12).all())
        assert least <= norm.sizes(Ball.exactly(vector[:, None]))[0] <= 1.4 * least
    with pytest.raises(NormError, match="do not span"):
        Atoms(corners[:, :1], np.zeros((2, 0)), np.linalg.pinv(corners[:, :1]))


def test_norms_that_are_none_are_refused():
    with pytest.raises(NormError, match="positive definite"):
        Ellipsoid(np.diag([1.0, -1e-6]))
    with pytest.raises(NormError, match="symmetric"):
        Ellipsoid(np.array([[1.0, 0.5], [0.0, 1.0]]))


# The bound


@pytest.mark.parametrize("error", [1e-2, 1e-3, 1e-4])
def test_a_drifting_rotation_is_bounded_from_below_within_a_factor_of_two(error):
    subject, _ = subject_of(rotating_counter(error))
    first_wrong = {1e-2: 63, 1e-3: 629, 1e-4: 6284}[error]
    anchors, bound = best_anchors(subject, counter(5), None, 10**6)
    assert first_wrong / 2 <= bound.holds_up_to < first_wrong
    graph = product_graph(counter(5), None)
    for norm in norms(subject.table, anchors.points):  # some are worse, none is wrong
        margins = readout_margins(subject, graph, anchors.points)
        assert bounded(subject, graph, anchors.points, norm, margins, 10**6).holds_up_to < first_wrong


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("seed", range(4))
def test_no_word_within_the_bound_is_wrong(seed, dtype):
    rng = np.random.default_rng(seed)
    machine = random_machine(rng, 4, 2, 3)
    table, initial, weight = one_hot(machine)
    change = np.linalg.qr(rng.normal(size=(4, 4)))[0] if seed % 2 else np.eye(4)
    table = change @ (table + 10.0 ** -rng.uniform(1.5, 3) * rng.normal(size=table.shape)) @ change.T
    model = readout_model(table, change @ initial, weight @ change.T, dtype=dtype)
    subject, _ = subject_of(model)
    _, bound = best_anchors(subject, machine, None, 10**4)
    length = min(10, bound.holds_up_to)
    assert length >= 2
    words = all_words(2, length)
    assert torch.equal(labels_of(model, words), machine.labels(words))
    words = torch.from_numpy(rng.integers(0, 2, (64, bound.holds_up_to)))
    words[:2] = torch.arange(2)[:, None]
    assert torch.equal(labels_of(model, words), machine.labels(words))
    assert enumerated(subject, product_graph(machine, None), 8) == 8


@pytest.mark.parametrize("backend", ["reference", "kogge_stone", "chunked"])
def test_rounding_stays_within_its_bound_in_every_order(backend):
    """The part ‖h₀‖ μ^t ((1 + κ)^t − 1), against the same numbers in float64."""
    torch.manual_seed(0)
    table = torch.linalg.qr(torch.randn(3, 6, 6, dtype=torch.float64))[0].float()
    initial, words = torch.randn(6), torch.randint(0, 3, (4, 1000))
    subject = Subject(table.numpy(), initial.numpy())
    norm = Euclidean(6)
    growth, kappa = float(norm.growths(subject.table).max()), norm.distortion * subject.step_error()
    computed = scan(table, words, initial_state=initial, backend=backend).double()
    exact = scan(table.double(), words, initial_state=initial.double(), backend="reference")
    errors = (computed - exact).norm(dim=-1).amax(0)
    times = torch.arange(1, 1001, dtype=torch.float64)
    bounds = initial.double().norm() * growth**times * ((1 + kappa) ** times - 1)
    assert (errors <= bounds).all()
    assert errors[-1] > 1e-4 * bounds[-1]  # not a bound of everything


def test_the_bound_sees_through_a_refined_graph():
    """A head that counts to ten shows each of five labels from two states: one point for each label would not do."""
    table = np.zeros((2, 4, 4))
    table[0] = np.eye(4)
    table[1, :2, :2], table[1, 2:, 2:] = turn(2 * math.pi / 5 + 1e-3), turn(2 * math.pi / 10)
    corners = np.stack([turn(2 * math.pi * k / 5)[:, 0] for k in range(5)])
    model = readout_model(table, [1.0, 0, 1, 0], np.concatenate((corners, np.zeros((5, 2))), 1))
    subject, _ = subject_of(model)
    anchors, bound = best_anchors(subject, counter(5), None, 10**6)
    assert anchors.targets is not None
    assert len(anchors.targets) == 10
    assert 300 < bound.holds_up_to < 629
    graph = refined_graph(anchors.targets, counter(5), None)
    margins = margins_at(subject, graph, anchors.points)
    assert bounded(subject, graph, anchors.points, anchors.norm(), margins, 10**6) == bound
    wrong = anchors.targets.copy()
    wrong[3, 1] = 5
    with pytest.raises(ValueError, match="follow the machine"):
        refined_graph(wrong, counter(5), None)


def test_enumeration_stops_at_the_first_word_that_may_be_wrong():
    model = rotating_counter(0.1)  # first wrong at 7
    subject, _ = subject_of(model)
    assert enumerated(subject, product_graph(counter(5), None), 100) == 6
    words = all_words(2, 7)
    assert not torch.equal(labels_of(model, words), counter(5).labels(words))
    assert torch.equal(labels_of(model, words[:, :6]), counter(5).labels(words[:, :6]))


# Exactness


def integers(table, initial, dtype=np.float32):
    return Subject(np.array(table, dtype=dtype), np.array(initial, dtype=dtype))


def test_what_never_rounds_is_recognised():
    rotation = [[[0, -1], [1, 0]]]
    assert "row" in exactness(integers(rotation, [0.1, 0.2])).reason
    reset = [[[1, 1], [0, 0]]]
    assert "column" in exactness(integers(reset, [0.5, 0.25])).reason
    assert exactness(integers(reset, [0.1, 0.2e-7])) is None  # the sum of the two needs more bits
    third = [[[0, -1], [1, -1]]]  # order three, not a permutation
    exact = exactness(integers(third, [1, 2]))
    assert "finitely many" in exact.reason
    assert exact.largest == 1
    assert exactness(integers([[[1, 1], [0, 1]]], [1, 0])) is None  # grows for ever
    assert exactness(integers([[[0.5, 0], [0, 1]]], [1, 1])) is None
    assert exactness(integers([turn(0.3)], [1, 0])) is None
    assert exactness(integers(rotation, [1e-40, 1])) is None  # may be flushed to zero


def test_a_permutation_head_is_exact_whatever_its_start():
    head = RationalHead(PermutationTransitions(permutations=[[1, 2, 0], [1, 0, 2]]))
    assert exactness(subject_of(head)[0]) is not None
    assert exactness(subject_of(RationalHead(DenseTransitions(state_dim=3, vocab_size=2)))[0]) is None


# The residual stream


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_stream_stays_in_its_balls(dtype):
    torch.manual_seed(1)
    config = BackboneConfig(vocab_size=3, output_size=4, width=16, layers=2, attention=NoAttention())
    head = RationalHead(PermutationTransitions(permutations=[[1, 2, 3, 0], [1, 0, 2, 3], [0, 1, 2, 3]]))
    model = RationalTransductor(head, config).to(dtype).eval()
    with torch.no_grad():
        head.raw_initial_state.copy_(torch.tensor([1.0, 0, 0, 0]))
    subject, about = subject_of(model)
    assert about == "model"
    words = torch.randint(0, 3, (7, 33))
    with torch.no_grad():
        states, logits = head(words), model(words)
        alone = torch.cat([model(word[None]) for word in words])
    balls = stream_logits(subject, words.flatten().numpy(), states.flatten(0, 1).double().numpy())
    for computed in (logits, alone):
        assert (np.abs(computed.flatten(0, 1).double().numpy() - balls.centre) <= balls.radius).all()
    assert balls.radius.max() < (5e-3 if dtype == torch.float32 else 1e-10)


def test_products_in_order_are_products():
    rng = np.random.default_rng(5)
    left, right = rng.normal(size=(2, 3, 4)), rng.normal(size=(4, 5))
    assert np.allclose(ordered_product(left, right), left @ right)
