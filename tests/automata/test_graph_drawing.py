"""Graphs on a circle: few crossings, arrows that miss nodes, labels that cover neither nodes nor each other."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from transductor.automata.drawing import _STYLE
from transductor.automata.graph_drawing import angles_on_circle, direction, order_on_circle


def crossings(place, pairs):
    chords = [sorted((place[a], place[b])) for a, b in pairs if a != b]
    return sum(a < c < b < d or c < a < d < b for (a, b), (c, d) in combinations(chords, 2))


def test_the_order_has_few_crossings_and_begins_with_the_first():
    ring = [3, 0, 4, 1, 5, 2]  # a cycle whose nodes are numbered in another order
    pairs = [(ring[k], ring[(k + 1) % 6]) for k in range(6)]
    place = order_on_circle(6, pairs, first=2)
    assert place[2] == 0
    assert sorted(place) == list(range(6))
    assert crossings(range(6), pairs) > 0
    assert crossings(place, pairs) == 0
    assert order_on_circle(3, [], first=1) == [2, 0, 1]
    assert order_on_circle(1, [(0, 0)]) == [0]
    assert sorted(order_on_circle(40, [(k, (7 * k) % 40) for k in range(40)])) == list(range(40))


@pytest.mark.parametrize("count", [2, 3, 5, 8, 12])
def test_labels_and_nodes_do_not_overlap(count):
    generator = np.random.default_rng(count)
    pairs = {(state, int(generator.integers(count))): "a, b" for state in range(count) for _ in range(2)}
    order = order_on_circle(count, pairs)
    circle = 0.75 + 0.3 * count
    around = angles_on_circle(count, np.pi)
    angles = [around[place] for place in order]
    places = [circle * direction(angle) for angle in angles]
    figure = Figure(figsize=(2 * circle + 3,) * 2)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(-circle - 1.5, circle + 1.5)
    axes.set_ylim(-circle - 1.5, circle + 1.5)
    _STYLE.draw_edges(axes, places, [angle - 0.7 for angle in angles], pairs)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    boxes = [text.get_window_extent(canvas.get_renderer()) for text in axes.texts]
    assert len(boxes) == len(pairs)
    inverse = axes.transData.inverted()
    for one, other in combinations(boxes, 2):
        assert not one.overlaps(other)
    for box in boxes:
        low, high = inverse.transform(box.min), inverse.transform(box.max)
        for place in places:
            nearest = np.clip(place, low, high)
            assert np.linalg.norm(nearest - place) > _STYLE.radius - 0.03
    for patch in axes.patches:
        curve = patch.get_path().interpolated(10).vertices
        ends = inverse.transform(patch.get_transform().transform(curve[[0, -1]]))
        assert np.isfinite(ends).all()
