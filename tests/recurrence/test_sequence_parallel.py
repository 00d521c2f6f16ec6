"""A scan split along time across ranks is the scan of the whole: states, final states, all gradients."""

from __future__ import annotations

import pytest
import torch

from tests.ranks import answers, once
from tests.recurrence.distributed_scan import SPLITS, problems
from transductor.checks import VALUE_TOLERANCE
from transductor.recurrence.sequence_parallel import sequence_parallel_scan

# Products of up to 400 rotations in float64: some tens of roundings of 1e-16, relative to the largest entry.
EXACT = 1e-12


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    def ask(folder):
        return answers("tests.recurrence.distributed_scan", folder)

    return {int(ranks): each for ranks, each in once(tmp_path_factory, "scan_ranks", ask).items()}


@pytest.mark.parametrize("name", problems())
@pytest.mark.parametrize(("ranks", "split"), [(ranks, split) for ranks in SPLITS for split in SPLITS[ranks]])
def test_it_is_the_scan_of_the_whole(found, ranks, split, name):
    every = found[max(ranks, 2)]
    cases = [label for label in every if label.removesuffix("-final_unused") == f"{ranks}-{split}-{name}"]
    assert len(cases) == (2 if split == "uneven" else 1)
    for case in cases:
        assert {"states", "final"} <= every[case].keys()
        assert any(key.endswith(".grad") for key in every[case])
        assert all(error < EXACT for error in every[case].values()), (case, every[case])


@pytest.mark.parametrize("ranks", [2, 4])
def test_half_precision_is_carried_in_float32(found, ranks):
    assert found[ranks]["half"] < VALUE_TOLERANCE[torch.bfloat16]


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_product_out_of_range_is_refused(found, ranks):
    assert "rank 0 leaves the range of torch.float64" in found[ranks]["overflow"]


def test_without_a_process_group_it_says_how_to_start():
    with pytest.raises(ValueError, match="torchrun"):
        sequence_parallel_scan(torch.eye(2)[None], torch.zeros(1, 3, dtype=torch.long), initial_state=torch.ones(2))
