"""Finite machines from heads that are near one, and refusals of heads that are not."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from tests.extraction.near_machines import clock, dense_readout, noisy_readout, turns
from transductor.automata import IGNORED, MooreMachine
from transductor.extraction.black_box import extract_from_labels, labelled
from transductor.extraction.extracting import NoMachineNearby, extract, extract_head
from transductor.extraction.generated_groups import generated_group
from transductor.extraction.observable_distance import Contexts
from transductor.heads import RationalHead
from transductor.model import BackboneConfig, RationalReadout, RationalTransductor, Transformer
from transductor.tasks import task_named
from transductor.transitions import (
    DenseTransitions,
    OrthogonalTransitions,
    PermutationTransitions,
    SquaredCayleyTransitions,
    StochasticTransitions,
)

BACKBONE = BackboneConfig(vocab_size=2, output_size=5, width=16, layers=2, attention_heads=2)


def is_the_machine_of(machine: MooreMachine, name: str) -> bool:
    truth = task_named(name).automaton().minimised()
    return machine.states == truth.states and machine.separating_word(truth) is None


@pytest.mark.parametrize("error", [0.0, 1e-3, 1e-2])
def test_a_clock_that_goes_wrong_is_still_a_clock(error):
    extraction = extract(clock(5, error))
    assert is_the_machine_of(extraction.machine, "counting:5")
    assert extraction.spread <= 5 * error + 1e-12
    assert extraction.separation == pytest.approx(2 * np.sin(np.pi / 5), rel=0.05)
    assert extraction.labelled
    assert extraction.agreement == 1.0
    assert extraction.representatives.shape == (5, 2)
    torch.testing.assert_close(extraction.representatives[0], torch.tensor([1.0, 0.0], dtype=torch.float64))


@pytest.mark.parametrize(
    "name",
    [
        *["parity", "counting:5", "cycle", "even_pairs", "tomita:4", "tomita:7", "addition:2", "addition"],
        *["group:Z6", "group:S3", "group:A5", "group:S5"],
    ],
)
def test_the_machine_comes_back_from_another_basis_and_noise(name):
    task = task_named(name)
    extraction = extract(noisy_readout(task.automaton(), task.output_size))
    assert is_the_machine_of(extraction.machine, name)
    assert extraction.ratio > 20
    assert extraction.sink is None


@pytest.mark.parametrize(
    "name", ["arithmetic:5", "arithmetic_left_to_right:5", "flip_flop", "flip_flop_undo", "addition_carry_letter:3"]
)
def test_only_what_the_words_show_is_asked_for(name):
    task = task_named(name)
    truth = task.automaton().minimised()
    words = task.sample(512, 41, torch.Generator().manual_seed(1))
    extraction = extract(noisy_readout(truth, task.output_size), words=words)
    assert extraction.words_seen == 512
    assert extraction.machine.separating_word(truth, skip_ignored=True) is None
    shown = extraction.machine.labels(task.sample(512, 41, torch.Generator().manual_seed(2)))
    assert (shown != IGNORED).all()
    assert extraction.machine.states <= truth.states + 1
    if extraction.sink is not None:
        assert (extraction.machine.transitions[extraction.sink] == extraction.sink).all()
        assert extraction.machine.outputs[extraction.sink] == IGNORED
        assert not extraction.representatives[extraction.sink].any()


def test_a_letter_that_no_word_has_leads_to_the_sink():
    model = noisy_readout(task_named("counting:3").automaton(), 3)
    extraction = extract(model, words=torch.ones(4, 9, dtype=torch.long))
    assert extraction.machine.labels(torch.tensor([[1, 1, 1, 1]])).tolist() == [[1, 2, 0, 1]]
    assert extraction.machine.labels(torch.tensor([[1, 0, 1]])).tolist() == [[1, IGNORED, IGNORED]]


def test_contexts_are_letters_that_share_a_follower():
    words = task_named("arithmetic:5").sample(64, 21, torch.Generator().manual_seed(0))
    contexts = Contexts.of(words, 8)
    assert len(contexts.likely) == 2
    digits, operators = contexts.after[:5].unique(), contexts.after[5:].unique()
    assert len(digits) == len(operators) == 1
    assert operators.item() == contexts.first != digits.item()
    torch.testing.assert_close(contexts.likely.sum(1), torch.ones(2, dtype=torch.float64))
    assert not contexts.likely[contexts.first, 5:].any()
    assert len(Contexts.of(torch.randint(0, 100, (64, 40)), 100).likely) == 1


def test_letters_that_cannot_be_undone_and_a_start_never_returned_to():
    # Two writes and a hold; before the first write the memory is neither 0 nor 1.
    machine = MooreMachine(np.array([[1, 2, 0], [1, 2, 1], [1, 2, 2]]), np.array([2, 0, 1]))
    extraction = extract(noisy_readout(machine, 3))
    assert extraction.machine.states == 3
    assert extraction.machine.separating_word(machine) is None
    with pytest.raises(ValueError, match="letter 0 takes states 0 and 1 to one"):
        generated_group(noisy_readout(machine, 3))


def test_parity_in_one_dimension_and_a_state_that_is_zero():
    weight, bias = torch.tensor([[1.0], [-1.0]]), torch.zeros(2)
    extraction = extract(dense_readout(torch.tensor([[[1.0]], [[-1.0]]]), torch.tensor([1.0]), weight, bias=bias))
    assert is_the_machine_of(extraction.machine, "parity")
    # a*: the letter b multiplies by zero, which only the bias can tell.
    bias = torch.tensor([0.0, 0.5])
    extraction = extract(dense_readout(torch.tensor([[[1.0]], [[0.0]]]), torch.tensor([1.0]), weight, bias=bias))
    assert extraction.machine.labels(torch.tensor([[0, 0, 1, 0]])).tolist() == [[0, 0, 1, 1]]
    assert extraction.machine.states == 2


def test_one_letter_one_state_and_long_counters():
    one = extract(dense_readout(torch.ones(1, 1, 1), torch.tensor([1.0]), torch.tensor([[1.0], [0.0]])))
    assert (one.machine.states, one.machine.letters, one.ratio) == (1, 1, float("inf"))
    last = MooreMachine((np.arange(1, 51) % 50)[:, None], (np.arange(50) == 0).astype(int))
    extraction = extract(noisy_readout(last, 2, noise=1e-6))
    assert extraction.machine.states == 50
    assert extraction.machine.separating_word(last) is None


def test_states_that_grow_are_seen_by_their_direction():
    task = task_named("group:S3")
    model = noisy_readout(task.automaton(), 6)
    with torch.no_grad():
        model.rational_head.transitions.get_parameter("source.raw").mul_(1.3)
    extraction = extract(model)
    assert extraction.up_to_scale
    assert is_the_machine_of(extraction.machine, "group:S3")
    assert not extract(noisy_readout(task.automaton(), 6)).up_to_scale


def test_a_leaking_distribution_becomes_the_certainty_it_leans_to():
    family = StochasticTransitions(vocab_size=3, state_dim=2)
    model = RationalReadout(RationalHead(family), 2)
    leak = 0.05
    write_0, write_1 = [[1 - leak, 1 - leak], [leak, leak]], [[leak, leak], [1 - leak, 1 - leak]]
    hold = [[1 - 1e-6, 1e-6], [1e-6, 1 - 1e-6]]
    with torch.no_grad():
        family.get_parameter("source.raw").copy_(torch.tensor([write_0, write_1, hold]).log().flatten(1))
        model.rational_head.raw_initial_state.copy_(torch.tensor([3.0, 0.0]))
        model.readout.weight.copy_(torch.eye(2))
        model.readout.bias.zero_()
    extraction = extract(model)
    torch.testing.assert_close(extraction.representatives, torch.eye(2, dtype=torch.float64), rtol=0, atol=0)
    assert extraction.machine.labels(torch.tensor([[1, 2, 2, 0, 2]])).tolist() == [[1, 1, 1, 0, 0]]


def test_a_bare_head_is_read_completely_or_through_a_readout():
    head = RationalHead(PermutationTransitions(permutations=[[1, 2, 0, 3, 4], [0, 1, 2, 4, 3]]))
    with torch.no_grad():
        head.raw_initial_state.copy_(torch.tensor([1.0, 0.0, 0.0, 1.0, 0.0]))
    extraction = extract(head)
    assert extraction.machine.states == 6
    assert not extraction.labelled
    np.testing.assert_array_equal(extraction.machine.outputs, np.arange(6))
    assert extract_head(head, torch.eye(5)[:3]).machine.states == 3
    assert extract_head(head, torch.eye(5)[3:]).machine.states == 2
    assert generated_group(head).name == "Z6"
    with pytest.raises(ValueError, match=r"readout must be of shape \(K, 5\)"):
        extract_head(head, torch.eye(4))


@pytest.mark.parametrize(
    ("name", "group", "order"), [("group:S3", "S3", 6), ("counting:7", "Z7", 7), ("parity", "Z2", 2)]
)
def test_the_group_of_the_matrices(name, group, order):
    task = task_named(name)
    generated = generated_group(noisy_readout(task.automaton(), task.output_size))
    assert (generated.name, generated.order) == (group, order)
    assert len(generated.generators) == task.vocab_size


def trained_on_noise(model):
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(60):
        tokens, labels = torch.randint(0, 2, (32, 16)), torch.randint(0, 5, (32, 16))
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), labels.flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model.eval()


@pytest.mark.parametrize("family", [OrthogonalTransitions, SquaredCayleyTransitions, DenseTransitions])
@pytest.mark.parametrize("kind", ["random readout", "random transductor", "readout", "transductor"])
def test_heads_near_no_machine_are_refused_with_numbers(family, kind):
    head = RationalHead(family(vocab_size=2, state_dim=8, init_scale=0.3))
    model = RationalReadout(head, 5) if "readout" in kind else RationalTransductor(head, BACKBONE)
    model = model.eval() if "random" in kind else trained_on_noise(model)
    with pytest.raises(NoMachineNearby, match=r"more than max_states = 500 states|states up to 0\.\d+ apart"):
        extract(model, max_states=500)


def test_too_many_states_are_refused():
    model = noisy_readout(task_named("counting:7").automaton(), 7)
    assert extract(model, max_states=7).machine.states == 7
    with pytest.raises(NoMachineNearby, match="more than max_states = 6 states"):
        extract(model, max_states=6)


def test_a_head_that_nobody_sees_is_refused():
    head = RationalHead(OrthogonalTransitions(vocab_size=2, state_dim=4))
    with pytest.raises(NoMachineNearby, match="nothing that is read off its states depends on them"):
        extract(RationalTransductor(head, BACKBONE, injection="none"))


def test_states_without_bound_or_numbers_are_refused():
    model = dense_readout(1e60 * turns(1.0, 2.0), torch.tensor([1.0, 0.0]), torch.randn(3, 2))
    with pytest.raises(NoMachineNearby, match="near no finite machine"):
        extract(model)
    with pytest.raises(NoMachineNearby, match="near no finite machine"):
        extract(RationalTransductor(model.rational_head, BACKBONE))
    with pytest.raises(NoMachineNearby, match="not finite"):
        extract(RationalTransductor(model.rational_head.float(), BACKBONE))
    model = dense_readout(torch.ones(1, 1, 1), torch.ones(1), torch.randn(3, 1))
    with torch.no_grad():
        model.rational_head.raw_initial_state[0] = torch.nan
    with pytest.raises(NoMachineNearby, match="not finite"):
        extract(model)


def test_nonsense_is_refused_by_name():
    model = clock(3, 0.0)
    with pytest.raises(TypeError, match="model must be a RationalReadout"):
        extract(Transformer(BACKBONE))
    with pytest.raises(ValueError, match="max_states must be a positive integer"):
        extract(model, max_states=0)
    for tolerances in ((), (0.0,), (1.5,)):
        with pytest.raises(ValueError, match="tolerances must be numbers in"):
            extract(model, tolerances=tolerances)
    with pytest.raises(ValueError, match="words must be tokens of shape"):
        extract(model, words=torch.zeros(4, dtype=torch.long))
    with pytest.raises(IndexError, match=r"words must lie in \[0, 2\)"):
        extract(model, words=torch.full((1, 3), 2))
    with pytest.raises(ValueError, match="driven by tokens"):
        extract(RationalHead(DenseTransitions(feature_dim=3, state_dim=2)))
    head = RationalHead(DenseTransitions(vocab_size=2, state_dim=2))
    for one in (RationalReadout(head, 1), RationalTransductor(head, replace(BACKBONE, output_size=1))):
        with pytest.raises(ValueError, match="at least two outputs"):
            extract(one)


def test_the_model_is_left_as_it_was():
    model = noisy_readout(task_named("group:S3").automaton(), 6).float().train()
    before = copy.deepcopy(model.state_dict())
    extract(model)
    assert model.training
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_the_labels_of_a_model_over_the_states_of_its_head():
    task = task_named("counting:3")
    six = MooreMachine(np.array([[q, (q + 1) % 6] for q in range(6)]), np.arange(6))
    model = noisy_readout(six, 6)
    with torch.no_grad():  # the head counts to six, the readout says the remainder by three
        weight = model.readout.weight.clone()
        model.readout.weight.copy_(torch.cat([weight[:3] + weight[3:], torch.zeros(3, 6)]))
        model.readout.bias.copy_(torch.tensor([0.0, 0.0, 0.0, -9.0, -9.0, -9.0]))
    states = extract(model.rational_head)
    assert states.machine.states == 6
    learned = labelled(model, states)
    assert learned.fit == 1.0
    assert learned.words_tested == 512
    assert is_the_machine_of(learned.machine, "counting:3")
    assert learned.machine.separating_word(task.automaton()) is None
    with pytest.raises(ValueError, match="B at least 2"):
        labelled(model, states, words=torch.zeros(1, 4, dtype=torch.long))


def test_learning_from_answers_alone():
    for name in ("counting:5", "even_pairs", "tomita:5", "addition:2"):
        task = task_named(name)
        learned = extract_from_labels(task.automaton().labels, task.vocab_size, checks=200, check_length=20)
        assert is_the_machine_of(learned.machine, name)
        assert (learned.disagreements, learned.fit, learned.longest, learned.words_tested) == (0, 1.0, 20, 200)


def test_asking_calls_a_clock_perfect_that_fails_later():
    wrong = clock(5, 1e-2)
    learned = extract_from_labels(wrong, 2, checks=100, check_length=40)
    assert is_the_machine_of(learned.machine, "counting:5")
    assert learned.fit == 1.0
    ones = torch.ones(1, 63, dtype=torch.long)
    differs = wrong(ones).argmax(-1) != learned.machine.labels(ones)
    assert differs.nonzero().tolist() == [[0, 62]]


def test_asking_refuses_what_makes_no_sense():
    with pytest.raises(ValueError, match="letters must be a positive integer"):
        extract_from_labels(clock(3, 0.0), 0)
    with pytest.raises(ValueError, match="more than 2 states"):
        extract_from_labels(clock(3, 0.0), 2, max_states=2)
