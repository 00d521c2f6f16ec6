"""Sets of vectors: every operation keeps what it must keep, with the same symbols before and after."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from transductor.certification.bounds.attention_hull import Hull
from transductor.certification.bounds.stream_sets import Arithmetic, Rows, gelu, linear, normed

EXACTLY = Arithmetic.of("float64")
WIDTH, PAIRS = 6, 4


def random_rows(rng, spread):
    """Sets with two hulls and free symbols, and a function that draws members with their symbols."""
    hulls = []
    for dim in (2, 3):
        low = rng.normal(size=(7, dim))
        hulls.append(Hull.around(low, low + rng.uniform(0, 0.5, low.shape), relative=0.0, absolute=0.0))
    columns = spread * rng.normal(size=(PAIRS, WIDTH, 2 + 3 + 4))
    symbols = ((hulls[0], 2), (hulls[1], 3), (None, 4))
    rows = Rows(rng.normal(size=(PAIRS, WIDTH)), columns, np.zeros((PAIRS, WIDTH)), symbols)

    def draw():
        parts = []
        for hull in hulls:
            weights = rng.dirichlet(np.full(7, 0.2))
            parts.append(weights @ (hull.points + hull.radii * rng.choice([-1, 1], hull.points.shape)))
        return np.concatenate((*parts, rng.choice([-1.0, 1.0], 4)))

    return rows, draw


def at(rows, symbols):
    """The vectors at given symbols; those that came later are zero, and stand in the radius instead."""
    return rows.centre + rows.columns[..., : len(symbols)] @ symbols


def slack(rows, count):
    return rows.radius + np.abs(rows.columns[..., count:]).sum(-1)


@pytest.mark.parametrize("spread", [1e-6, 1e-3, 0.03, 0.2, 0.5, 2.0])
def test_layer_norm_is_a_linear_map_and_a_remainder(spread):
    rng = np.random.default_rng(0)
    for _ in range(20):
        rows, draw = random_rows(rng, spread)
        weight, bias, eps = rng.normal(size=WIDTH), rng.normal(size=WIDTH), 10.0 ** rng.uniform(-6, 0)
        with np.errstate(all="ignore"):
            after = normed(rows, weight, bias, eps, EXACTLY)
        for _ in range(40):
            symbols = draw()
            true = F.layer_norm(
                torch.tensor(at(rows, symbols)), (WIDTH,), torch.tensor(weight), torch.tensor(bias), eps
            ).numpy()
            assert (np.abs(true - at(after, symbols)) <= after.radius).all()
    if spread <= 1e-3:
        assert after.radius.max() < 100 * spread**2 / eps**0.5 + 1e-9  # the remainder is of second order


def test_a_layer_norm_wants_its_radius_among_the_symbols():
    rows = Rows.exactly(np.ones((1, 4)), np.ones((1, 4)))
    with pytest.raises(ValueError, match="absorbed"):
        normed(rows, np.ones(4), np.zeros(4), 1e-5, EXACTLY)


@pytest.mark.parametrize("spread", [0.0, 1e-6, 1e-3, 0.1, 1.0, 10.0])
def test_gelu_is_a_chord_and_a_remainder(spread):
    rng = np.random.default_rng(1)
    for _ in range(20):
        rows, draw = random_rows(rng, spread)
        after = gelu(rows, EXACTLY)
        for _ in range(40):
            symbols = draw()
            true = F.gelu(torch.tensor(at(rows, symbols))).numpy()
            assert (np.abs(true - at(after, symbols)) <= after.radius).all()
        assert after.radius.max() <= 2 * spread**2 * 50 + 1e-9 or spread >= 1


def test_maps_sums_and_reductions_keep_their_members():
    rng = np.random.default_rng(2)
    rows, draw = random_rows(rng, 0.5)
    rows = rows.widened(np.full((PAIRS, WIDTH), 0.1))
    weight, bias = rng.normal(size=(5, WIDTH)), rng.normal(size=5)
    shared = rows.absorbed()
    mapped, reduced = linear(rows, weight, bias, EXACTLY), shared.reduced(3)
    returning = rng.normal(size=(WIDTH, 5))
    back = shared.followed_by(linear(mapped, returning, np.zeros(WIDTH), EXACTLY), EXACTLY)
    other = rows.joined(shared, EXACTLY)
    assert sum(count for hull, count in reduced.symbols if hull is None) == 3
    assert other.columns.shape[-1] == rows.columns.shape[-1] + shared.columns.shape[-1]
    below, above = reduced.deviations()
    for _ in range(200):
        symbols = draw()
        error = 0.1 * rng.choice([-1.0, 1.0], (PAIRS, WIDTH))
        member = at(rows, symbols) + error
        assert (np.abs(member @ weight.T + bias - at(mapped, symbols)) <= slack(mapped, 9)).all()
        assert (member - reduced.centre <= above).all()
        assert (reduced.centre - member <= below).all()
        assert (np.abs(member - rows.centre) <= rows.reach()).all()
        # With the same symbols: the sum is known much better than its two parts.
        both = member + (member @ weight.T + bias) @ returning.T
        near = back.centre + back.columns[..., :9] @ symbols
        near = near + (back.columns[..., 9:15] @ (error[..., None] / 0.1))[..., 0]
        assert (np.abs(both - near) <= slack(back, 15)).all()
        assert slack(back, 15).max() < 1e-10


def test_the_range_over_a_hull_is_that_of_its_corners():
    rng = np.random.default_rng(3)
    low = rng.normal(size=(9, 3))
    high = low + rng.uniform(0, 1, low.shape)
    hull = Hull.around(low, high, relative=0.0, absolute=0.0)
    directions = rng.normal(size=(2, 4, 3))
    least, most = hull.range_of(directions)
    corners = np.stack([np.where(np.array(list(np.ndindex(2, 2, 2)))[i], high, low) for i in range(8)]).reshape(-1, 3)
    true = directions @ (corners - hull.offset).T
    np.testing.assert_allclose(most, true.max(-1), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(least, true.min(-1), rtol=1e-12, atol=1e-12)
    assert (most >= true.max(-1)).all()
    assert (least <= true.min(-1)).all()
    wider = Hull.around(low, high, relative=0.1, absolute=0.01).range_of(directions)
    assert (wider[1] > most).all()
