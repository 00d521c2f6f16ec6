"""A model whose time axis lies on several ranks is the model on the whole axis: logits and gradients."""

from __future__ import annotations

import pytest

from tests.model.distributed_models import CASES, MODELS
from tests.ranks import answers, once

# float64, two layers, 24 tokens: sums in another order; relative to the largest entry.
EXACT = 1e-10


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    def ask(folder):
        return answers("tests.model.distributed_models", folder)

    return {int(ranks): each for ranks, each in once(tmp_path_factory, "model_ranks", ask).items()}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    ("ranks", "split", "layout"),
    [(ranks, split, layout) for ranks in CASES for split in CASES[ranks] for layout in CASES[ranks][split]],
)
def test_it_is_the_model_on_the_whole_axis(found, ranks, split, name, layout):
    errors = found[ranks][f"{split}-{name}-{layout}"]
    assert errors["logits"] < EXACT
    assert errors["gradients"] < EXACT
