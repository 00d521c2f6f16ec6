"""What every task promises, whatever it is about."""

from __future__ import annotations

import math

import pytest
import torch

from tests.tasks.cases import NAMES, all_words, generator
from transductor.checks import check_token_ids
from transductor.configuration import from_json, to_json
from transductor.tasks import IGNORED, Task, task_named

LENGTHS = (1, 2, 7, 64, 257)
WORDS = 50_000


@pytest.fixture(params=NAMES, scope="module")
def task(request) -> Task:
    return task_named(request.param)


@pytest.fixture(params=[name for name in NAMES if task_named(name).automaton() is not None], scope="module")
def finite_task(request) -> Task:
    return task_named(request.param)


def biases(task: Task) -> tuple[float | None, ...]:
    return (None,) if task.coin is None else (None, 0.0, 0.1, 0.9, 1.0)


def inputs(task: Task, length: int) -> dict[str, torch.Tensor]:
    length = max(length, task.shortest)
    sampled = {f"bias {bias}": task.sample(8, length, generator(length), bias=bias) for bias in biases(task)}
    noise = {"any letters": torch.randint(0, task.vocab_size, (8, length), generator=generator(1))}
    return {**sampled, **noise, **task.adversarial(length)}


@pytest.mark.parametrize("length", LENGTHS)
def test_tokens_and_labels_have_their_shapes_and_ranges(task, length):
    for kind, tokens in inputs(task, length).items():
        assert tokens.dtype == torch.int64
        assert tokens.shape[1] == max(length, task.shortest), kind
        check_token_ids(kind, tokens, task.vocab_size)
        labels = task.truth(tokens)
        assert labels.shape == tokens.shape
        if task.output_kind == "real":
            assert labels.dtype == torch.float64
            assert bool(((labels >= 0) & (labels <= 1)).all()), kind
        else:
            assert labels.dtype == torch.int64
            assert bool(((labels == IGNORED) | ((labels >= 0) & (labels < task.output_size))).all()), kind


@pytest.mark.parametrize("length", LENGTHS)
def test_every_sampled_sequence_has_a_label(task, length):
    for bias in biases(task):
        labels = task.truth(task.sample(16, max(length, task.shortest), generator(), bias=bias))
        assert bool((labels != IGNORED).any(1).all())


def test_equal_generators_give_equal_samples(task):
    for bias in biases(task):
        first, second = (task.sample(6, 20, generator(3), bias=bias) for _ in range(2))
        assert torch.equal(first, second)
    assert not torch.equal(task.sample(6, 20, generator(3)), task.sample(6, 20, generator(4)))


@pytest.mark.parametrize("length", LENGTHS)
def test_the_truth_is_the_automatons(finite_task, length):
    machine = finite_task.automaton()
    assert machine.letters == finite_task.vocab_size
    for kind, tokens in inputs(finite_task, length).items():
        assert torch.equal(finite_task.truth(tokens), machine.labels(tokens)), kind


def test_the_truth_is_the_automatons_on_all_short_words(finite_task):
    machine = finite_task.automaton()
    for length in range(1, 7):
        if finite_task.vocab_size**length <= WORDS:
            words = all_words(finite_task.vocab_size, length)
            assert torch.equal(finite_task.truth(words), machine.labels(words))


def test_later_tokens_never_change_earlier_labels(task):
    for tokens in inputs(task, 24).values():
        whole = task.truth(tokens)
        for cut in (1, 5, 12, 23):
            changed = tokens.clone()
            changed[:, cut:] = torch.randint(0, task.vocab_size, changed[:, cut:].shape, generator=generator(9))
            assert torch.equal(task.truth(changed)[:, :cut], whole[:, :cut])
            assert torch.equal(task.truth(tokens[:, :cut]), whole[:, :cut])


def test_chance_is_what_an_even_guess_gets(task):
    if task.output_kind == "real":
        last = task.truth(task.sample(20_000, 16, generator()))[:, -1]
        assert float(last.mean()) == pytest.approx(0.5, abs=0.01)
        assert float(last.var()) == pytest.approx(task.chance, rel=0.03)
        return
    length = max(16, task.shortest)
    tokens = task.sample(20_000, length, generator())
    labels = task.truth(tokens)
    labels = labels[labels != IGNORED]
    guesses = torch.randint(0, task.output_size, labels.shape, generator=generator(1))
    accuracy = (guesses == labels).double().mean().item()
    spread = math.sqrt(task.chance * (1 - task.chance) / labels.numel())
    assert abs(accuracy - task.chance) <= 5 * spread
    assert task.best_constant(tokens) >= task.chance


BALANCED = ["parity", "counting", "even_pairs", "cycle", "arithmetic", "addition", "flip_flop", "group:Z6:named"]
BALANCED += ["group:S4:swaps", "copying", "recall", "boolean"]


@pytest.mark.parametrize("name", BALANCED)
def test_no_constant_does_much_better_than_chance(name):
    task = task_named(name)
    assert task.best_constant(task.sample(1000, 101, generator())) <= 1.12 * task.chance


def test_bias_is_taken_or_refused_by_name(task):
    if task.coin is None:
        with pytest.raises(ValueError, match="bias must be None"):
            task.sample(2, max(8, task.shortest), generator(), bias=0.5)
        return
    for bias in (-0.1, 1.5, float("nan"), "half"):
        with pytest.raises(ValueError, match=r"bias must be a number in \[0, 1\]"):
            task.sample(2, 8, generator(), bias=bias)
    assert not torch.equal(task.sample(4, 30, generator(), bias=0.0), task.sample(4, 30, generator(), bias=1.0))


def test_bad_requests_are_refused_by_name(task):
    with pytest.raises(ValueError, match="batch_size must be a positive integer"):
        task.sample(0, 8, generator())
    for length in (0, -1, 2.0):
        with pytest.raises(ValueError, match="length must be"):
            task.sample(2, length, generator())
        with pytest.raises(ValueError, match="length must be"):
            task.adversarial(length)
    if task.shortest > 1:
        with pytest.raises(ValueError, match=f"length must be at least {task.shortest}"):
            task.sample(2, task.shortest - 1, generator())
    with pytest.raises(IndexError, match="tokens must lie in"):
        task.truth(torch.tensor([[task.vocab_size]]))
    with pytest.raises(ValueError, match="tokens must have two axes"):
        task.truth(torch.tensor([0]))
    with pytest.raises(TypeError, match="tokens must be an integer tensor"):
        task.truth(torch.tensor([[0.0]]))


def test_the_empty_word_has_no_labels(task):
    empty = task.truth(torch.empty(3, 0, dtype=torch.long))
    assert empty.shape == (3, 0)
    assert empty.dtype == (torch.float64 if task.output_kind == "real" else torch.int64)
    with pytest.raises(ValueError, match="at least one position with a label"):
        task.best_constant(torch.empty(3, 0, dtype=torch.long))


def test_a_task_is_a_value_that_round_trips(task):
    assert from_json(to_json(task)) == task
    assert hash(from_json(to_json(task))) == hash(task)


def test_names_differ():
    names = [task_named(name).name for name in NAMES]
    assert len(set(names)) == len(names)
