from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn

from tests.certification.perturbed import (
    counter,
    labels_of,
    one_hot,
    random_machine,
    readout_model,
    rotating_counter,
    turn,
)
from transductor.automata import IGNORED, MooreMachine, regex
from transductor.certification import certify, check_certificate
from transductor.heads import LookbackHead, RationalHead
from transductor.model import RationalReadout
from transductor.transitions import (
    DenseTransitions,
    OrthogonalTransitions,
    PermutationTransitions,
    StochasticTransitions,
)


def shortest_difference(model, machine, most, domain=None):
    """By brute force over all words: the length at which labels first differ, None if they do not."""
    for length in range(1, most + 1):
        words = torch.tensor(list(itertools.product(range(machine.letters), repeat=length)))
        wanted = machine.labels(words)[:, -1]
        wrong = (labels_of(model, words)[:, -1] != wanted) & (wanted != IGNORED)
        if domain is not None:
            wrong &= domain.labels(words)[:, -1] == 1
        if wrong.any():
            return length
    return None


# Heads that are nearly right, and refuted


@pytest.mark.parametrize(("error", "first_wrong"), [(1e-2, 63), (1e-3, 629), (1e-4, 6284)])
def test_a_rotation_that_turns_too_far_is_refuted_where_it_first_fails(error, first_wrong):
    model = rotating_counter(error)
    certificate = certify(model, against=counter(5))
    assert certificate.verdict == "refuted"
    assert certificate.word == (1,) * first_wrong
    assert first_wrong / 2 <= certificate.holds_up_to < first_wrong
    words = torch.ones(1, first_wrong, dtype=torch.long)
    right = labels_of(model, words)[0] == counter(5).labels(words)[0]
    assert right[:-1].all()
    assert not right[-1]
    check_certificate(certificate, model)


def test_black_box_testing_calls_them_perfect():
    """Random words of the lengths that learners test with hold no 63 ones."""
    for error in (1e-2, 1e-3, 1e-4):
        words = torch.randint(0, 2, (1000, 50))
        assert torch.equal(labels_of(rotating_counter(error), words), counter(5).labels(words))


@pytest.mark.parametrize("error", [1e-2, 1e-3, 1e-4])
def test_active_learning_calls_them_perfect(error):
    pytest.importorskip("aalpy")
    from aalpy.base import SUL
    from aalpy.learning_algs import run_Lstar
    from aalpy.oracles import RandomWordEqOracle

    model = rotating_counter(error)

    class Model(SUL):
        def pre(self):
            self.stream, self.shown = model.start(1), 0

        def post(self):
            pass

        def step(self, letter):
            if letter is not None:
                with torch.no_grad():
                    logits, self.stream = model.advance(torch.tensor([[letter]]), self.stream)
                self.shown = int(logits.argmax())
            return self.shown

    subject = Model()
    oracle = RandomWordEqOracle([0, 1], subject, num_walks=100)  # 10 to 30 letters each, as it comes
    learned = run_Lstar([0, 1], subject, oracle, automaton_type="moore", print_level=0)
    assert learned.size == 5  # the counter, and no word against it
    assert certify(model, against=counter(5)).outcome == "refuted"


def test_a_perfect_rotation_is_never_called_proved():
    """Its numbers are rounded, and no double turns by a fifth of a circle."""
    for dtype in (torch.float32, torch.float64):
        certificate = certify(rotating_counter(0.0, dtype=dtype), against=counter(5), horizon=10**5)
        assert certificate.outcome == "bounded"
        assert certificate.verdict == "holds up to 100000"
        assert certificate.holds
    model = RationalReadout(RationalHead(OrthogonalTransitions(state_dim=2, vocab_size=2)), 5)
    assert certify(model, against=counter(5), horizon=50).outcome != "proved"


def test_a_leaking_head_flips_where_the_theory_says():
    """Leaks of 2e-3 and 1e-3: the argmax leaves the state it began in after 462 letters."""
    family = StochasticTransitions(state_dim=2, vocab_size=1)
    model = RationalReadout(RationalHead(family), 2).double().eval()
    with torch.no_grad():
        family.source.raw.copy_(torch.tensor([[0.998, 0.001, 0.002, 0.999]], dtype=torch.float64).log())
        model.rational_head.raw_initial_state.copy_(torch.tensor([100.0, 0.0]))
        model.readout.weight.copy_(torch.eye(2))
        model.readout.bias.zero_()
    staying = MooreMachine(np.array([[0], [1]]), np.arange(2))
    certificate = certify(model, against=staying)
    assert certificate.word == (0,) * 462
    assert 231 <= certificate.holds_up_to < 462


