"""Calls that come again make the same launches with other addresses; on a GPU, or in Triton's interpreter."""

from __future__ import annotations

import threading
from itertools import pairwise

import pytest
import torch

pytest.importorskip("triton")
from tests.kernels.test_triton import DEVICE, ON_GPU, on_gpu
from transductor.bench.workloads import Case, draw
from transductor.kernels.gpu import cuts, repeats, scan
from transductor.recurrence import operator
from transductor.recurrence import scan as scan_of

CASES = [
    Case(1, 9, dim=3, symbols=3),
    Case(2, 26, dim=3, symbols=3, bias=True, padded=True),
    Case(1, 26, dim=5, symbols=0, bias=True),
    Case(1, 24, dim=3, symbols=3, documents=4),
]
if ON_GPU:
    CASES += [
        Case(1, 2048),
        Case(1, 20_000, dim=32),
        Case(8, 2048, dim=64, symbols=30),
        Case(4, 777, bias=True, padded=True),
        Case(2, 500, symbols=0, dtype="bfloat16"),
        Case(2, 3000, symbols=5000),
        Case(1, 1000, dtype="float64", documents=8),
    ]


@pytest.fixture(autouse=True)
def cut_into_pieces(monkeypatch):
    """Small sizes have all levels, too, and what is known of other tests' cuts is forgotten."""
    if not ON_GPU:
        monkeypatch.setattr(cuts, "chunk_length", lambda batch, time, dim: 2)
        monkeypatch.setattr(cuts, "chunks_per_group", lambda chunks, dim: 3)
    operator.forget_repeats()
    yield
    operator.forget_repeats()


def outcome(case, seed):
    """States and gradients of one call on numbers that depend on the seed alone."""
    given = draw(case, DEVICE, seed)
    leaves = [value.requires_grad_() for value in (given.matrices, given.start, given.bias) if value is not None]
    states = scan_of(
        given.matrices, given.tokens, bias=given.bias, initial_state=given.start, mask=given.mask,
        cu_seqlens=given.cu_seqlens, backend="triton",
    )  # fmt: skip
    return states.detach(), *torch.autograd.grad(states, leaves, given.cotangent)


@pytest.fixture
def made_again(monkeypatch):
    """How often a program was run."""
    count = []
    run = repeats._Program.__call__
    monkeypatch.setattr(repeats._Program, "__call__", lambda self, given: count.append(1) or run(self, given))
    return count


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_third_call_is_the_first_to_the_bit(case, made_again):
    """The same numbers, then other numbers of the same shapes."""
    first = outcome(case, 0)
    other = outcome(case, 1)
    assert not made_again
    for seed, expected in ((0, first), (1, other), (0, first)):
        for found, right in zip(outcome(case, seed), expected, strict=True):
            assert torch.equal(found, right)
    if case.symbols < 1000 and case.dtype != "bfloat16":
        assert len(made_again) == 6


def test_results_have_memory_of_their_own(made_again):
    for _ in range(2):
        outcome(CASES[0], 0)
    kept = [outcome(CASES[0], seed) for seed in (0, 1, 2)]
    assert made_again
    for earlier, later in pairwise(kept):
        for left, right in zip(earlier, later, strict=True):
            assert left.data_ptr() != right.data_ptr()
    assert all(torch.equal(left, right) for left, right in zip(kept[0], outcome(CASES[0], 0), strict=True))


def test_other_shapes_and_kinds_are_other_calls(made_again):
    for time in (9, 11, 9, 11):
        outcome(Case(1, time, dim=3, symbols=3), 0)
    assert not made_again
    outcome(Case(1, 9, dim=3, symbols=3, dtype="float64"), 0)
    outcome(Case(1, 9, dim=3, symbols=4), 0)
    assert not made_again
    outcome(Case(1, 9, dim=3, symbols=3), 0)
    assert len(made_again) == 2


def test_one_tensor_in_two_places_is_not_taken_for_one_in_both(made_again):
    """A call with the states as their own gradient must not be repeated with another gradient as if it were they."""
    given = draw(CASES[0], DEVICE, 0)
    start = given.start.expand(1, -1).contiguous()
    states, *products = scan.forward(given.matrices, given.tokens, None, start, None, None)

    def gradients(grad, function):
        return function(
            given.matrices, given.tokens, start, None, None, states, *products, grad,
            wants_matrices=True, wants_bias=True,
        )  # fmt: skip

    repeated = repeats.Repeats(scan.backward)
    for grad in (states, states, torch.randn_like(states), torch.randn_like(states)):
        found, right = gradients(grad, repeated), gradients(grad, scan.backward)
        assert all(torch.equal(*pair) for pair in zip(found, right, strict=True))


def test_what_does_more_than_launch_is_not_repeated(made_again):
    calls = []

    def function(values):
        calls.append(1)
        return (values + 1,)

    repeated = repeats.Repeats(function)
    for _ in range(4):
        assert torch.equal(repeated(torch.ones(3, device=DEVICE))[0], torch.full((3,), 2.0, device=DEVICE))
    assert len(calls) == 4
    assert not made_again


@on_gpu  # Triton's interpreter serves one thread
def test_threads_may_repeat_the_same_call():
    """Each fills in addresses of its own."""
    case = CASES[0]
    for _ in range(2):
        outcome(case, 0)
    expected, found = [outcome(case, seed) for seed in range(4)], {}

    def work(seed):
        for _ in range(20):
            found[seed] = outcome(case, seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed, right in enumerate(expected):
        assert all(torch.equal(*pair) for pair in zip(found[seed], right, strict=True))
