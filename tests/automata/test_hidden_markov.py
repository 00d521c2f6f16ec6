"""Hidden Markov models: the forward algorithm against all paths, conversions both ways, and learning."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from transductor.automata import HiddenMarkovModel, WeightedAutomaton, fitted_hidden_markov, spectral_hidden_markov
from transductor.compilation import automaton_of_filter, filter_of, predictor_of


def random_model(states=3, letters=4, seed=0):
    random = np.random.default_rng(seed)
    return HiddenMarkovModel(
        random.dirichlet(np.ones(states)),
        random.dirichlet(np.ones(states), states),
        random.dirichlet(np.ones(letters), states),
    )


def over_all_paths(model, word):
    total = 0.0
    for path in product(range(model.states), repeat=len(word)):
        weight = model.start[path[0]]
        for t, letter in enumerate(word):
            weight *= model.emissions[path[t], letter]
            weight *= model.transitions[path[t], path[t + 1]] if t + 1 < len(word) else 1
        total += weight
    return total


def test_likelihoods_are_sums_over_paths():
    model = random_model()
    words = np.array([[0, 1, 3, 2], [2, 2, 0, 1]])
    expected = [over_all_paths(model, word) for word in words]
    assert np.exp(model.log_likelihood(words)) == pytest.approx(expected, rel=1e-12)
    assert [model.automaton()(tuple(word)) for word in words.tolist()] == pytest.approx(expected, rel=1e-12)
    assert model.next_letters(words).sum(-1) == pytest.approx(1)


def test_a_filter_of_a_model_is_the_model():
    model = random_model()
    words = model.sampled(3, 50, 1)[0]
    beliefs, logs = model.beliefs(words)
    head = filter_of(model, dtype=torch.float64)
    found = head.beliefs(torch.from_numpy(words))
    assert found.states.detach().numpy() == pytest.approx(beliefs, abs=1e-12)
    assert found.logs.detach().numpy() == pytest.approx(logs, abs=1e-10)
    predicted = predictor_of(model, dtype=torch.float64)(torch.from_numpy(words)).exp()
    assert predicted.detach().numpy() == pytest.approx(model.next_letters(words), abs=1e-12)
    assert HiddenMarkovModel.of_automaton(automaton_of_filter(head)).emissions == pytest.approx(model.emissions)


def test_zeros_are_exact_without_leak_and_leak_with_it():
    model = HiddenMarkovModel([1, 0], [[0, 1], [1, 0]], [[1, 0], [0, 1]])
    words = torch.tensor([[0, 1, 0, 1], [0, 0, 0, 0]])
    exact = filter_of(model, leak=0)
    assert not any(parameter.requires_grad for parameter in exact.parameters())
    assert exact.log_likelihood(words).tolist() == [0.0, -np.inf]
    leaking = filter_of(model)
    assert leaking.log_likelihood(words)[0].item() == pytest.approx(0, abs=1e-5)
    assert -100 < leaking.log_likelihood(words)[1].item() < -10


def test_letters_on_arcs_become_letters_of_states():
    """The letter and the next state depend on one another: states must be split."""
    matrices = np.zeros((2, 2, 2))
    matrices[0, 0, 0], matrices[1, 1, 0] = 0.3, 0.7
    matrices[1, 0, 1] = 1.0
    machine = WeightedAutomaton([0.5, 0.5], matrices, [1, 1], (0, 1), weights="float")
    model = HiddenMarkovModel.of_automaton(machine)
    for word in product(range(2), repeat=4):
        assert np.exp(model.log_likelihood(np.array([word])))[0] == pytest.approx(machine(word), abs=1e-12)
    with pytest.raises(ValueError, match="process without an end"):
        HiddenMarkovModel.of_automaton(0.5 * machine)


def test_arrays_of_hmmlearn_are_taken_as_they_are():
    model = random_model()
    fitted = SimpleNamespace(startprob_=model.start, transmat_=model.transitions, emissionprob_=model.emissions)
    assert HiddenMarkovModel.of_hmmlearn(fitted).transitions.tolist() == model.transitions.tolist()
    with pytest.raises(ValueError, match="emissions must hold distributions"):
        HiddenMarkovModel([1.0], [[1.0]], [[0.5, 0.6]])
    with pytest.raises(ValueError, match=r"transitions must have shape \(2, 2\)"):
        HiddenMarkovModel([0.5, 0.5], [[1.0]], [[1.0], [1.0]])
    with pytest.raises(ValueError, match="tokens must lie in"):
        model.beliefs([[4]])


@pytest.fixture(scope="module")
def sticky():
    model = HiddenMarkovModel([0.5, 0.5], [[0.95, 0.05], [0.1, 0.9]], [[0.8, 0.1, 0.1], [0.1, 0.2, 0.7]])
    return model, model.sampled(200, 50, 0)[0], model.sampled(50, 50, 1)[0]


def test_expectation_maximisation_climbs_to_the_truth(sticky):
    model, words, fresh = sticky
    likelihoods = [fitted_hidden_markov(words, 2, rounds=n).log_likelihood(words).sum() for n in (1, 3, 30)]
    assert likelihoods == sorted(likelihoods)
    learned = fitted_hidden_markov(words, 2, rounds=30)
    assert learned.log_likelihood(fresh).mean() > 1.002 * model.log_likelihood(fresh).mean()


def test_a_spectral_machine_predicts_without_iteration(sticky):
    model, words, fresh = sticky
    machine = spectral_hidden_markov(words, 2)
    values = np.array([machine(tuple(word[:6])) for word in fresh.tolist()])
    expected = np.exp(model.log_likelihood(fresh[:, :6]))
    assert np.corrcoef(values, expected)[0, 1] > 0.98
    with pytest.raises(ValueError, match="states must lie between 1 and"):
        spectral_hidden_markov(words, 4)
