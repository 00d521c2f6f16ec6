"""The command line, as a person uses it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest
import typer
from typer.testing import CliRunner

import transductor.studies
from transductor import BackboneConfig, RationalHead, StackedTransductor, Transformer, save
from transductor.bench.model_cost import MODELS
from transductor.cli import app
from transductor.report import demo as demo_report
from transductor.results import read_record
from transductor.studies import DemoStudy, run_demo
from transductor.studies import demo as demo_study
from transductor.training import TrainingSettings
from transductor.transitions import DenseTransitions, StochasticTransitions

PNG = b"\x89PNG\r\n\x1a\n"


def invoke(*arguments):
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "160", "TERM": "dumb"})


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """What a short demo with two seeds printed, and its folder."""
    folder = tmp_path_factory.mktemp("demo")
    return invoke("demo", "--steps", "3", "--out", str(folder), "--seeds", "2"), folder


def test_demo_trains_compares_and_writes(demo):
    result, folder = demo
    assert result.exit_code == 0, result.output
    assert "Rational Transductor" in result.output
    assert "mean (min–max) of 2 seeds" in result.output
    record = read_record(folder / "record.json")
    assert record.settings["seeds"] == [0, 1]
    for model in record.measurements["models"].values():
        assert len(model["runs"]) == 2
        for run in model["runs"]:
            assert [point["step"] for point in run["training"]] == [3]
            assert len(run["by_position"]) == 500
    assert (folder / "figure.png").read_bytes().startswith(PNG)
    result = invoke("info", str(folder / "transductor"), "--config")
    assert result.exit_code == 0, result.output
    for words in ("26,277 parameters", "rational_head: orthogonal", "MᵀM = I", "64 multiply–adds a step", "yes"):
        assert words in result.output
    assert '"kind": "TransductorConfig"' in result.output


@pytest.mark.parametrize("refused", [False, True])
def test_the_figure_shows_the_hardened_model_where_there_is_one(demo, tmp_path, monkeypatch, refused):
    drawn = []
    monkeypatch.setattr(demo_report, "save_figure", lambda figure, path: drawn.append(figure) or path)
    record = read_record(demo[1] / "record.json")
    said = {"refused": None, "states": 5, "about": "model", "holds_up_to": None, "by_position": [1.0] * 500}
    said = {"refused": "no machine is near"} if refused else said
    demo_report.demo_figure(replace(record, measurements=record.measurements | {"certified": said}), tmp_path / "f.png")
    curves, training = drawn[0].axes
    lines = {line.get_label(): line for line in curves.lines}
    assert ("Rational Transductor, hardened" in lines) != refused
    sentence = "hardened: no. no machine is near" if refused else "proved right at every length"
    assert sentence in drawn[0].get_supxlabel()
    (chance,) = training.texts
    assert 0 < chance.get_position()[1] - record.measurements["chance"] < 0.03  # beside its line


def test_the_demo_is_matched_in_parameters():
    from transductor.studies import DemoStudy

    counts = [DemoStudy().build(name).parameter_count() for name in ("transductor", "transformer")]
    assert abs(counts[0] / counts[1] - 1) < 0.03


def test_two_equal_demos_record_identical_numbers(demo, tmp_path):
    """The second has the first seed alone."""
    assert invoke("demo", "--steps", "3", "--out", str(tmp_path)).exit_code == 0
    first, second = (read_record(folder / "record.json").measurements for folder in (demo[1], tmp_path))
    for model in first["models"].values():
        assert model["runs"].pop()["seed"] == 1
    assert first == second


def test_an_interrupted_demo_goes_on(tmp_path, monkeypatch):
    """Interrupted in the middle of the second model: the first is not trained again, and the numbers are equal."""
    monkeypatch.setattr(demo_study, "_CHECKPOINT_EVERY", 1)
    study = DemoStudy(lengths=(50,), evaluation_batch=4, training=TrainingSettings(steps=3, length=50, batch_size=8))
    taken = []

    def on_step(model, seed, point):
        taken.append((model, point.step))
        if taken[-1] == ("transformer", 2) and len(taken) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_demo(study, on_step, folder=tmp_path)
    again, _ = run_demo(study, on_step, folder=tmp_path)
    assert [step for model, step in taken if model == "transductor"] == [1, 2, 3]
    assert again.measurements == run_demo(study)[0].measurements
    # What is kept of other settings is not gone on with.
    longer = replace(study, training=replace(study.training, steps=4))
    assert run_demo(longer, folder=tmp_path)[0].measurements == run_demo(longer)[0].measurements


def test_an_interrupted_demo_says_how_to_go_on(tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(transductor.studies, "run_demo", interrupted)
    result = invoke("demo", "-o", str(tmp_path / "out"))
    assert result.exit_code == 130
    assert f"the same command goes on from what is kept in {tmp_path / 'out' / 'state'}" in result.output
    (tmp_path / "file").write_text("")
    result = invoke("demo", "-o", str(tmp_path / "file"))
    assert result.exit_code == 2
    assert "--output must be a folder" in result.output


def test_info_describes_every_head(tmp_path):
    config = BackboneConfig(vocab_size=3, width=8, layers=2, attention_heads=2)
    heads = [
        RationalHead(DenseTransitions(vocab_size=3, state_dim=2)),
        RationalHead(StochasticTransitions(feature_dim=8, state_dim=2)),
    ]
    result = invoke("info", str(save(StackedTransductor(heads, config), tmp_path / "stack")))
    assert "driven by 3 tokens" in result.output
    assert "driven by 8 features" in result.output
    assert "the family is unconstrained" in result.output
    assert "columns are distributions" in result.output
    assert "no rational head" in invoke("info", str(save(Transformer(config), tmp_path / "plain"))).output
    assert "the head itself" in invoke("info", str(save(heads[0], tmp_path / "head"))).output


def test_info_says_when_a_law_is_broken(tmp_path):
    from transductor.model.card import model_card
    from transductor.transitions import SignedCayleyTransitions

    head = RationalHead(SignedCayleyTransitions(vocab_size=3, state_dim=2))
    head.transitions.signs[1, 0] = 0.5
    broken = [law for law in model_card(head).heads[0].laws if not law.holds]
    assert [law.witness for law in broken] == ["symbol 1"]
    result = invoke("info", str(save(head, tmp_path / "head")))
    assert "NO, symbol 1" in result.output


@pytest.mark.parametrize("content", [None, "", "{}", '{"format": "transductor-checkpoint"}'])
def test_info_refuses_what_is_no_checkpoint(tmp_path, content):
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    result = invoke("info", str(tmp_path))
    assert result.exit_code == 2
    assert "config.json" in result.output
    assert "Traceback" not in result.output


def test_info_refuses_truncated_weights(tmp_path):
    folder = save(Transformer(BackboneConfig(vocab_size=2, width=8, attention_heads=2)), tmp_path / "model")
    weights = folder / json.loads((folder / "config.json").read_text())["weights"]
    weights.write_bytes(weights.read_bytes()[:50])
    result = invoke("info", str(folder))
    assert result.exit_code == 2
    assert "truncated or altered" in result.output


def test_bad_options_are_refused_before_anything_is_trained(tmp_path):
    (tmp_path / "file").write_text("")
    for arguments, words in (
        (("demo", "--steps", "0"), "--steps"),
        (("demo", "--out", str(tmp_path / "file")), "is a file"),
        (("demo", "--device", "abacus"), "cannot be used here"),
        (("dance",), "dance"),
    ):
        result = invoke(*arguments)
        assert result.exit_code == 2
        assert words in result.output
    assert "0.2.0" in invoke("--version").output


def test_bench_scan_checks_times_and_writes(tmp_path):
    result = invoke("bench", "scan", "--quick", "--device", "cpu", "--output", str(tmp_path))
    assert result.exit_code == 0, result.output
    for words in ("measured / floor", "Kogge–Stone", "peer / scan (auto)", "peak memory", "scan_cpu.json"):
        assert words in result.output
    record = read_record(tmp_path / "scan_cpu.json")
    assert record.settings["parts"] == ["lengths", "shapes", "wide"]
    assert record.environment["versions"]["torch"]
    assert (tmp_path / "scan_cpu.png").read_bytes().startswith(PNG)


def test_bench_scan_refuses_to_time_what_is_wrong(tmp_path, monkeypatch):
    from transductor.recurrence import BACKENDS, Backend

    right = BACKENDS["chunked"].states
    monkeypatch.setitem(BACKENDS, "broken", Backend("broken", lambda problem: 1.001 * right(problem)))
    result = invoke("bench", "scan", "--quick", "--output", str(tmp_path / "out"))
    assert result.exit_code == 1
    assert "broken is wrong at B=3" in result.output
    assert not (tmp_path / "out").exists()


def test_bench_model_compares_two_models(tmp_path):
    result = invoke("bench", "model", "--quick", "--device", "cpu", "--output", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert "the head adds" in result.output
    assert list(read_record(tmp_path / "model_training_cpu.json").measurements["models"]) == list(MODELS)
    assert len(read_record(tmp_path / "model_decoding_cpu.json").measurements["cells"]) == 2


def test_an_interrupted_model_benchmark_writes_nothing(tmp_path, monkeypatch):
    import transductor.bench

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(transductor.bench, "run_model_cost", interrupted)
    result = invoke("bench", "model", "--quick", "--output", str(tmp_path / "out"))
    assert result.exit_code == 130
    assert "nothing was written" in result.output
    assert not (tmp_path / "out").exists()


def test_an_interrupted_scan_benchmark_keeps_what_it_measured(tmp_path, monkeypatch):
    import transductor.bench.latency as latency

    cell, seen = latency._Run.cell, []

    def interrupted(self, case, *arguments):
        seen.append(case)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return cell(self, case, *arguments)

    monkeypatch.setattr(latency._Run, "cell", interrupted)
    monkeypatch.setattr(latency, "_memory", lambda *_: {})  # measured in a process of its own, which takes seconds
    result = invoke("bench", "scan", "--quick", "--only", "lengths", "--device", "cpu", "--output", str(tmp_path))
    assert result.exit_code == 130
    assert "what was measured is in" in result.output
    assert len(read_record(tmp_path / "scan_cpu.json").measurements["lengths"]) == 1


def test_bench_options_are_refused_by_name():
    for arguments, words in (
        (("bench", "scan", "--only", "colours"), "lengths, shapes"),
        (("bench", "model", "--only", "colours"), "training, decoding"),
        (("bench", "scan", "--device", "abacus"), "auto, cpu or cuda"),
        (("bench", "model", "--device", "abacus"), "auto, cpu or cuda"),
    ):
        result = invoke(*arguments)
        assert result.exit_code == 2
        assert words in result.output


def test_help_of_the_benchmarks_is_quick():
    code = """
