"""The examples run, in miniature."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(*arguments: str) -> str:
    """What a script prints; one thread, because others run beside it."""
    found = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
    )
    assert found.returncode == 0, found.stderr[-2000:]
    return found.stdout


def test_every_example_is_run_here():
    here = Path(__file__).read_text()
    for script in EXAMPLES.glob("*.py"):
        assert f'"{script.name}"' in here


def test_a_file_of_your_own(tmp_path):
    words, labels = tmp_path / "words.txt", tmp_path / "labels.txt"
    words.write_text("a b\nb b a\n\na\n" * 10)
    labels.write_text("1\n1\n0\n1\n" * 10)
    told = run(
        str(EXAMPLES / "train_from_your_file.py"), str(words), str(labels), "--steps", "12",
        "--output", str(tmp_path / "model"),
    )  # fmt: skip
    assert "36 sequences, 5 tokens, 2 classes" in told
    assert (tmp_path / "model" / "config.json").exists()


def test_a_decoder(tmp_path):
    pytest.importorskip("transformers")
    told = run(str(EXAMPLES / "attach_to_a_decoder.py"), "--steps", "4", "--save", str(tmp_path / "sidecar"))
    assert "with a sidecar" in told.splitlines()[-2]
    assert list((tmp_path / "sidecar").glob("*.safetensors"))


def test_a_frozen_regular_expression():
    pytest.importorskip("transformers")
    told = run(str(EXAMPLES / "frozen_regex_sidecar.py"), "--steps", "2")
    assert told.strip().endswith("100.00% right")  # the head, which nobody trains


def test_several_processes(tmp_path):
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    script = [str(EXAMPLES / "train_with_torchrun.py"), "--steps", "4", "--output", str(tmp_path)]
    assert "2 processes" in run(*launch, *script)
    assert (tmp_path / "model" / "config.json").exists()
