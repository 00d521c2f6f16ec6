from __future__ import annotations

import math
from typing import Any

import pytest

from tests.learning.data_files import parity_rows, source
from transductor.learning.divided_data import divided
from transductor.learning.selection import Measured, bands, choose, interval, majority, mean, ranked


def outcome(name: str, *rights: int, peer: bool = False, parameters: int = 100, failed: str | None = None) -> Any:
    shares = [Measured(100, right=right).plain() for right in rights]
    return {"name": name, "peer": peer, "parameters": parameters, "failed": failed, "bands": shares}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return divided(source(tmp_path_factory.mktemp("data"), parity_rows(200)))


@pytest.mark.parametrize(
    ("right", "count", "low", "high"),
    # The third is the example of Newcombe (1998), who prints .2553 and .3662.
    [(0, 10, 0.0, 0.27753), (10, 10, 0.72247, 1.0), (81, 263, 0.25530, 0.36621), (0, 0, 0.0, 1.0)],
)
def test_intervals_are_wilsons(right, count, low, high):
    assert interval(right / max(1, count), count) == pytest.approx((low, high), abs=2e-5)


def test_labels_of_one_sequence_count_as_one_for_the_interval():
    wide, narrow = Measured(400, right=400, sequences=10).plain(), Measured(400, right=400).plain()
    assert wide["low"] == pytest.approx(0.72247, abs=2e-5)
    assert narrow["low"] > 0.98


def test_longer_sequences_decide_then_the_trained_lengths_then_the_size(data):
    one, other = outcome("one", 100, 90), outcome("other", 95, 91)
    assert choose([one, other], data).name == "other"
    assert choose([outcome("one", 96, 91), other], data).name == "one"
    small = outcome("small", 95, 91, parameters=10)
    choice = choose([other, small], data)
    assert choice.name == "small"
    assert "equally good" in choice.sentence
    assert ranked([one, other, small], data) == ["small", "other", "one"]


def test_a_better_peer_is_named_and_not_chosen(data):
    choice = choose([outcome("ours", 90, 80), outcome("lstm", 90, 99, peer=True)], data)
    assert choice.name == "ours"
    assert "The lstm, trained for comparison, is better" in choice.sentence
    assert "better" not in choose([outcome("ours", 90, 80), outcome("lstm", 99, 79, peer=True)], data).sentence


def test_nothing_is_chosen_where_nothing_finished(data):
    assert choose([], data).name is None
    assert choose([outcome("ours", failed="the loss is nan"), outcome("lstm", 99, 99, peer=True)], data).name is None


def test_bands_reach_as_far_as_the_data(tmp_path):
    rows = parity_rows(200, longest=6) + [{"tokens": ["a"] * n, "label": "odd"} for n in (7, 8, 25, 47)]
    data = divided(source(tmp_path, rows))
    trained = data.training.longest
    reached = bands(data)
    assert reached[0].name == "1×"
    lengths = [length for band in reached[1:] for length in _lengths(band)]
    assert sorted(lengths) == sorted(data.longer.examples.lengths)
    for band in reached[1:]:
        multiple = int(band.name.removeprefix("to ").removesuffix("×"))
        assert all(trained * multiple / 2 < length <= trained * multiple for length in _lengths(band))


def _lengths(band):
    return [len(row) - 1 for row in band.part.of_lengths(band.above, band.up_to).tokens]


def test_the_majority_is_counted_on_every_band(data):
    label, results = majority(data)
    for band, result in zip(bands(data), results, strict=True):
        labels = [int(row[-1]) for row in band.part.of_lengths(band.above, band.up_to).labels]
        assert (result.count, result.right) == (len(labels), labels.count(label))


def test_the_mean_is_the_baseline_of_numbers(tmp_path):
    rows = [{"tokens": ["a"] * n, "label": float(n)} for n in range(1, 31)]
    data = divided(source(tmp_path, rows, goal="regression"))
    middle, results = mean(data)
    trained = [len(word) for word in data.training.words.words]
    assert middle == pytest.approx(sum(trained) / len(trained))
    longer = [len(word) for word in data.longer.words.words]
    expected = math.sqrt(sum((length - middle) ** 2 for length in longer) / len(longer))
    assert results[-1].error == pytest.approx(expected)
