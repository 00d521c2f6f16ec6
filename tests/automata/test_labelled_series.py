"""Labels as values and back."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from transductor.automata import (
    DFA,
    IGNORED,
    MooreMachine,
    WeightedAutomaton,
    labels_of_series,
    machine,
    regex,
    series_of_labels,
)
from transductor.automata.formats import read, write
from transductor.tasks import task_named


@pytest.mark.parametrize("name", ["parity", "counting:5", "flip_flop", "addition:2", "group:S3"])
def test_a_machine_comes_back_from_its_series(name, tmp_path):
    truth = task_named(name).automaton()
    series = read(write(series_of_labels(truth), tmp_path / "machine.json"))
    back = labels_of_series(series)
    assert isinstance(back, MooreMachine)
    assert np.array_equal(back.transitions, truth.transitions)
    assert np.array_equal(back.outputs, truth.outputs)
    assert back.start == truth.start
    tokens = torch.randint(0, truth.letters, (1, 20))
    assert series(tokens[0].tolist()) == int(truth.labels(tokens)[0, -1])


def test_letters_are_named_and_languages_are_languages():
    series = series_of_labels(task_named("parity").automaton(), "ab")
    assert series("bab") == 0
    assert series("bb" + "b") == 1
    language = labels_of_series(machine("parity").automaton.over("boolean"))
    assert isinstance(language, DFA)
    assert language("101") is False
    from transductor.automata import from_dfa

    assert labels_of_series(from_dfa(regex("(ab)*"))).states == 3


def test_a_step_that_is_missing_is_the_value_zero():
    partial = WeightedAutomaton([0, 1], {"a": [[0, 1], [1, 0]], "b": [[0, 0], [0, 0]]}, [3, IGNORED])
    labelled = labels_of_series(partial)
    assert labelled.transitions.tolist() == [[1, 2], [0, 2], [2, 2]]
    assert labelled.outputs.tolist() == [3, IGNORED, 0]
    assert labelled.start == 1


@pytest.mark.parametrize("name", ["base_value:2", "rotation:6", "balance", "a_n_b_n"])
def test_other_series_have_no_labels(name):
    assert labels_of_series(machine(name).automaton) is None


def test_costs_and_fractions_have_no_labels():
    for weights, final in (("min_plus", [0.0]), ("rational", ["1/2"]), ("rational", [-1])):
        assert labels_of_series(WeightedAutomaton([1], {"a": [[1]]}, final, weights=weights)) is None
    assert labels_of_series(WeightedAutomaton([1, 1], {"a": [[1, 0], [0, 1]]}, [1, 0])) is None
    assert labels_of_series(WeightedAutomaton([], {"a": np.zeros((0, 0))}, [])) is None