# Exact machines


@pytest.mark.parametrize("seed", range(6))
def test_an_exact_head_is_proved_and_a_wrong_machine_refuted_by_a_shortest_word(seed):
    rng = np.random.default_rng(seed)
    machine = random_machine(rng, 5, 2, 3)
    model = readout_model(*one_hot(machine), dtype=torch.float32)
    certificate = certify(model, against=machine)
    assert certificate.verdict == "proved"
    assert certificate.holds_up_to is None
    assert certificate.word is None
    assert 0.9 < certificate.margin <= 1
    outputs = machine.outputs.copy()
    outputs[rng.integers(5)] += 1
    other = MooreMachine(machine.transitions, outputs % 3)
    length = shortest_difference(model, other, 7)
    certificate = certify(model, against=other)
    assert (None if length is None else "refuted") == (None if certificate.word is None else certificate.verdict)
    if length is not None:
        assert len(certificate.word) == length
        assert certificate.holds_up_to == length - 1
        tokens = torch.tensor([certificate.word])
        assert labels_of(model, tokens)[0, -1] != other.labels(tokens)[0, -1]


def test_permutations_of_any_start_are_exact():
    head = RationalHead(PermutationTransitions(permutations=[[1, 2, 3, 4, 0], [0, 1, 2, 3, 4]]))
    moved = torch.stack([head.raw_initial_state.detach().roll(k) for k in range(5)])
    swapped = MooreMachine(counter(5).transitions[:, ::-1], np.arange(5))
    certificate = certify(head, (moved, -0.5 * (moved**2).sum(1)), against=swapped)  # the nearest state
    assert certificate.verdict == "proved"
    assert certificate.margin > 0


def test_integer_matrices_of_finite_order_are_exact():
    """Three thirds of a turn as an integer matrix, no permutation."""
    table = [[[0, -1], [1, -1]]]
    machine = MooreMachine(np.array([[1], [2], [0]]), np.arange(3))
    states = np.array([[1.0, 0], [0, 1], [-1, -1]])
    weight = states @ np.array([[2.0, -1], [-1, 2]])
    certificate = certify(readout_model(table, states[0], weight), against=machine)
    assert certificate.verdict == "proved"
    assert "finitely many" in certificate.numbers["exactness"]


def test_a_parity_of_one_dimension_and_a_threshold():
    odd = regex("(0|10*1)*", "01")
    table = np.array([[[1.0]], [[-1.0]]])
    assert certify(readout_model(table, [1.0], [[1.0]]), against=odd).verdict == "proved"
    assert certify(readout_model(table, [1.0], [[-1.0]]), against=~odd).verdict == "proved"
    certificate = certify(readout_model(table, [1.0], [[1.0]]), against=~odd)
    assert certificate.verdict == "refuted"
    assert len(certificate.word) == 1
    # At 0 the label is 0; a certificate does not trust a tie.
    tied = certify(readout_model(table, [1.0], [[1.0]], [1.0]), against=odd)
    assert tied.verdict == "holds up to 0"
    assert not tied.holds


def test_two_logits_and_a_head_with_its_readout():
    head = RationalHead(PermutationTransitions(permutations=[[0, 1], [1, 0]]))
    with torch.no_grad():
        head.raw_initial_state.copy_(torch.tensor([1.0, 0.0]))
    odd = ~regex("(0|10*1)*", "01")
    for readout in (torch.eye(2), (torch.eye(2), torch.zeros(2)), torch.tensor([-1.0, 1.0])):
        assert certify(head, readout, against=odd).verdict == "proved"
    linear = nn.Linear(2, 2)
    with torch.no_grad():
        linear.weight.copy_(-torch.eye(2))
        linear.bias.zero_()
    assert certify(head, linear, against=odd).verdict == "refuted"


# Perturbed machines


@pytest.mark.parametrize("seed", range(3))
def test_perturbed_permutations_are_bounded_and_refuted(seed):
    rng = np.random.default_rng(seed)
    machine = MooreMachine(np.stack([rng.permutation(4) for _ in range(2)], 1), np.arange(4))
    table, initial, weight = one_hot(machine)
    table = table + 1e-2 * rng.normal(size=table.shape)
    model = readout_model(table, initial, weight, dtype=torch.float32)
    certificate = certify(model, against=machine, horizon=10**5)
    assert certificate.outcome != "proved"
    length = len(certificate.word) if certificate.word else 10**5
    assert 5 <= certificate.holds_up_to < length
    if certificate.word:
        tokens = torch.tensor([certificate.word])
        assert labels_of(model, tokens)[0, -1] != machine.labels(tokens)[0, -1]
    check_certificate(certificate, model)
    brute = shortest_difference(model, machine, 9)
    assert brute is None or certificate.holds_up_to < brute <= length


