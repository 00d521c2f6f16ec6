"""Traces of a prompt: Python prints what they say, and the next token has the probability that the task says."""

from __future__ import annotations

import hashlib
import io
from contextlib import redirect_stdout

import pytest
import torch

from tests.tasks.cases import generator, values_to_print
from transductor.tasks import IGNORED, ReplTraces
from transductor.training import TrainingSettings
from transductor.training.steps import draw_batch


def test_python_prints_what_a_trace_says():
    task = ReplTraces(4, hidden=0.0)
    for row in task.sample(20, 90, generator()):
        said, known, printed = [], {}, io.StringIO()
        for line in task.decoded(row).splitlines():
            if line.startswith(">>> "):
                with redirect_stdout(printed):
                    exec(line[4:], known)
            else:
                said.append(line)
        assert printed.getvalue().split() == said
        assert len(said) > 1


def test_every_form_of_a_line_is_written():
    task = ReplTraces(2)
    assert task.decoded(torch.tensor([5, 0, 3, 6, 0, 4])) == ">>> a = 1\n>>> a, ? = ?, a"
    assert task.decoded(torch.tensor([7, 1, 2, 7, 1])) == ">>> print(b)\n0\n>>> print(b)\n…"
    assert task.decoded(torch.tensor([1, 2, 3])) == "b 0 1"


@pytest.mark.parametrize("task", [ReplTraces(), ReplTraces(3, hidden=0.6), ReplTraces(4, 0.5, 0.0)])
def test_what_is_drawn_is_what_the_next_token_was_said_to_be(task):
    tokens, following = task.drawn(300, 80, generator())
    assert torch.equal(tokens[:, 1:], following[:, :-1])
    right = task.next_tokens(tokens)
    assert torch.allclose(right.sum(-1), torch.ones(300, 80, dtype=torch.float64))
    came = torch.nn.functional.one_hot(following, task.vocab_size).double()
    assert bool((right[came > 0] > 0).all())
    for low in (0.0, 0.2, 0.4, 0.6, 0.8):
        chosen = (right > low) & (right <= low + 0.2)
        if not bool(chosen.any()):
            continue
        spread = 5 * (right[chosen] * (1 - right[chosen])).sum().sqrt() / chosen.sum()
        assert abs(came[chosen].mean() - right[chosen].mean()) <= spread + 1e-12
    loss = -right[came > 0].log()
    assert float(loss.mean()) == pytest.approx(task.least_loss(tokens), abs=float(5 * loss.std() / 300))


@pytest.mark.parametrize("task", [ReplTraces(4, 0.4, 0.5), ReplTraces(2, 0.4, 0.5)])
def test_what_is_printed_has_its_exact_probability(task):
    """The forward algorithm in floats against whole numbers: every order of values is followed on its own."""
    tokens = task.sample(30, 50, generator(1))
    likely = task.next_tokens(tokens)[..., task.variables : 2 * task.variables]
    checked = 0
    for row, word in enumerate(tokens.tolist()):
        for end in range(1, len(word) + 1):
            told = values_to_print(task, word[:end])
            if told is not None:
                exact = torch.tensor(list(told.values()), dtype=torch.float64)
                assert torch.allclose(likely[row, end - 1], exact / exact.sum(), rtol=1e-12, atol=0)
                checked += 1
    assert checked > 100


def test_a_hidden_swap_makes_values_uncertain_and_a_print_brings_them_back():
    task = ReplTraces(3)
    header, hidden, (assign, swap, reveal) = [], 6, (7, 8, 9)
    for place in range(3):
        header += [assign, place, 3 + place]
    tokens = torch.tensor([[*header, reveal, 0, 3, swap, hidden, hidden, reveal, 0, 3, reveal, 1]])
    likely = task.next_tokens(tokens)[0, :, 3:6]
    assert torch.allclose(likely[-4], torch.full((3,), 1 / 3, dtype=torch.float64))  # it may have met any two
    assert likely[-1].tolist() == pytest.approx([0, 0, 1])  # a was not met, so b and c were
    wrong = torch.tensor([[*header, reveal, 0, 4, reveal, 0]])
    assert task.truth(wrong)[0].tolist() == [IGNORED] * 10 + [3] + [IGNORED] * 3
    assert not bool(task.next_tokens(wrong)[0, 11:].any())


@pytest.mark.parametrize("task", [ReplTraces(), ReplTraces(2, hidden=0.9), ReplTraces(6, hidden=0.0)])
def test_input_kinds_could_have_been_drawn_and_end_with_a_question(task):
    for length in (task.shortest, task.shortest + 1, task.shortest + 2, 60, 91):
        for kind, tokens in task.adversarial(length).items():
            assert bool((task.next_tokens(tokens).sum(-1) > 0.99).all()), kind
            assert bool((task.truth(tokens)[0, -3:] != IGNORED).any()), kind


def test_excess_is_zero_for_the_exact_answer_alone():
    task = ReplTraces(hidden=0.3)
    tokens = task.sample(20, 60, generator(2))
    right = task.next_tokens(tokens)
    assert task.excess(right.log(), tokens) == pytest.approx(0, abs=1e-12)
    assert task.excess((0.9 * right + 0.1 / task.vocab_size).log(), tokens) > 0.01
    assert task.excess(torch.zeros_like(right), tokens) > 1


def test_training_is_on_the_next_token():
    task = ReplTraces(3)
    tokens, labels = draw_batch(task, TrainingSettings(batch_size=4, length=30), 30, generator())
    assert torch.equal(tokens[:, 1:], labels[:, :-1])
    assert torch.equal(tokens, task.sample(4, 30, generator()))


def test_the_published_samples_stay_what_they_are():
    """Seed 0, 64 rows of 128 tokens: whoever draws them has these."""
    digests = []
    for task in (ReplTraces(), ReplTraces(hidden=0.0)):
        rows = task.sample(64, 128, generator(0))
        digests.append(hashlib.sha256(rows.to(torch.uint8).numpy().tobytes()).hexdigest()[:16])
    assert digests == ["9b2b5c3ed60a837c", "d85dc0bfd15591f2"]


def test_bad_tokens_are_refused_by_name():
    task = ReplTraces()
    with pytest.raises(ValueError, match="tokens must have two axes"):
        task.next_tokens(torch.tensor([0]))
    with pytest.raises(IndexError, match="tokens must lie in"):
        task.next_tokens(torch.tensor([[14]]))
    with pytest.raises(ValueError, match="length must be at least 17"):
        task.drawn(1, 16, generator())
    assert task.next_tokens(torch.empty(2, 0, dtype=torch.long)).shape == (2, 0, 14)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"variables": 1}, "variables must be an integer from 2 to 6"), ({"variables": 7}, "from 2 to 6; got 7"),
     ({"prints": 0}, "prints must be above 0 and below 1"), ({"prints": 1.0}, "prints must be above 0 and below 1"),
     ({"hidden": 1}, "hidden must be below 1"), ({"hidden": -0.1}, r"hidden must be a number in \[0, 1\]")],
)  # fmt: skip
def test_bad_parameters_are_refused_by_name(options, words):
    with pytest.raises(ValueError, match=words):
        ReplTraces(**options)
