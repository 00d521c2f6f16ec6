"""What is drawn: biases, layouts, and the input kinds."""

from __future__ import annotations

import pytest
import torch

from tests.tasks.cases import generator
from transductor.tasks import (
    IGNORED,
    AssociativeRecall,
    BaseValue,
    BooleanFormula,
    Copying,
    CycleNavigation,
    FlipFlop,
    LongAddition,
    ModularArithmetic,
    TextAddition,
    Tomita,
    task_named,
)


@pytest.mark.parametrize("name", ["parity", "counting", "even_pairs", "value"])
def test_the_bias_is_the_share_of_ones(name):
    for bias in (0.0, 0.2, 0.7, 1.0):
        ones = task_named(name).sample(200, 100, generator(), bias=bias).double().mean().item()
        assert ones == pytest.approx(bias, abs=0.015)


def test_a_biased_walk_moves_as_often_as_asked_and_has_no_direction():
    moves = CycleNavigation().sample(200, 100, generator(), bias=0.4) - 1
    assert moves.abs().double().mean().item() == pytest.approx(0.4, abs=0.015)
    assert moves.double().mean().item() == pytest.approx(0, abs=0.015)


@pytest.mark.parametrize("base", [2, 3, 10])
def test_a_biased_addition_passes_carries_on_as_often_as_asked_and_misses_no_pair(base):
    pairs = LongAddition(base).sample(200, 200, generator(), bias=0.6)
    passing = pairs // base + pairs % base == base - 1
    assert passing.double().mean().item() == pytest.approx(0.6, abs=0.015)
    counts = pairs.flatten().bincount(minlength=base**2).double()
    expected = torch.tensor(
        [0.6 / base if a + b == base - 1 else 0.4 / (base**2 - base) for a in range(base) for b in range(base)]
    )
    torch.testing.assert_close(counts / counts.sum(), expected.double(), rtol=0, atol=0.01)


def test_digits_other_than_zero_are_equally_likely():
    digits = BaseValue(5).sample(200, 200, generator(), bias=0.8).flatten().bincount().double()
    torch.testing.assert_close(digits / digits.sum(), torch.tensor([0.2] * 5).double(), rtol=0, atol=0.01)


def test_sparse_and_dense_flip_flops_differ_in_what_is_ignored():
    for probability in (0.1, 0.8, 0.98):
        tokens = FlipFlop(probability).sample(200, 200, generator())
        ignored = ((tokens == 2) | (tokens == 3)).double().mean().item()
        assert ignored == pytest.approx(probability, abs=0.02)
        assert bool((tokens[:, 0] < 2).all())
        assert bool((tokens[:, -1] == 4).all())


@pytest.mark.parametrize("number", range(1, 8))
def test_long_words_are_inside_and_outside_of_every_tomita_language(number):
    task = Tomita(number)
    last_letters = task.truth(task.sample(2000, 200, generator()))[:, -4:]
    assert 0.1 < last_letters.double().mean().item() < 0.9


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
@pytest.mark.parametrize("length", [1, 2, 3, 10, 65])
def test_a_sampled_formula_is_one_formula_of_the_depth_allowed(depth, length):
    tokens = BooleanFormula(depth).sample(200, length, generator())
    levels = (((tokens >= 2) & (tokens < 5)).long() - (tokens == 5).long()).cumsum(1)
    assert bool((levels[:, -1] == 0).all())
    assert bool((levels[:, :-1] >= 1).all())
    assert int(levels.max()) <= depth
    if length == 65:
        assert int(levels.max()) == depth
        assert set(tokens.unique().tolist()) == set(range(6))


def test_expressions_take_turns():
    tokens = ModularArithmetic(7).sample(50, 31, generator())
    assert bool((tokens[:, ::2] < 7).all())
    assert bool((tokens[:, 1::2] >= 7).all())
    assert set(tokens.unique().tolist()) == set(range(10))


@pytest.mark.parametrize("reversed_digits", [False, True])
@pytest.mark.parametrize("length", [6, 7, 8, 9, 33])
def test_sampled_texts_are_right_sums(reversed_digits, length):
    task = TextAddition(reversed_digits)
    for row in task.sample(100, length, generator(length)):
        text = task.decoded(row)
        question, answer = text.rstrip("$").split("=")
        numerals = [*question.split("+"), answer]
        if reversed_digits:
            numerals = [numeral[::-1] for numeral in numerals]
        left, right, total = map(int, numerals)
        assert left + right == total
        assert [str(number) for number in (left, right, total)] == numerals
        assert len(numerals[0]) == len(numerals[1]) == (length - 3) // 3


def test_text_and_tokens_are_one_thing():
    task = TextAddition()
    tokens = task.encoded("123+456=579$")
    assert task.decoded(tokens[0]) == "123+456=579$"
    assert task.truth(tokens)[0].tolist() == [IGNORED] * 7 + [5, 7, 9, 10, IGNORED]
    assert TextAddition(reversed_digits=True).truth(task.encoded("99+1="))[0, -1] == 0
    with pytest.raises(ValueError, match="text must be made of the characters"):
        task.encoded("1 + 1")


def test_copies_and_recalls_fill_their_answers():
    copies = Copying(4).truth(Copying(4).sample(20, 11, generator()))
    assert bool((copies[:, :6] == IGNORED).all())
    assert bool((copies[:, 6:] != IGNORED).all())
    task = AssociativeRecall(3, 5)
    tokens = task.sample(50, 30, generator())
    answers = task.truth(tokens)
    assert bool((answers[:, :7] == IGNORED).all())
    assert bool((answers[:, 7:] != IGNORED).all())
    assert bool((tokens[:, :6:2].sort(1).values == torch.arange(3)).all())


@pytest.mark.parametrize("carry_in", [0, 1, "letter"])
def test_carries_run_the_whole_length(carry_in):
    task = LongAddition(10, carry_in)
    labels = {kind: task.truth(tokens)[0, 1:] for kind, tokens in task.adversarial(50).items()}
    assert bool((labels["longest chain, carry 0"] == 9).all())
    assert bool((labels["longest chain, carry 1"] == 0).all())
    half = labels["chain of ones killed once"]
    assert half.tolist() == [0] * 24 + [1] + [9] * 24
    half = labels["chain of zeros broken by a carry"]
    assert half.tolist() == [9] * 24 + [8] + [0] * 24
    assert bool((labels["a carry at every pair"][1:] == 9).all())