def test_a_head_that_is_near_nothing_is_refuted_at_once():
    model = RationalReadout(RationalHead(DenseTransitions(state_dim=4, vocab_size=2)), 5)
    certificate = certify(model, against=counter(5), horizon=1000)
    assert certificate.verdict == "refuted"
    assert len(certificate.word) == shortest_difference(model, counter(5), 8)


def test_words_are_as_short_as_brute_force_finds_them():
    for error in (0.1, 0.15, -0.2):
        certificate = certify(rotating_counter(error), against=counter(5))
        length = shortest_difference(rotating_counter(error), counter(5), 8)
        assert len(certificate.word) == length
        assert certificate.holds_up_to == length - 1  # short words are all followed


# Domains, labels that do not matter, small cases


def test_only_words_of_the_domain_count():
    """Two ones in a row break this head; where they cannot come it is right."""
    machine = MooreMachine(np.array([[0, 1], [0, 1]]), np.arange(2))
    table, initial, weight = one_hot(MooreMachine(np.array([[0, 1], [0, 0]]), np.arange(2)))
    model = readout_model(table, initial, weight)
    separate = regex("0*(10+)*1?", "01")
    assert certify(model, against=machine).word == (1, 1)
    for domain in (separate, MooreMachine.from_dfa(separate)):
        certificate = certify(model, against=machine, domain=domain)
        assert certificate.verdict == "proved"
        assert "of the domain" in certificate.claim
    with pytest.raises(ValueError, match="closed under prefixes"):
        certify(model, against=machine, domain=regex("(0|011)?", "01"))
    with pytest.raises(ValueError, match="at least one letter"):
        certify(model, against=machine, domain=regex("", "01"))


def test_a_domain_lengthens_the_horizon():
    """At most three ones: the rotation turns too far three times at most."""
    machine, model = counter(5), rotating_counter(0.1)
    few = regex("0*(10*){0,3}", "01")
    assert certify(model, against=machine).outcome == "refuted"
    certificate = certify(model, against=machine, domain=few, horizon=10**4)
    assert certificate.verdict == "holds up to 10000"
    check_certificate(certificate, model)


def test_where_there_is_no_label_anything_goes():
    machine = counter(5, labels=[0, 1, 2, 3, IGNORED])
    for table, initial, weight in (
        one_hot(counter(5)),
        (one_hot(counter(5))[0], np.eye(5)[0], np.roll(np.eye(5), 1, 0)),
    ):
        certificate = certify(readout_model(table, initial, weight), against=machine)
        assert certificate.outcome == ("proved" if weight[0, 0] == 1 else "refuted")
    weight = np.eye(5)
    weight[4, 4] = -1  # wrong at four, where it does not matter
    model = readout_model(one_hot(counter(5))[0], np.eye(5)[0], weight)
    assert certify(model, against=machine).verdict == "proved"
    assert certify(model, against=counter(5)).word == (1, 1, 1, 1)
    nothing = counter(5, labels=[IGNORED] * 5)
    assert certify(model, against=nothing).verdict == "proved"
    assert certify(rotating_counter(0.3), against=nothing, horizon=100).verdict == "holds up to 100"


def test_one_letter_and_words_of_one_letter():
    turning = MooreMachine(np.array([[1], [2], [0]]), np.arange(3))
    corners = np.stack([turn(2 * math.pi * k / 3)[:, 0] for k in range(3)])
    model = readout_model([turn(2 * math.pi / 3 + 0.01)], corners[0], corners)
    certificate = certify(model, against=turning)
    assert certificate.word == (0,) * 105  # π/3 in steps of 0.01
    assert certify(model, against=turning, horizon=1).verdict == "holds up to 1"
    short = certify(rotating_counter(0.1), against=counter(5), horizon=6)
    assert short.verdict == "holds up to 6"
    wrong = certify(rotating_counter(2.0), against=counter(5), horizon=1)
    assert wrong.word == (1,)