import sys
sys.argv = ["transductor", "bench", "scan", "--help"]
from transductor.cli import main
try:
    main()
except SystemExit:
    pass
assert not {"torch", "numpy", "matplotlib"} & set(sys.modules)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for option in ("--device", "--quick", "--output", "--only"):
        assert option in result


@pytest.mark.slow
def test_the_demo_shows_what_the_readme_says(tmp_path):
    assert invoke("demo", "--out", str(tmp_path)).exit_code == 0
    models = read_record(tmp_path / "record.json").measurements["models"]
    (transductor,), (transformer,) = (models[name]["runs"] for name in ("transductor", "transformer"))
    assert [entry["every_position"] for entry in transductor["lengths"]] == [1.0] * 4
    assert transformer["lengths"][0]["every_position"] > 0.9
    assert 0.15 < transformer["lengths"][-1]["beyond"] < 0.25


def commands_below(command, name=""):
    """Every command that does something, with its name."""
    for part, below in getattr(command, "commands", {}).items():
        yield from commands_below(below, f"{name} {part}".strip())
    if not hasattr(command, "commands"):
        yield name, command


@pytest.mark.parametrize(("name", "command"), list(commands_below(typer.main.get_command(app))))
def test_o_means_output_in_every_command(name, command):
    named = {option for each in command.params for option in each.opts if option in ("-o", "--output")}
    assert named in (set(), {"-o", "--output"})
    for each in command.params:
        assert "-o" not in each.opts or "--output" in each.opts
