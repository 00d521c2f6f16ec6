"""The examples run, in miniature."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.forks import run
from tests.ranks import finished, torchrun

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_every_example_is_run_here():
    here = Path(__file__).read_text()
    for script in EXAMPLES.glob("*.py"):
        assert f'"{script.name}"' in here


def test_a_file_of_your_own(tmp_path):
    words, labels = tmp_path / "words.txt", tmp_path / "labels.txt"
    words.write_text("a b\nb b a\n\na\n" * 10)
    labels.write_text("1\n1\n0\n1\n" * 10)
    script = str(EXAMPLES / "train_from_your_file.py")
    output = run(script, words, labels, "--steps", "12", "--output", tmp_path / "model", folder=tmp_path)
    assert "36 sequences, 5 tokens, 2 classes" in output
    assert (tmp_path / "model" / "config.json").exists()


def test_a_decoder(tmp_path):
    pytest.importorskip("transformers")
    script = str(EXAMPLES / "attach_to_a_decoder.py")
    output = run(script, "--steps", "4", "--save", tmp_path / "sidecar", folder=tmp_path)
    assert "with a sidecar" in output.splitlines()[-2]
    assert list((tmp_path / "sidecar").glob("*.safetensors"))


def test_a_frozen_regular_expression(tmp_path):
    pytest.importorskip("transformers")
    output = run(str(EXAMPLES / "frozen_regex_sidecar.py"), "--steps", "2", folder=tmp_path)
    assert output.strip().endswith("100.00% right")  # the head, which is not trained


def test_several_processes(tmp_path):
    script = EXAMPLES / "train_with_torchrun.py"
    status, output = finished(torchrun(2, script, "--steps", "4", "--output", tmp_path))
    assert status == 0, output[-4000:]
    assert "2 processes" in output
    assert (tmp_path / "model" / "config.json").exists()
