"""Moore machines: the smallest one, and the word that tells two apart."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

from transductor.automata import DFA, IGNORED, MooreMachine
from transductor.automata.finite_algebra import minimised as minimised_dfa
from transductor.tasks import task_named


def random_machine(seed: int, states: int = 9, letters: int = 2, labels: int = 2) -> MooreMachine:
    random = np.random.default_rng(seed)
    outputs = random.integers(labels, size=states)
    return MooreMachine(random.integers(states, size=(states, letters)), outputs, int(random.integers(states)))


def all_labels(machine: MooreMachine, length: int) -> torch.Tensor:
    words = torch.tensor(list(product(range(machine.letters), repeat=length)))
    return machine.labels(words)


def doubled(machine: MooreMachine) -> MooreMachine:
    """Two copies of every state, each letter changing the copy, and one state that no word leads to."""
    other = machine.transitions + machine.states
    table = np.vstack([other, machine.transitions, np.zeros((1, machine.letters))])
    return MooreMachine(table, np.concatenate([machine.outputs, machine.outputs, [7]]), machine.start)


@pytest.mark.parametrize("seed", range(40))
def test_the_smallest_machine_gives_the_same_labels(seed):
    machine = random_machine(seed, labels=2 + seed % 3)
    small = machine.minimised()
    assert torch.equal(all_labels(small, 9), all_labels(machine, 9))
    assert machine.separating_word(small) is None
    assert small.minimised().states == small.states
    again = doubled(machine).minimised()
    np.testing.assert_array_equal(again.transitions, small.transitions)
    np.testing.assert_array_equal(again.outputs, small.outputs)


@pytest.mark.parametrize("seed", range(40))
def test_it_is_as_small_as_the_smallest_automaton_of_one_label(seed):
    machine = random_machine(seed)
    returned_to = (machine.minimised().transitions == 0).any()
    dfa = DFA((0, 1), machine.transitions, machine.start, frozenset(np.flatnonzero(machine.outputs == 1).tolist()))
    # The label of the empty word can cost an automaton a state; a machine does not show it.
    assert machine.minimised().states in (minimised_dfa(dfa).states, minimised_dfa(dfa).states - (not returned_to))


def test_a_start_that_is_never_returned_to_has_no_label_to_keep_apart():
    # After a letter the state is that letter; the start behaves like either of them.
    machine = MooreMachine(np.array([[1, 2], [1, 2], [1, 2]]), np.array([IGNORED, 0, 1]))
    assert machine.minimised().states == 2
    assert machine.separating_word(machine.minimised()) is None
    kept = machine.representative_states()
    np.testing.assert_array_equal(machine.outputs[kept], machine.minimised().outputs)
    assert 0 not in kept


def test_no_label_is_a_label_of_its_own():
    machine = MooreMachine(np.array([[1], [2], [0]]), np.array([0, IGNORED, 0]))
    assert machine.minimised().states == 3
    assert machine.separating_word(MooreMachine(np.array([[0]]), np.array([0]))) == (0,)
    assert machine.separating_word(MooreMachine(np.array([[0]]), np.array([0])), skip_ignored=True) is None


@pytest.mark.parametrize("seed", range(30))
def test_the_separating_word_is_a_shortest_one(seed):
    first, second = random_machine(seed, states=5), random_machine(1000 + seed, states=4)
    word = first.separating_word(second)
    for length in range(1, 10):
        words = torch.tensor(list(product(range(2), repeat=length)))
        differs = (first.labels(words) != second.labels(words))[:, -1]
        if differs.any():
            assert word == tuple(words[differs][0].tolist())
            return
    assert word is None


def test_a_difference_at_the_start_itself_is_found_when_words_come_back():
    three, wrong = task_named("counting:3").automaton(), MooreMachine(np.array([[0, 1], [1, 2], [2, 0]]), [5, 1, 2])
    assert wrong.separating_word(three) == (0,)
    cycle = MooreMachine(np.array([[1], [2], [0]]), np.array([0, 1, 2]))
    assert cycle.separating_word(MooreMachine(cycle.transitions, np.array([9, 1, 2]))) == (0, 0, 0)


def test_long_differences_are_found_at_their_length():
    def counter(modulus):
        states = np.arange(modulus)
        return MooreMachine(((states + 1) % modulus)[:, None], (states == 0).astype(int))

    word = counter(300).separating_word(counter(301))
    assert word == (0,) * 300
    assert counter(300).minimised().states == 300


@pytest.mark.parametrize(
    ("name", "states"), [("parity", 2), ("counting:7", 7), ("even_pairs", 5), ("addition:2", 4), ("arithmetic:5", 51)]
)
def test_the_machines_of_tasks(name, states):
    machine = task_named(name).automaton()
    assert machine.minimised().states == states
    assert machine.separating_word(machine.minimised()) is None


def test_machines_over_other_letters_are_refused():
    with pytest.raises(ValueError, match="other must have 2 letters"):
        random_machine(0).separating_word(random_machine(0, letters=3))


def test_two_machines_of_a_hundred_thousand_states_are_compared():
    """All pairs of their states would be 10¹⁰; union-find visits at most as many as there are states."""
    states = 100_000
    table = np.random.default_rng(0).integers(0, states, (states, 2))
    outputs = np.arange(states) % 3
    machine, order = MooreMachine(table, outputs), np.random.default_rng(1).permutation(states)
    shuffled, labels = np.empty_like(table), np.empty_like(outputs)
    shuffled[order], labels[order] = order[table], outputs
    assert machine.separating_word(MooreMachine(shuffled, labels, int(order[0]))) is None
    labels[order[table[0, 1]]] += 1
    assert machine.separating_word(MooreMachine(shuffled, labels, int(order[0]))) == (1,)


def test_too_many_pairs_are_refused_by_name(monkeypatch):
    monkeypatch.setattr("transductor.automata.moore.MOST_PAIRS", 50)
    counters = [MooreMachine(((np.arange(n) + 1) % n)[:, None], np.full(n, 1)) for n in (10, 11)]
    with pytest.raises(ValueError, match="more than 50 pairs of states"):
        counters[0].separating_word(counters[1], skip_ignored=True)
