from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.learning.data_files import parity_rows, source
from transductor.automata import IGNORED, MachineFromLabels, MooreMachine, TokenAlphabet
from transductor.learning.divided_data import LabelledWords, divided
from transductor.learning.machines import (
    agreement_on,
    at_least,
    compiled,
    contradicted,
    contradicting,
    description,
    from_labels,
    from_model,
    learned,
    machine_labels,
    walked,
)
from transductor.learning.prediction import labels_of
from transductor.model import LSTM

PARITY = MooreMachine(np.array([[1, 0], [0, 1]]), np.array([0, 1]))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return divided(source(tmp_path_factory.mktemp("data"), parity_rows(200)))


def letters_of(data):
    """Parity over the letters of the data, whatever came first in the file."""
    return PARITY if data.source.vocabulary.letters[0] == "a" else MooreMachine(PARITY.transitions[:, ::-1], [0, 1])


def answer(machine, *, supported=True):
    return MachineFromLabels(
        machine, errors=0, labels=180, noise=0.0, bits=9.0, bits_alone=180.0, supported=supported, reasons=("said so",)
    )


def test_a_machine_labels_words_and_letters():
    words = [(), (0,), (0, 1, 0)]
    assert machine_labels(PARITY, words, tags=False) == [0, 1, 0]
    assert machine_labels(PARITY, words, tags=True) == [(), (1,), (1, 1, 0)]
    tagged = LabelledWords(((0,), (0, 1, 0)), ((1,), (1, IGNORED, 1)))
    result = agreement_on(PARITY, tagged)
    assert (result.count, result.right) == (3, 2)


def test_contradicted_labels_are_listed_shortest_first():
    labelled = LabelledWords(((0, 0, 1), (0,), (1,), (0,)), (1, 0, 0, 0))
    assert contradicted(PARITY, labelled) == [((0,), 0, 1), ((0, 0, 1), 1, 0)]
    tagged = LabelledWords(((0, 1, 0), (1,)), ((1, 0, IGNORED), (0,)))
    assert contradicted(PARITY, tagged) == [((0, 1), 0, 1)]


@pytest.mark.parametrize(("errors", "count", "rate"), [(0, 5, 0.1), (1, 5, 0.1), (3, 20, 0.02), (20, 20, 0.5)])
def test_the_probability_of_errors_is_the_binomial_one(errors, count, rate):
    exact = sum(math.comb(count, k) * rate**k * (1 - rate) ** (count - k) for k in range(errors, count + 1))
    assert at_least(errors, count, rate) == pytest.approx(exact)


def test_the_right_machine_is_believed(data):
    candidate = from_labels(answer(letters_of(data)), data)
    assert candidate.believed
    assert candidate.kept_back.share == candidate.shorter.share == 1
    assert candidate.reasons == ("said so",)


def test_what_its_way_refuses_is_refused(data):
    candidate = from_labels(answer(letters_of(data), supported=False), data)
    assert candidate.refusals == ("said so",)


def test_a_machine_that_is_wrong_on_longer_sequences_is_refused(data):
    # Right up to the longest trained length, then always even.
    steps, right = data.training.longest + 1, letters_of(data)
    last = 2 * steps
    table = np.full((last + 1, 2), last)
    for depth in range(steps - 1):
        for state in (0, 1):
            for letter in (0, 1):
                table[2 * depth + state, letter] = 2 * (depth + 1) + right.transitions[state, letter]
    outputs = np.array([*[0, 1] * steps, 0])
    candidate = from_labels(answer(MooreMachine(table, outputs)), data)
    assert candidate.shorter.share == 1
    assert "does not hold for longer sequences" in candidate.refusals[0]


