from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from tests.learning.data_files import source
from transductor.automata import MooreMachine
from transductor.learning.beginnings import begun, made_certain
from transductor.learning.divided_data import divided
from transductor.learning.recipes import RECIPES, SMALL
from transductor.learning.running import fresh_trainer

WORDS = ("view", "search", "scroll", "hover", "chat", "help", "share", "rate", "add", "pay", "confirm", "logout")


def bought(words):
    """Add, then pay, then confirm; logging out begins again, buying ends it."""
    stage = 0
    for word in words:
        if stage < 3 and word == ("add", "pay", "confirm")[stage]:
            stage += 1
        elif word == "logout" and stage < 3:
            stage = 0
    return stage


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    draw, rows = random.Random(0), []
    for _ in range(1200):
        words = draw.choices(WORDS, k=draw.randint(0, 45))
        rows.append({"tokens": words, "label": "bought" if bought(words) == 3 else "open"})
    return divided(source(tmp_path_factory.mktemp("data"), rows))


def truth(data):
    letters = data.source.vocabulary.letters
    chain = {(0, "add"): 1, (1, "pay"): 2, (2, "confirm"): 3, (1, "logout"): 0, (2, "logout"): 0}
    table = [[chain.get((state, word), state) for word in letters] for state in range(4)]
    return MooreMachine(np.array(table), np.array([1, 1, 1, 0]))


def small_model(data, machine, noise):
    """A small automaton that goes where the machine goes, uncertainly, with steps beside it that are wrong."""
    model = fresh_trainer(RECIPES[SMALL], data.source, 1, 0).model
    family = model.rational_head.transitions
    logits = torch.randn(family.table().shape, generator=torch.Generator().manual_seed(0)) * noise
    for state, row in enumerate(machine.transitions):
        for letter, to in enumerate(row):
            logits[3 + letter, to, state] += 2.0
    logits[0] = 4.0 * torch.eye(len(logits[0]))
    with torch.no_grad():
        (raw,) = family.parameters()
        raw.copy_(logits.flatten(1))
        model.rational_head.raw_initial_state.copy_(torch.eye(len(logits[0]))[0])
    return model


def ask(data, model, seconds):
    return begun(RECIPES[SMALL], model, data, seconds=seconds, seconds_of_a_step=1e-3, seed=0, on_progress=print)


def test_an_uncertain_model_goes_where_it_most_probably_goes(data):
    certain = made_certain(small_model(data, truth(data), 0.0))
    assert (certain.transitions[:4] == truth(data).transitions).all()
    assert certain.start == 0


def test_the_search_goes_on_from_there_to_the_machine(data, monkeypatch):
    monkeypatch.setattr("transductor.learning.beginnings._LEAST", 60.0)  # the machine may be busy
    nearly = truth(data).transitions.copy()
    nearly[1, 3] = 0
    model = small_model(data, MooreMachine(nearly, truth(data).outputs), 0.2)
    assert (made_certain(model).transitions[:4] != truth(data).transitions).sum() == 1
    candidate = ask(data, model, 0.0)
    assert candidate.believed, candidate.refusals
    assert candidate.way == "begun"
    assert candidate.machine.separating_word(truth(data)) is None


def test_a_model_that_goes_nowhere_begins_no_machine(data):
    candidate = ask(data, small_model(data, MooreMachine(np.zeros((1, len(WORDS)), int), np.zeros(1, int)), 0.0), 0.0)
    assert not candidate.believed
