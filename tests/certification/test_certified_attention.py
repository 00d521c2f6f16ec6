"""The models of the study on attention are in the repository, and what its records say of them still follows."""

from __future__ import annotations

import json

import pytest

from tests.records import records_folder
from transductor.certification.bounds.attended_models import attention_agreement
from transductor.model import RotaryPositions, SlidingWindow, load
from transductor.tasks import task_named

FOLDER = records_folder("benchmarks/results") / "certified_attention"
TASKS = {"mod5": "counting:5", "parity": "parity"}
NAMES = [f"{task}_{kind}_{seed}" for kind in ("full", "window") for task in TASKS for seed in range(5)]


@pytest.mark.parametrize(
    "name", [name if name.endswith("_0") else pytest.param(name, marks=pytest.mark.slow) for name in NAMES]
)
def test_what_the_record_says_follows_from_the_model(name):
    record = json.loads((FOLDER / f"{name}.json").read_text())
    task, model = task_named(TASKS[record["task"]]), load(FOLDER / name).eval()
    bound = record["narrowed"]["bound"]
    longest = 10_000 if bound["float_length"] is None else min(10_000, bound["float_length"])
    result = attention_agreement(model, against=task.automaton(), longest=longest)
    assert result.holds == bound["holds_for_all_lengths_with_exact_averages"]
    assert result.worst == pytest.approx(bound["gap"], rel=1e-5)
    assert result.proved == bound["proved_for_all_lengths"]
    if record["kind"] == "window":
        assert model.backbone.config.attention == SlidingWindow(16)
        assert model.backbone.config.positions == RotaryPositions()
    else:
        assert result.float_length == longest
    for outcome in record["long"]["inputs"].values():
        assert outcome["mistakes"] == 0
        assert outcome["least_gap"] >= result.worst  # what a model shows is never below the bound
