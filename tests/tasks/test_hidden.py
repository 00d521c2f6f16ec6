"""Hidden states: what is drawn is what the process says, and no answer is better than Bayes'."""

from __future__ import annotations

import pytest
import torch

from tests.tasks.cases import generator
from transductor.automata import HiddenMarkovModel
from transductor.compilation import filter_of
from transductor.tasks import Parity, PartlyObserved
from transductor.training import TrainingSettings
from transductor.training.steps import draw_batch

TASK = PartlyObserved(states=4)


def test_what_is_drawn_is_what_the_process_says():
    """Given the posterior p, the hidden state is s with probability p_s: checked in bins of p."""
    tokens, states = TASK.drawn(400, 60, generator())
    right = TASK.posterior(tokens)
    hit = torch.nn.functional.one_hot(states, 4).double()
    for low in (0.0, 0.2, 0.4, 0.6, 0.8):
        chosen = (right >= low) & (right < low + 0.2)
        spread = 5 * (right[chosen] * (1 - right[chosen])).sum().sqrt() / chosen.sum()
        assert abs(hit[chosen].mean() - right[chosen].mean()) <= 3 * spread  # neighbours are not independent


def test_training_is_on_what_came_and_not_on_the_likeliest_answer():
    settings = TrainingSettings(batch_size=8, length=40)
    tokens, labels = draw_batch(TASK, settings, 40, generator(3))
    assert torch.equal(labels, TASK.drawn(8, 40, generator(3))[1])
    assert not torch.equal(labels, TASK.truth(tokens))
    tokens, labels = draw_batch(Parity(), settings, 40, generator(3))
    assert torch.equal(labels, Parity().truth(tokens))


def test_a_filter_of_the_process_is_bayes():
    tokens, _ = TASK.drawn(3, 100, generator(1))
    process = TASK.process()
    assert sum(process((letter,)) for letter in process.alphabet) == pytest.approx(1)
    head = filter_of(process, leak=0, dtype=torch.float64)
    assert torch.allclose(head(tokens)[..., :-1], TASK.posterior(tokens), atol=1e-9)
    model = HiddenMarkovModel.of_automaton(process)
    assert model.states == 4 * TASK.vocab_size


def test_excess_is_zero_for_bayes_alone():
    tokens, states = TASK.drawn(20, 50, generator(2))
    right = TASK.posterior(tokens)
    assert TASK.excess(right.clamp_min(1e-300).log(), tokens) == pytest.approx(0, abs=1e-9)
    blurred = (0.9 * right + 0.1 / 4).log()
    assert 0.01 < TASK.excess(blurred, tokens) < TASK.excess(torch.zeros_like(right), tokens)
    hits = (TASK.truth(tokens) == states).double().mean().item()
    assert hits == pytest.approx(right.amax(-1).mean().item(), abs=0.08)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"states": 1}, "states must be"), ({"slip": 0.0}, "every word must be possible"), ({"read": 1.5}, "read"),
     ({"read": 0.6, "reveal": 0.5}, "sum to at most 1"), ({"read": 0.5, "reveal": 0.5}, "leave room")],
)  # fmt: skip
def test_bad_parameters_are_refused_by_name(options, words):
    with pytest.raises(ValueError, match=words):
        PartlyObserved(**options)
