"""The verb itself: shapes, resumption, long inputs, memory, and every refusal."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from tests.comparison import assert_same
from tests.forks import run
from tests.properties import given, st
from transductor.kernels.cpu import scan as cpu
from transductor.recurrence import scan
from transductor.recurrence.cost_model import plan_chunks


def rotations(symbols=4, dim=3, dtype=torch.float64):
    return torch.linalg.qr(torch.randn(symbols, dim, dim, dtype=dtype))[0]


def test_unbatched_equals_a_batch_of_one():
    table, tokens, start = rotations(), torch.randint(0, 4, (50,)), torch.randn(3, dtype=torch.float64)
    states, final = scan(table, tokens, initial_state=start, return_final=True)
    batched, batched_final = scan(table, tokens[None], initial_state=start, return_final=True)
    assert states.shape == (50, 3)
    assert final.shape == (3,)
    assert_same(states, batched[0])
    assert_same(final, batched_final[0])
    assert_same(scan(table[tokens], initial_state=start), states)


@given(cuts=st.lists(st.integers(0, 200), max_size=6), additive=st.booleans())
def test_any_split_resumes(cuts, additive):
    table, tokens, start = rotations(), torch.randint(0, 4, (2, 200)), torch.randn(2, 3, dtype=torch.float64)
    bias = torch.randn(2, 200, 3, dtype=torch.float64) if additive else None
    whole = scan(table, tokens, initial_state=start, bias=bias)
    pieces, state = [], start
    bounds = [0, *sorted(cuts), 200]
    for begin, end in pairwise(bounds):
        part = None if bias is None else bias[:, begin:end]
        states, state = scan(table, tokens[:, begin:end], initial_state=state, bias=part, return_final=True)
        pieces.append(states)
    assert_same(torch.cat(pieces, 1), whole)


def test_packing_equals_separate_rows():
    table, start = rotations(), torch.randn(3, dtype=torch.float64)
    documents = [torch.randint(0, 4, (n,)) for n in (5, 0, 1, 130)]
    offsets = torch.tensor([0, 5, 5, 6, 136], dtype=torch.int32)
    states, final = scan(table, torch.cat(documents)[None], initial_state=start, cu_seqlens=offsets, return_final=True)
    for n, document in enumerate(documents):
        alone, last = scan(table, document, initial_state=start, return_final=True)
        assert_same(states[0, offsets[n] : offsets[n + 1]], alone)
        assert_same(final[n], last)


def test_left_padding_equals_no_padding():
    table, start = rotations(), torch.randn(3, dtype=torch.float64)
    tokens = torch.randint(0, 4, (1, 20))
    mask = torch.arange(20)[None] >= 8
    padded = scan(table, tokens, initial_state=start, mask=mask)
    assert_same(padded[:, 8:], scan(table, tokens[:, 8:], initial_state=start))


def test_autocast_does_not_touch_the_state():
    table, tokens, start = rotations(dtype=torch.float32), torch.randint(0, 4, (1, 1000)), torch.ones(3)
    expected = scan(table, tokens, initial_state=start)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(scan(table, tokens, initial_state=start), expected)


def test_only_rows_that_occur_receive_a_gradient_in_a_large_vocabulary():
    table = torch.eye(4).repeat(50_000, 1, 1).requires_grad_()
    tokens = torch.tensor([[7, 49_999, 7]])
    scan(table, tokens, initial_state=torch.ones(4)).sum().backward()
    assert torch.nonzero(table.grad.abs().sum((1, 2))).flatten().tolist() == [7, 49_999]


def test_equal_calls_are_equal_bit_for_bit():
    table, tokens = rotations(8, 16, torch.float32).requires_grad_(), torch.randint(0, 8, (4, 3000))
    outcomes = []
    for _ in range(2):
        states = scan(table, tokens, initial_state=torch.ones(16))
        outcomes.append((states.detach(), *torch.autograd.grad(states.square().sum(), table)))
    assert all(torch.equal(a, b) for a, b in zip(*outcomes, strict=True))


@pytest.mark.parametrize(("backend", "most"), [("auto", 1.6), ("chunked", 4.0)])
def test_memory_of_forward_and_backward(backend, most, tmp_path):
    """Over tokens, states and their gradient; in a process of its own, so that nothing is there to be used again."""
    if backend == "auto" and not cpu.available():
        pytest.skip("without numba auto is chunked")
    code = f"from transductor.bench.memory import scan_memory; print(scan_memory(64, 8192, 16, 8, '{backend}'))"
    least = 64 * 8192 * (8 + 2 * 4 * 16)
    assert least < int(run("-c", code, folder=tmp_path)) < most * least


@pytest.mark.parametrize("batch", [1, 64])
@pytest.mark.parametrize("time", [1, 2, 100, 32_768, 1_000_000])
def test_plans_cover_the_time_and_keep_products_small(batch, time):
    for dim in (1, 16, 64):
        for symbols in (None, 1, 8, 50_000):
            plan = plan_chunks(batch, time, dim, symbols, additive=False)
            assert 1 <= plan.chunks * plan.length <= time
            assert time - plan.chunks * plan.length < max(plan.length, 1)
            assert plan.chunks == 1 or (plan.length >= 2 * dim and plan.length % plan.gram == 0)


TABLE, TOKENS, START = torch.eye(3).repeat(4, 1, 1), torch.zeros(2, 5, dtype=torch.long), torch.ones(3)


@pytest.mark.parametrize(
    ("error", "words", "arguments"),
    [
        (IndexError, r"tokens must lie in \[0, 4\); got 4 at position \[1, 2\]", {"tokens": "high"}),
        (IndexError, r"tokens must lie in \[0, 4\); got -1", {"tokens": TOKENS - 1}),
        (TypeError, "tokens must be an integer tensor", {"tokens": TOKENS.float()}),
        (TypeError, "tokens must be a torch.Tensor; got list", {"tokens": [[0, 1]]}),
        (ValueError, r"tokens must have shape \(B, T\) or \(T\)", {"tokens": TOKENS[None]}),
        (TypeError, "transitions must have dtype float64, float32", {"transitions": TABLE.long()}),
        (TypeError, "transitions must have dtype float64, float32", {"transitions": TABLE + 0j}),
        (ValueError, r"transitions must have shape \(V, D, D\)", {"transitions": TABLE[0]}),
        (ValueError, r"transitions must have shape \(V, D, D\)", {"transitions": TABLE[:, :2]}),
        (ValueError, r"transitions must hold finite numbers; got nan at \[2, 0, 1\]", {"transitions": "nan"}),
        (ValueError, "transitions must hold finite numbers; got inf", {"transitions": TABLE / 0}),
        (ValueError, r"initial_state must have shape \(3,\) or \(2, 3\)", {"initial_state": torch.ones(4)}),
        (ValueError, "initial_state must hold finite numbers", {"initial_state": START * float("nan")}),
        (ValueError, "initial_state is required", {"initial_state": None}),
        (ValueError, r"mask must be a bool tensor of shape \(2, 5\)", {"mask": torch.ones(5, 2, dtype=torch.bool)}),
        (ValueError, r"mask must be a bool tensor of shape \(2, 5\)", {"mask": torch.ones(2, 5)}),
        (ValueError, r"lengths must lie in \[0, 5\]", {"lengths": torch.tensor([1, 6])}),
        (ValueError, "lengths must be int32 or int64", {"lengths": torch.tensor([1.0, 2.0])}),
        (ValueError, "give one of them", {"lengths": torch.tensor([1, 2]), "mask": TOKENS == 0}),
        (ValueError, "the batch must be 1", {"cu_seqlens": torch.tensor([0, 5])}),
        (ValueError, "must rise from 0 to T = 5", {"cu_seqlens": torch.tensor([0, 4]), "tokens": TOKENS[:1]}),
        (ValueError, "must rise", {"cu_seqlens": torch.tensor([0, 4, 2, 5]), "tokens": TOKENS[:1]}),
        (ValueError, r"bias must have shape \(2, 5, 3\)", {"bias": torch.ones(2, 5, 2)}),
        (ValueError, r"token_bias must have shape \(4, 3\)", {"token_bias": torch.ones(3, 4)}),
        (ValueError, "token_bias needs tokens", {"token_bias": torch.ones(4, 3), "tokens": None}),
        (ValueError, "backend must be one of 'auto', 'reference'", {"backend": "cuda"}),
        (ValueError, "semiring must be one of 'real', 'max_plus'", {"semiring": "tropical"}),
        (TypeError, "transitions must have dtype bool", {"semiring": "boolean"}),
        (ValueError, "finite numbers or -inf; got inf", {"semiring": "max_plus", "initial_state": START / 0}),
    ],
)  # fmt: skip
def test_bad_input_is_refused_by_name(error, words, arguments):
    good = {"transitions": TABLE, "tokens": TOKENS, "initial_state": START}
    if isinstance(arguments.get("tokens"), str):
        wrong = TOKENS.clone()
        wrong[1, 2] = 4
        arguments = {"tokens": wrong}
    if isinstance(arguments.get("transitions"), str):
        wrong = TABLE.clone()
        wrong[2, 0, 1] = float("nan")
        arguments = {"transitions": wrong}
    with pytest.raises(error, match=words):
        scan(**{**good, **arguments})
