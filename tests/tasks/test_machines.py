"""Moore machines, groups by name, and the weighted automaton of a numeral's value."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.tasks.cases import all_words, generator
from transductor.automata.decomposition.permutation_groups import PermutationGroup, composed
from transductor.tasks import (
    IGNORED,
    BaseValue,
    BooleanFormula,
    FlipFlop,
    GroupWordProblem,
    LongAddition,
    ModularArithmetic,
    ModularArithmeticLeftToRight,
    ModularCounting,
    MooreMachine,
    Parity,
    Tomita,
    task_named,
)
from transductor.tasks.groups import named_group


def test_a_machine_is_explored_from_its_start():
    machine = MooreMachine.explored("even", 2, lambda s, bit: ("odd" if s == "even" else "even") if bit else s, len)
    assert machine.states == 2
    assert machine.labels(torch.tensor([[1, 0, 1]])).tolist() == [[3, 3, 4]]
    assert machine.labels(torch.empty(2, 0, dtype=torch.long)).shape == (2, 0)


def test_a_machine_cannot_be_changed_and_refuses_nonsense():
    machine = Parity().automaton()
    with pytest.raises(ValueError, match="read-only"):
        machine.transitions[0, 0] = 1
    with pytest.raises(ValueError, match="transitions must be"):
        MooreMachine(np.zeros((2, 2)), np.zeros(3))
    with pytest.raises(ValueError, match="transitions must lead to the states 0 to 1"):
        MooreMachine(np.array([[0, 2], [0, 0]]), np.zeros(2))
    with pytest.raises(ValueError, match="start must be one of the states"):
        MooreMachine(np.zeros((2, 2)), np.zeros(2), 2)


def test_words_of_one_label_are_a_language():
    counting = ModularCounting(3)
    language = counting.automaton().recognising(2)
    for word in all_words(2, 6).tolist():
        assert language(tuple(word)) == (sum(word) % 3 == 2)
    assert FlipFlop().automaton().recognising(IGNORED)((4, 1))


@pytest.mark.parametrize(
    ("task", "states"),
    [
        (ModularCounting(7), 7),
        (ModularArithmetic(5), 51),
        (ModularArithmeticLeftToRight(5), 21),
        (LongAddition(2), 5),
        (Tomita(3), 5),
        (GroupWordProblem("A5", 2), 60),
        (BooleanFormula(1), 10),
    ],
)
def test_machines_have_the_states_one_would_count(task, states):
    assert task.automaton().states == states


@pytest.mark.parametrize(
    ("name", "order", "degree"),
    [
        *[("Z2", 2, 2), ("Z7", 7, 7), ("S2", 2, 2), ("S5", 120, 5), ("S6", 720, 6), ("A3", 3, 3), ("A4", 12, 4)],
        *[("A6", 360, 6), ("D3", 6, 3), ("D4", 8, 4), ("Z2xS3", 12, 5), ("Z2xZ2xA4", 48, 8)],
    ],
)
def test_named_groups_have_their_elements(name, order, degree):
    group = named_group(name)
    assert len(set(group.elements)) == len(group.elements) == order
    assert group.elements[0] == tuple(range(degree))
    assert PermutationGroup(degree, group.generators).order == order


def test_letters_are_published_and_seeded():
    first, again, other = (GroupWordProblem("S5", 3, seed) for seed in (0, 0, 1))
    assert first.letters == again.letters != other.letters
    assert PermutationGroup(5, first.letters).order == 120
    assert len(GroupWordProblem("S5", "swaps").letters) == 10
    assert GroupWordProblem("S3").letters == GroupWordProblem("S3").elements
    a, b = GroupWordProblem("S3", "named").letters
    product = GroupWordProblem("S3", "named").truth(torch.tensor([[0, 1]]))[0, 1]
    assert named_group("S3").elements[product] == composed(a, b)


@pytest.mark.parametrize("group", ["", "S7", "Z1", "A2", "D2", "Q8", "Z2x", "Z 5", "S5xS5", "Z05", 5])
def test_unknown_groups_are_refused(group):
    with pytest.raises(ValueError, match="group must"):
        GroupWordProblem(group)


@pytest.mark.parametrize(
    ("group", "generators", "message"),
    [
        ("S5", "some", "generators must be 'all'"),
        ("S5", 0, "generators must be a positive integer"),
        ("S5", 1, "generators must generate all of S5"),
        ("S3", 6, "generators must be at most 5 elements"),
        ("A5", "swaps", "generators must not be 'swaps'"),
    ],
)
def test_letters_that_make_no_sense_are_refused(group, generators, message):
    with pytest.raises(ValueError, match=message):
        GroupWordProblem(group, generators)


@pytest.mark.parametrize("task", [BaseValue(2), BaseValue(3, False), BaseValue(10), BaseValue(10, False)])
def test_values_are_the_same_in_three_ways(task):
    tokens = task.sample(5, 40, generator())
    exact, series = task.integers(tokens), task.series()
    powers = [task.base ** (n + 1) for n in range(40)]
    assert np.allclose((exact / np.array(powers, dtype=object)).astype(float), task.truth(tokens).numpy(), 1e-14)
    assert [int(series(tuple(row))) for row in tokens.tolist()] == exact[:, -1].tolist()
    text = ["".join(map(str, row if task.most_significant_first else row[::-1])) for row in tokens.tolist()]
    assert [int(each, task.base) for each in text] == exact[:, -1].tolist()


def test_names_take_parameters():
    assert task_named("counting:7") == ModularCounting(7)
    assert task_named("addition_carry_letter:2") == LongAddition(2, "letter")
    assert task_named("group:A5") == GroupWordProblem("A5")
    assert task_named("group:S5:2:7") == GroupWordProblem("S5", 2, 7)
    assert task_named("group:S4:swaps") == GroupWordProblem("S4", "swaps")


@pytest.mark.parametrize("name", ["", "unknown", "parity:3", "counting:x", "counting:3:4", "group:S5:2:x", "tomita:-1"])
def test_unknown_names_are_refused(name):
    with pytest.raises(ValueError, match="name must"):
        task_named(name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("counting:0", "modulus must be a positive integer"),
        ("cycle:0", "places must be a positive integer"),
        ("arithmetic:1", "modulus must be an integer of at least two"),
        ("addition:1", "base must be an integer of at least two"),
        ("value:1", "base must be an integer of at least two"),
        ("tomita:8", "number must be one of 1, 2"),
        ("boolean:0", "depth must be a positive integer"),
        ("boolean:9", "depth must be at most 4"),
        ("copying:0", "alphabet_size must be a positive integer"),
    ],
)
def test_parameters_out_of_range_are_refused(name, message):
    with pytest.raises(ValueError, match=message):
        task_named(name)


def test_other_parameters_are_refused_by_name():
    with pytest.raises(ValueError, match="carry_in must be one of 0, 1, 'letter'"):
        LongAddition(10, 2)
    with pytest.raises(ValueError, match=r"ignore_probability must be a number in \[0, 1\]"):
        FlipFlop(1.5)
    with pytest.raises(ValueError, match="seed must be an integer"):
        GroupWordProblem("S3", 2, 0.5)
