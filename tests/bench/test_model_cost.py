"""The model-cost study: two models that differ by the head alone, trained and decoded in turns."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
import torch
from rich.console import Console

from transductor.bench import ModelCostStudy, run_model_cost
from transductor.bench.model_cost import _Trainer
from transductor.configuration import from_plain
from transductor.report import model_cost_tables
from transductor.results import read_record

TINY = ModelCostStudy.small()


def test_the_two_models_differ_by_the_head_alone():
    plain, ours = (TINY.build(name) for name in ("transformer", "transductor"))
    extra = {name for name, _ in ours.named_parameters()} - {name for name, _ in plain.named_parameters()}
    assert extra
    assert all(name.startswith(("rational_head.", "injection.")) for name in extra)
    assert ours.backbone.config == plain.backbone.config


def test_the_records_come_back_and_are_shown_in_per_cent(tmp_path):
    stages = []
    records = run_model_cost(TINY, "cpu", lambda *stage: stages.append(stage))
    assert [done for _, done, _ in stages] == [0, 1, 2, 3]
    training, decoding = (read_record(record.write(tmp_path / f"{record.name}.json")) for record in records)
    assert from_plain(training.settings) == TINY
    for entry in training.measurements["models"].values():
        assert len(entry["turns"]) == TINY.turns
        assert 0 < entry["min"] <= entry["seconds"] <= entry["max"]
        assert entry["compiled"] == "eager"
    assert [(cell["batch"], cell["context"]) for cell in decoding.measurements["cells"]] == [(1, 16), (2, 16)]
    # The numbers are replaced, so that what is printed can be known.
    known = {
        name: {**entry, "seconds": seconds, "device_seconds": 2 * seconds**2, "device_timed": "graph", "peak_bytes": 1}
        for (name, entry), seconds in zip(training.measurements["models"].items(), (0.010, 0.0105), strict=True)
    }
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(model_cost_tables(replace(training, measurements={"models": known}), decoding))
    shown = console.export_text()
    for words in ("+5.0%", "10.50", "on the device, captured", "+10.3%", "Rational Transductor", "turn by turn", "B"):
        assert words in shown


def test_one_part_alone_is_one_record():
    (record,) = run_model_cost(TINY, "cpu", parts=("decoding",))
    assert record.name == "model_decoding_cpu"


def test_a_step_moves_every_parameter_of_both_models():
    for name in ("transformer", "transductor"):
        torch.manual_seed(0)
        model = TINY.build(name)
        before = {key: value.clone() for key, value in model.named_parameters()}
        trainer = _Trainer(TINY, model, "cpu")
        trainer.step()
        assert model.training
        still = [key for key, value in model.named_parameters() if torch.equal(value, before[key])]
        # Keys' biases shift all scores of a query alike: softmax does not see them.
        assert all("key.bias" in key for key in still), still


@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_what_cannot_be_compiled_is_run_as_it_is_and_says_why(monkeypatch):
    attempts = []

    def stubborn(model, *, fullgraph):
        attempts.append(fullgraph)

        def call(tokens):
            raise RuntimeError("a loop over time")

        return call

    monkeypatch.setattr(torch, "compile", stubborn)
    trainer = _Trainer(TINY, TINY.build("transductor"), "cpu")
    trainer.compile()
    trainer.step()
    assert attempts == [True, False]
    assert trainer.how == "eager"
    assert "a loop over time" in trainer.note


def test_a_study_without_steps_is_refused():
    with pytest.raises(ValueError, match="turns must be a positive integer"):
        replace(TINY, turns=0)
