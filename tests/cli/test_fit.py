"""fit: from a file to a machine and a proof, on a shell."""

from __future__ import annotations

import json
import random
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.learning.data_files import example_module, parity_rows, written
from transductor.cli import app
from transductor.cli.fit import seconds_of

PAGES = Path(__file__).parents[2] / "docs" / "examples"


def invoke(*arguments, given=None):
    return CliRunner().invoke(app, list(map(str, arguments)), input=given, env={"COLUMNS": "200"})


def test_from_a_file_to_a_proof_and_a_report(tmp_path):
    """A fit with networks, its report, and every command that takes its folder."""
    data, run = written(tmp_path, parity_rows(300)), tmp_path / "run"
    fitted = ("fit", data, "-o", run, "--budget", "2s", "--recipes", "dense,lstm")
    result = invoke(*fitted)
    assert result.exit_code == 0, result.output
    assert "goal: recognition (guessed" in result.output
    assert "was chosen" in result.output
    assert "A machine with 2 states gives 300 of 300 labels" in result.output
    for name in ("machine.json", "machine.svg", "certificate.json.gz", "record.json", "report.md", "report.html"):
        assert (run / name).exists(), name
    page = (run / "report.html").read_text()
    assert page.count("<svg") == 2
    assert "src=" not in page
    assert "href=" not in page.replace("xlink:href=", "")
    report = (run / "report.md").read_text()
    assert "![The machine: 2 states over 2 words](machine.svg)" in report
    assert "| always " in report
    assert "**dense**" in report
    assert invoke("predict", run, given="a b a\n\na\n").stdout.split() == ["even", "even", "odd"]
    assert "100.00% of 300 labels right" in invoke("evaluate", run, "--data", data).output
    checked = invoke("certify", "--check", run / "certificate.json.gz", "--model", run / "model")
    assert checked.exit_code == 0, checked.output
    before = json.loads((run / "recipes" / "dense" / "outcome.json").read_text())
    again = invoke(*fitted)
    assert again.exit_code == 0
    assert json.loads((run / "recipes" / "dense" / "outcome.json").read_text()) == before


def test_no_machine_is_status_one_with_advice_and_a_model(tmp_path):
    draw = random.Random(0)
    rows = [{**row, "label": draw.choice(["yes", "no"])} for row in parity_rows(150)]
    run = tmp_path / "run"
    result = invoke("fit", written(tmp_path, rows), "-o", run, "--budget", "1s", "--recipes", "dense")
    assert result.exit_code == 1, result.output
    assert "No machine is claimed" in result.output
    assert "Give more" in result.output
    assert "## What to do" in (run / "report.md").read_text()
    assert not (run / "machine.json").exists()
    assert len(invoke("predict", run, given="a b\n").stdout.split()) == 1


def test_numbers_are_status_three_with_an_automaton_and_a_length(tmp_path):
    rows = [{**row, "label": row["tokens"].count("a") + 0.25} for row in parity_rows(150)]
    result = invoke("fit", written(tmp_path, rows), "-o", tmp_path / "run", "--recipes", "none", "--budget", "5s")
    assert result.exit_code == 3, result.output
    assert "goal: regression" in result.output
    assert "A weighted automaton with 2 states and exact weights has exactly the number" in result.output
    assert "## The weighted automaton" in (tmp_path / "run" / "report.md").read_text()
    assert invoke("predict", tmp_path / "run", given="a b a\n").stdout.split() == ["2.25"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("data.jsonl", "--budget", "soon"), "--budget must be a time such as 90s, 3m or 1h; got 'soon'"),
        (("data.jsonl", "--recipes", "gru"), "recipes must be one of"),
        (("data.jsonl", "--goal", "guessing"), "goal must be one of"),
        (("nowhere.txt", "--labels", "labels.txt"), "nowhere.txt cannot be read"),
        (("empty.jsonl",), "empty.jsonl holds no sequences"),
        (("other.jsonl",), "--text-column must name one of the fields 'events', 'light'"),
        (("other.jsonl", "--text-column", "events"), "--label-column must name their column"),
        (("one.jsonl",), "at least 10 sequences"),
        (("same.jsonl",), "at least two classes"),
        (("some.jsonl",), "some.jsonl:2"),
        (("data.jsonl", "-o", "data.jsonl"), "data.jsonl"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, parity_rows(50))
    written(tmp_path, [], "empty.jsonl")
    written(tmp_path, [{"events": "a b", "light": "on"}], "other.jsonl")
    written(tmp_path, parity_rows(1), "one.jsonl")
    written(tmp_path, [{"tokens": ["a"] * n, "label": "x"} for n in range(20)], "same.jsonl")
    written(tmp_path, [{"tokens": ["a"], "label": "x"}, {"tokens": ["a"]}, *parity_rows(20)], "some.jsonl")
    result = invoke("fit", *arguments)
    assert result.exit_code == 2, result.output
    lines = [line for line in result.stderr.splitlines() if line]
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    assert message in lines[0]


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("3m", 180), ("1.5h", 5400)])
def test_budgets_are_read(text, seconds):
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("name", ["doors", "vending", "tcp", "editor"])
def test_the_examples_in_miniature(tmp_path, name, monkeypatch):
    """Each example from its file to its certificate, by the command of its page."""
    made = example_module()
    made.make(tmp_path / "data", [name], count=200 if name == "vending" else None)
    monkeypatch.chdir(tmp_path)
    (line,) = re.findall(r"^\$ transductor (fit .+)$", (PAGES / f"{name}.md").read_text(), re.MULTILINE)
    result = invoke(*shlex.split(line), "--budget", "60s")
    assert result.exit_code == 0, result.output
    states = len(getattr(made, name.upper()).moves)
    assert f"A machine with {states} states" in result.output
