"""The truth of mod-k counting, against counting by hand."""

from __future__ import annotations

import pytest
import torch

from tests.properties import given, st
from transductor.configuration import from_json, to_json
from transductor.tasks import ModularCounting


@given(bits=st.lists(st.integers(0, 1), min_size=1, max_size=60), modulus=st.integers(1, 9))
def test_the_truth_is_counting(bits, modulus):
    expected, count = [], 0
    for bit in bits:
        count = (count + bit) % modulus
        expected.append(count)
    assert ModularCounting(modulus).truth(torch.tensor([bits]))[0].tolist() == expected


def test_equal_generators_give_equal_samples():
    task = ModularCounting()
    first, second = (task.sample(4, 9, torch.Generator().manual_seed(5)) for _ in range(2))
    assert torch.equal(first, second)
    assert first.shape == (4, 9)
    assert set(first.unique().tolist()) == {0, 1}


def test_adversarial_inputs_have_the_asked_length():
    rows = {name: tokens[0].tolist() for name, tokens in ModularCounting().adversarial(5).items()}
    assert rows == {"all ones": [1] * 5, "all zeros": [0] * 5, "alternating": [0, 1, 0, 1, 0]}


def test_refusals_and_configuration():
    with pytest.raises(ValueError, match="modulus must be a positive integer"):
        ModularCounting(0)
    with pytest.raises(IndexError, match="tokens must lie in"):
        ModularCounting().truth(torch.tensor([[2]]))
    assert from_json(to_json(ModularCounting(7))) == ModularCounting(7)
    assert ModularCounting(4).chance == 0.25
