"""The studies of beliefs: the same data for every model, and as many parameters as sizes allow."""

from __future__ import annotations

import pytest
import torch

from transductor.model import build
from transductor.studies import STUDIES
from transductor.studies.judging import judge
from transductor.studies.study import Probe
from transductor.study_names import TRACKED, TRACKED_MORE, TRACKED_WIDE, TRACKERS
from transductor.training import Trainer

NAMES = {"tracking": TRACKED, "tracking_wide": TRACKED_WIDE, "tracking_more": TRACKED_MORE}
ARMS = {(name, arm.name): arm for name in NAMES for arm in STUDIES[name].arms}
WORDS = {8: 256, 16: 512, 32: 1024}
# Sizes of a head go in steps of a dimension: how much more these have.
LARGER = {"orthogonal_on_5": 1.06, "columns_on_5": 1.10, "columns_on_8": 1.07}


@pytest.mark.parametrize(("study", "process"), [(name, each) for name, group in NAMES.items() for each in group])
def test_all_models_are_trained_alike_and_have_one_size(study, process):
    arms = {tracker: ARMS[study, f"{tracker}_on_{process}"] for tracker in TRACKERS}
    assert len({arm.task for arm in arms.values()}) == 1
    assert len({arm.probes for arm in arms.values()}) == 1
    same = {(arm.training.steps, arm.training.batch_size, arm.training.length) for arm in arms.values()}
    words = WORDS[arms["filter"].task.states] if study == "tracking_more" else 64
    assert same == {(1000, words, 40)}
    assert all(len(arm.rates) == 3 and arm.training.label_smoothing == 0 for arm in arms.values())
    counts = {tracker: build(arm.model).parameter_count() for tracker, arm in arms.items()}
    for tracker, count in counts.items():
        most = LARGER.get(f"{tracker}_on_{process.split('_')[0]}", 1.05)
        assert 0.95 <= count / counts["filter"] <= most, (tracker, counts)


def test_the_lengths_are_those_that_are_asked_for():
    for arm in ARMS.values():
        assert [probe.length for probe in arm.probes] == [40, 160, 640, 2560]


def test_the_automata_are_those_of_the_page():
    slow, fast = (ARMS["tracking", f"filter_on_8_{chain}"].task for chain in ("slow", "fast"))
    assert (slow.states, slow.slip, slow.hidden, slow.read, slow.noise, slow.reveal) == (8, 0.005, 0.05, 0.1, 0.3, 0.01)
    assert (fast.slip, fast.hidden) == (0.05, 0.2)
    assert ARMS["tracking_more", "filter_on_32_fast"].task.states == 32
    assert (
        ARMS["tracking_wide", "lstm_on_8_slow_vague"].task.read,
        ARMS["tracking_wide", "lstm_on_8_slow_vague"].task.noise,
    ) == (0.5, 0.8)
    assert (
        ARMS["tracking_wide", "lstm_on_8_slow_revealed"].task.read,
        ARMS["tracking_wide", "lstm_on_8_slow_revealed"].task.reveal,
    ) == (0.01, 0.1)


def test_the_optimiser_remembers_as_long_as_it_is_told():
    arm = ARMS["tracking", "filter_on_5_slow"]
    trainer = Trainer(build(arm.model), arm.task, arm.training)
    assert {group["betas"] for group in trainer.optimiser.param_groups} == {(0.9, 0.99)}


def test_the_excess_is_the_tasks_own_over_all_batches(monkeypatch):
    monkeypatch.setattr("transductor.studies.judging._TOKENS_AT_ONCE", 200)
    arm = ARMS["tracking", "filter_on_5_slow"]
    torch.manual_seed(0)
    model = build(arm.model)
    (entry,) = judge(model, arm.task, Probe(50, 10), trained_length=40, seed=3)
    generator = torch.Generator().manual_seed(1_000_003 * 4)
    tokens = torch.cat([arm.task.sample(size, 50, generator) for size in (4, 4, 2)])
    with torch.no_grad():
        assert entry["excess"] == pytest.approx(arm.task.excess(model(tokens), tokens), rel=1e-5)
    right = arm.task.posterior(tokens)
    assert entry["least_loss"] == pytest.approx(-float((right * right.clamp_min(1e-300).log()).sum()) / 500)


def test_bayes_has_no_excess_and_no_answer_is_no_excess_of_zero():
    task = ARMS["tracking", "filter_on_5_slow"].task

    class Answer(torch.nn.Module):
        def __init__(self, worse):
            super().__init__()
            self.anchor, self.worse = torch.nn.Parameter(torch.zeros(1)), worse

        def forward(self, tokens):
            return task.posterior(tokens).clamp_min(1e-300).log() * self.worse

    (entry,) = judge(Answer(1.0), task, Probe(20, 4), trained_length=40, seed=0)
    assert entry["excess"] < 1e-9
    (entry,) = judge(Answer(float("nan")), task, Probe(20, 4), trained_length=40, seed=0)
    assert entry["excess"] == 1e308