def test_a_machine_that_takes_more_bits_than_the_labels_is_refused(data):
    # A prefix tree of the labels as it stands: every word has a state of its own.
    words = [word for word in data.shorter.words if len(word) <= 8]
    states = {prefix: place for place, prefix in enumerate(sorted({w[:n] for w in words for n in range(9)}, key=len))}
    table = [[states.get((*prefix, letter), 0) for letter in (0, 1)] for prefix in states]
    candidate = from_labels(answer(MooreMachine(np.array(table), np.zeros(len(table)))), data)
    assert any(f"do not support {len(states)} states" in each for each in candidate.refusals)


def test_bits_are_those_of_the_formula():
    labelled = LabelledWords(((0,), (0, 0), (1,), ()), (1, 1, 0, 0))  # one error of four; three arcs are used
    bits, alone = description(PARITY, labelled, 2)
    entropy = -(0.25 * math.log2(0.25) + 0.75 * math.log2(0.75))
    assert bits == pytest.approx(3 * 1 + 2 * 1 + 4 * entropy)
    assert alone == pytest.approx(4.0)


def test_a_compiled_model_is_the_machine_over_tokens_and_passes_over_unknown_words():
    alphabet = TokenAlphabet.of_names(("<start>", "<end>", "<unknown>", "a", "b"))
    model = compiled(PARITY, alphabet, 3)
    rows = [torch.tensor(row) for row in ([0], [0, 3], [0, 3, 4, 3, 3], [0, 3, 2, 4])]
    assert model.output_size == 3
    assert labels_of(model, rows, tags=False) == [0, 1, 1, 1]
    assert labels_of(model, rows, tags=True) == [(), (1,), (1, 1, 0, 1), (1, 1, 1)]


def test_no_machine_is_read_off_a_model_without_a_head(data):
    alphabet = TokenAlphabet.of_names(data.source.vocabulary.tokens)
    assert "lstm: no machine" in from_model("lstm", LSTM(vocab_size=5, output_size=2), data, alphabet)


def test_steps_that_words_take():
    words = LabelledWords(((), (0, 1), (0,)), (0, 1, 1))
    assert walked(PARITY, words) == {(0, 0), (1, 1)}


def test_one_state_is_refused_in_one_sentence(data):
    constant = MooreMachine(np.zeros((1, 2), dtype=int), np.array([0]))
    assert from_labels(answer(constant), data).refusals == ("it gives the same label to everything",)
    assert from_labels(answer(constant, supported=False), data).refusals == ("said so",)


def test_reasons_name_classes_as_the_user_does(data):
    refused = replace(
        answer(letters_of(data), supported=False), reasons=("Only 3 different words of class 1 are there.",)
    )
    assert from_labels(refused, data).refusals == ("Only 3 different words of class odd are there.",)


def test_what_contradicts_a_label_is_no_machine_of_a_model(data):
    right = from_labels(answer(letters_of(data)), data)
    assert contradicting(right, data, "of a model") is right
    wrong = from_labels(answer(MooreMachine(np.array([[1, 1], [1, 1]]), np.array([0, 1]))), data)
    assert "a machine of a model must give all of them" in contradicting(wrong, data, "of a model").refusals[-1]


@pytest.mark.parametrize("again", [False, True])
def test_a_word_that_every_sequence_begins_with_says_nothing(tmp_path, again):
    rows = [{**row, "tokens": ["b" if again else "begin", *row["tokens"]]} for row in parity_rows(300)]
    data = divided(source(tmp_path, rows))
    result = learned(data, seconds=20, seed=0)
    assert result.supported, result.reasons
    assert result.machine.states == 2
    assert agreement_on(result.machine, data.shorter).share == 1


def test_an_opening_word_that_does_something_else_later_has_a_state_of_its_own(tmp_path):
    """The first a opens; every further one counts."""
    rows = [{**row, "tokens": ["a", *row["tokens"]]} for row in parity_rows(300)]
    data = divided(source(tmp_path, rows))
    result = learned(data, seconds=20, seed=0)
    assert result.supported, result.reasons
    assert agreement_on(result.machine, data.shorter).share == 1
