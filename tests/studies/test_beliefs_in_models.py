"""The studies of filters inside a Transformer and of products of filters: the same data, and sizes that compare."""

from __future__ import annotations

import torch

from transductor.model import RationalTransductor, build
from transductor.studies import STUDIES
from transductor.study_names import SWAP_TRACKERS, TRACKED_INSIDE, TRACKERS_INSIDE


def test_inside_a_transformer_all_are_trained_alike_and_have_one_size():
    arms = {arm.name: arm for arm in STUDIES["tracking_inside"].arms}
    for process in TRACKED_INSIDE:
        here = [arms[f"{tracker}_on_{process}"] for tracker in TRACKERS_INSIDE]
        alone = next(arm for arm in STUDIES["tracking"].arms if arm.name == f"filter_on_{process}")
        assert {arm.task for arm in here} == {alone.task}
        assert {arm.probes for arm in here} == {alone.probes}
        assert all(len(arm.rates) == 3 for arm in here)
        counts = [build(arm.model).parameter_count() for arm in here]
        assert max(counts) / min(counts) < 1.05
        models = [build(arm.model) for arm in here]
        assert [isinstance(model, RationalTransductor) for model in models] == [True] * 4 + [False]
        tokens = here[0].task.sample(2, 9, torch.Generator().manual_seed(0))
        assert all(model(tokens).shape == (2, 9, 8) for model in models)


def test_products_of_filters_are_judged_on_words_to_64_times_the_trained_length():
    arms = {arm.name: arm for arm in STUDIES["hidden_swaps"].arms}
    assert list(arms) == [f"{tracker}_on_five_things" for tracker in SWAP_TRACKERS]
    counts = {name: build(arm.model).parameter_count() for name, arm in arms.items()}
    assert abs(counts["lstm_on_five_things"] / counts["ten_of_20_on_five_things"] - 1) < 0.05
    for arm in arms.values():
        assert arm.task.output_size == 120
        assert [probe.length for probe in arm.probes] == [40, 160, 640, 2560]
