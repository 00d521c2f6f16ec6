"""train, evaluate, predict: your own data on a shell."""

from __future__ import annotations

import random

import pytest
from typer.testing import CliRunner

from transductor.cli import app

SMALL = ("--width", "32", "--layers", "1", "--state-dim", "8", "--attention-heads", "2", "--batch-size", "32")


def invoke(*arguments, given=None):
    return CliRunner().invoke(app, list(map(str, arguments)), input=given, env={"COLUMNS": "200"})


@pytest.fixture
def files(tmp_path):
    """Words over a, b, and whether the number of a's is odd."""
    drawn = random.Random(0)
    rows = [[drawn.choice("ab") for _ in range(drawn.randint(0, 12))] for _ in range(300)]
    (tmp_path / "x.txt").write_text("\n".join(map(" ".join, rows)) + "\n")
    (tmp_path / "y.txt").write_text("\n".join("odd" if row.count("a") % 2 else "even" for row in rows) + "\n")
    return tmp_path


def test_train_evaluate_predict(files):
    trained = ("train", files / "run", "--data", files / "x.txt", "--labels", files / "y.txt", "--steps", 300, *SMALL)
    result = invoke(*trained)
    assert result.exit_code == 0, result.output
    assert "validation (" in result.output
    model = files / "run" / "model"
    judged = invoke("evaluate", files / "run", "--data", files / "x.txt", "--labels", files / "y.txt")
    assert "of 300 labels right" in judged.output
    assert float(judged.output.split("%")[0]) > 95
    answers = invoke("predict", model, given="a b a\n\na\nb a b z\n").stdout.split()
    assert answers[:3] == ["even", "even", "odd"]
    assert len(answers) == 4
    again = invoke(*trained)  # finished: nothing is trained again
    assert "going on from step 300" in again.output
    other = invoke(*trained[:-1], 16)
    assert other.exit_code == 2
    assert "holds another run: its settings differ" in other.output


@pytest.mark.parametrize("name", ["transformer", "lstm", "linear_rnn"])
def test_other_models_and_next_tokens(files, name):
    out = files / name
    result = invoke(
        "train", out, "--data", files / "x.txt", "--goal", "next_token", "--model", name, "--steps", 3, *SMALL
    )
    assert "perplexity" in result.output
    assert invoke("predict", out / "model", given="a b\n").output.strip() in {"a", "b", "<end>", "<start>", "<unknown>"}


def test_a_task_by_name(files):
    for name in ("group:S3", "value", "parity"):
        result = invoke("train", files / name.replace(":", "_"), "--task", name, "--steps", 3, "--length", 8, *SMALL)
        assert result.exit_code == 0, result.output
    refused = invoke("predict", files / "parity" / "model", given="a\n")
    assert refused.exit_code == 2
    assert "not trained with --data" in refused.output


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ("one of --data and --task must be given", ()),
        ("backgammon", ("--task", "backgammon")),
        ("cannot be read", ("--data", "nowhere.txt", "--goal", "next_token")),
        ("goal must be one of", ("--data", "x", "--goal", "poetry")),
        ("--model must be one of", ("--task", "parity", "--model", "oracle")),
        ("--family must be one of", ("--task", "parity", "--family", "royal")),
    ],
)
def test_a_wrong_line_is_answered_in_one_line(tmp_path, words, arguments):
    result = invoke("train", tmp_path / "run", *arguments)
    assert result.exit_code == 2
    assert words in result.output
    assert not (tmp_path / "run").exists()