@pytest.mark.parametrize("noise", [0.0, 1e-3])
def test_a_head_that_also_shows_where_it_was(noise):
    """The label is whether the last letter led from A to B: known from two states, not from one."""
    machine = MooreMachine(np.array([[0, 1], [2, 0], [2, 0]]), np.array([0, 1, 0]))  # A, B from A, B from B
    flip = np.array([[[1.0, 0], [0, 1]], [[0, 1], [1, 0]]])
    flip = flip + noise * np.random.default_rng(0).normal(size=flip.shape)
    model = readout_model(flip, [1.0, 0], [[0.0] * 4, [0, 1, 1, 0]], [0.0, -1.5], head=LookbackHead)
    certificate = certify(model, against=machine, horizon=10**4)
    check_certificate(certificate, model)
    if noise == 0:
        assert certificate.verdict == "proved"
        blind = readout_model(flip, [1.0, 0], [[0.0] * 4, [0, 1, 0, 0]], [0.0, -0.5], head=LookbackHead)
        assert certify(blind, against=machine).word == (1, 0)
    else:
        assert 50 < certificate.holds_up_to < len(certificate.word)
        words = torch.randint(0, 2, (64, certificate.holds_up_to))
        assert torch.equal(labels_of(model, words), machine.labels(words))


# Refusals


def test_what_cannot_be_certified_is_refused_by_name():
    model, machine = rotating_counter(1e-2), counter(5)
    with pytest.raises(TypeError, match="against must be a MooreMachine"):
        certify(model, against="mod 5")
    with pytest.raises(TypeError, match="model_or_head must be"):
        certify(nn.Linear(2, 2), against=machine)
    with pytest.raises(ValueError, match="readout must be left out"):
        certify(model, torch.eye(2), against=machine)
    with pytest.raises(TypeError, match="readout must be an nn"):
        certify(model.rational_head, "argmax", against=machine)
    with pytest.raises(ValueError, match=r"weight must be \(K, 2\)"):
        certify(model.rational_head, torch.eye(3), against=machine)
    with pytest.raises(ValueError, match="one letter for each of the head's 2 tokens; got 1"):
        certify(model, against=MooreMachine(np.array([[0]]), np.array([0])))
    with pytest.raises(ValueError, match=r"labels in \[0, 5\)"):
        certify(model, against=counter(6))
    with pytest.raises(ValueError, match="horizon must be a positive integer"):
        certify(model, against=machine, horizon=0)
    with pytest.raises(ValueError, match="tolerance is for weighted automata"):
        certify(model, against=machine, tolerance=0.1)
    with pytest.raises(ValueError, match="driven by tokens"):
        certify(RationalHead(DenseTransitions(state_dim=2, feature_dim=3)), torch.eye(2), against=machine)


@pytest.mark.parametrize(
    "parameter", ["rational_head.raw_initial_state", "rational_head.transitions.source.raw", "readout.bias"]
)
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_nan_is_refused(parameter, value):
    model = rotating_counter(1e-2)
    with torch.no_grad():
        model.get_parameter(parameter).flatten()[0] = value
    with pytest.raises(ValueError, match="must hold finite numbers"):
        certify(model, against=counter(5))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_random_heads_near_random_machines_never_break_their_bound(seed):
    """Other bases, superfluous dimensions, all sizes of error; a word within the bound would be an error of its own."""
    rng = np.random.default_rng(seed)
    for _ in range(60):
        states, letters, labels, more = (int(rng.integers(low, high)) for low, high in ((1, 7), (1, 4), (2, 5), (0, 3)))
        machine = random_machine(rng, states, letters, labels)
        dim = states + more
        table, initial, weight = np.zeros((letters, dim, dim)), np.zeros(dim), np.zeros((labels, dim))
        table[:, :states, :states], initial[:states], _ = one_hot(machine)
        weight[machine.outputs, np.arange(states)] = 1
        table[:, states:, states:] = 0.5 * rng.normal(size=(letters, more, more))
        change = rng.normal(size=(dim, dim)) if rng.random() < 0.5 else np.linalg.qr(rng.normal(size=(dim, dim)))[0]
        table = change @ (table + 10 ** -rng.uniform(1, 7) * rng.normal(size=table.shape)) @ np.linalg.inv(change)
        dtype = (torch.float32, torch.float64)[int(rng.integers(2))]
        model = readout_model(table, change @ initial, weight @ np.linalg.inv(change), dtype=dtype)
        certificate = certify(model, against=machine, horizon=int(rng.choice([20, 1000, 20_000])))
        assert check_certificate(certificate.plain(), model).plain() == certificate.plain()
        assert certificate.outcome != "proved"
        words = torch.from_numpy(rng.integers(0, letters, (32, min(certificate.holds_up_to, 3000))))
        assert torch.equal(labels_of(model, words), machine.labels(words))
        if certificate.word is not None:
            assert len(certificate.word) > certificate.holds_up_to
