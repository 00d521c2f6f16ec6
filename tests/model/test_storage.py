"""Checkpoints: whole, or refused with a reason; never half."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest
import torch

from tests.laws.test_models import V, backbone, tokens_head
from transductor.heads import UniversalHead
from transductor.model import CheckpointError, RationalTransductor, load, save


@pytest.fixture
def checkpoint(tmp_path):
    return save(RationalTransductor(tokens_head(), backbone()), tmp_path / "checkpoint")


def weights_of(folder):
    return folder / json.loads((folder / "config.json").read_text())["weights"]


def edited(folder, **fields):
    manifest = json.loads((folder / "config.json").read_text())
    manifest.update(fields)
    (folder / "config.json").write_text(json.dumps({k: v for k, v in manifest.items() if v is not ...}))


def truncate(folder):
    file = weights_of(folder)
    file.write_bytes(file.read_bytes()[:-100])


def flip_a_byte(folder):
    data = bytearray(weights_of(folder).read_bytes())
    data[-3] ^= 1
    weights_of(folder).write_bytes(bytes(data))


def other_family(folder):
    manifest = json.loads((folder / "config.json").read_text())
    manifest["config"]["head"]["transitions"]["family"] = "celery"
    (folder / "config.json").write_text(json.dumps(manifest))


def other_width(folder):
    manifest = json.loads((folder / "config.json").read_text())
    manifest["config"]["backbone"]["width"] = 32
    (folder / "config.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (truncate, "truncated or altered"),
        (flip_a_byte, "truncated or altered"),
        (lambda folder: weights_of(folder).unlink(), "cannot be read: No such file"),
        (lambda folder: (folder / "config.json").unlink(), "is .* a checkpoint"),
        (lambda folder: (folder / "config.json").write_text('{"format": '), "is not JSON"),
        (lambda folder: (folder / "config.json").write_bytes(b"\xff\xfe\x00"), "is not JSON"),
        (lambda folder: (folder / "config.json").write_text("[]"), 'must say "format"'),
        (lambda folder: edited(folder, version=99), "has version 99; this release reads 1"),
        (lambda folder: edited(folder, sha256=...), "lacks the field 'sha256'"),
        (lambda folder: edited(folder, weights="../x"), "name of a file beside it"),
        (lambda folder: edited(folder, config={"kind": "Nonsense"}), "kind must be one of"),
        (lambda folder: edited(folder, config=[]), "configuration of a model or a head"),
        (other_family, "family must be one of 'dense'"),
        (other_width, "does not fit its config.json"),
    ],
)
def test_damage_is_refused_with_its_reason(checkpoint, damage, words):
    damage(checkpoint)
    with pytest.raises(CheckpointError, match=words):
        load(checkpoint)


def test_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="cannot be read"):
        load(tmp_path / "nowhere")


def test_saving_again_replaces_the_old_and_leaves_nothing_behind(checkpoint):
    model = RationalTransductor(tokens_head(), backbone())
    save(model, checkpoint)
    tokens = torch.randint(0, V, (2, 5))
    assert torch.equal(load(checkpoint)(tokens), model.eval()(tokens))
    assert len(list(checkpoint.iterdir())) == 2


def test_a_model_with_nan_is_not_written_over_a_good_one(checkpoint):
    model = load(checkpoint)
    before = weights_of(checkpoint).read_bytes()
    with torch.no_grad():
        model.backbone.readout.bias[0] = float("nan")
    with pytest.raises(ValueError, match=r"backbone\.readout\.bias has NaN"):
        save(model, checkpoint)
    assert weights_of(checkpoint).read_bytes() == before


def test_a_head_alone_can_be_saved(tmp_path):
    head = UniversalHead(vocab_size=3, orthogonal_dim=2, stochastic_dim=2)
    again = load(save(head, tmp_path / "head"))
    tokens = torch.randint(0, 3, (2, 5))
    assert isinstance(again, UniversalHead)
    assert torch.equal(again(tokens), head(tokens))


def test_precision_is_kept(tmp_path):
    model = RationalTransductor(tokens_head(), backbone()).double()
    assert load(save(model, tmp_path / "double")).backbone.readout.weight.dtype == torch.float64


def test_only_models_are_saved(tmp_path):
    with pytest.raises(TypeError, match="must be a transductor model or head; got Linear"):
        save(torch.nn.Linear(2, 2), tmp_path / "linear")
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="is a file; a checkpoint is a folder"):
        save(RationalTransductor(tokens_head(), backbone()), tmp_path / "file")


SAVE_FOREVER = """
import sys, torch
from transductor.model import load, save
model = load(sys.argv[1])
print("ready", flush=True)
while True:
    with torch.no_grad():
        model.backbone.readout.bias += 1
    save(model, sys.argv[1])
"""


def test_a_process_killed_while_saving_leaves_a_whole_checkpoint(checkpoint):
    for wait in (0.05, 0.11, 0.17):
        process = subprocess.Popen([sys.executable, "-c", SAVE_FOREVER, str(checkpoint)], stdout=subprocess.PIPE)
        assert process.stdout.readline() == b"ready\n"
        time.sleep(wait)
        process.kill()
        process.wait()
        process.stdout.close()
        bias = load(checkpoint).backbone.readout.bias
        # Every saved bias is the first one plus a whole number.
        steps = (bias - bias[0]) - (bias - bias[0]).round()
        assert torch.isfinite(bias).all()
        assert steps.shape == bias.shape
    assert os.listdir(checkpoint)
