"""Checkpoints: whole, or refused with a reason; never half."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from tests.forks import environment, python
from tests.laws.test_models import V, backbone, tokens_head
from transductor.heads import RationalHead, UniversalHead
from transductor.model import CheckpointError, RationalTransductor, load, save
from transductor.transitions import ChartedFamily


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


def plain(folder):
    return json.loads((folder / "config.json").read_text())["config"]


def universal_over_cayley(folder):
    config = plain(folder)
    config["head"]["head"] = "universal"
    edited(folder, config=config)


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
        (lambda folder: edited(folder, config={**plain(folder), "head": 5}), "does not describe a model"),
        (lambda folder: edited(folder, config={**plain(folder), "backbone": None}), "does not describe a model"),
        (universal_over_cayley, "universal head is a direct sum"),
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


def test_precision_is_kept_tensor_by_tensor(tmp_path):
    model = RationalTransductor(tokens_head(), backbone()).double()
    assert load(save(model, tmp_path / "double")).backbone.readout.weight.dtype == torch.float64
    model.rational_head.bfloat16()
    model.backbone.float()
    again = load(save(model, tmp_path / "mixed"))
    for (name, value), (_, other) in zip(model.state_dict().items(), again.state_dict().items(), strict=True):
        assert value.dtype == other.dtype, name
        assert torch.equal(value, other), name


def test_frozen_parts_stay_frozen(tmp_path):
    model = RationalTransductor(tokens_head(), backbone())
    model.rational_head.requires_grad_(False)
    again = load(save(model, tmp_path / "frozen"))
    assert [p.requires_grad for p in again.parameters()] == [p.requires_grad for p in model.parameters()]
    assert not any(p.requires_grad for p in again.rational_head.parameters())


def test_files_of_others_are_left_alone(tmp_path):
    shard = tmp_path / "model-00001-of-00002.safetensors"
    shard.write_bytes(b"precious")
    save(tokens_head(), tmp_path)
    save(tokens_head(), tmp_path)
    assert shard.read_bytes() == b"precious"
    (tmp_path / "config.json").write_text('{"architectures": ["GPT2"]}')
    with pytest.raises(CheckpointError, match="not a complete checkpoint"):
        save(tokens_head(), tmp_path)
    assert "GPT2" in (tmp_path / "config.json").read_text()


def test_what_could_not_be_loaded_is_not_saved(tmp_path):
    class Unlisted(ChartedFamily):
        name = "unlisted"

        def origin(self):
            return torch.zeros(1)

        def chart(self, raw):
            return raw[..., None]

        def laws(self):
            return ()

    with pytest.raises(ValueError, match="family must be one of"):
        save(RationalHead(Unlisted(state_dim=1, vocab_size=2)), tmp_path / "head")
    assert not (tmp_path / "head").exists()


def test_what_another_saver_has_just_finished_is_not_missed(checkpoint):
    """Ranks that save to one folder see each other's unfinished files, which are gone a moment later."""
    model, gone = load(checkpoint), checkpoint / ".config.json.gone"
    gone.symlink_to(checkpoint / "nowhere")  # listed, and not there when it is looked at
    save(model, checkpoint)
    gone.unlink()
    with ThreadPoolExecutor(4) as ranks:
        for saved in [ranks.submit(save, model, checkpoint) for _ in range(12)]:
            saved.result()
    assert len(list(checkpoint.iterdir())) == 2
    load(checkpoint)


def test_leftovers_of_a_killed_save_are_swept(checkpoint):
    left = checkpoint / ".config.json.abc123"
    left.write_text("half")
    os.utime(left, (0, 0))
    save(load(checkpoint), checkpoint)
    assert len(list(checkpoint.iterdir())) == 2


def test_only_models_are_saved(tmp_path):
    with pytest.raises(TypeError, match="must be a transductor model or head; got Linear"):
        save(torch.nn.Linear(2, 2), tmp_path / "linear")
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="is a file; a checkpoint is a folder"):
        save(RationalTransductor(tokens_head(), backbone()), tmp_path / "file")


SAVE_FOREVER = """
import os, sys, torch
from transductor.model import load, save
model = load(sys.argv[1])
print(os.getpid(), flush=True)
while True:
    with torch.no_grad():
        model.backbone.readout.bias += 1
    save(model, sys.argv[1])
"""


def test_a_process_killed_while_saving_leaves_a_whole_checkpoint(checkpoint):
    first = load(checkpoint).backbone.readout.bias
    for wait in (0.05, 0.11, 0.17):
        command = [*python(), "-c", SAVE_FOREVER, str(checkpoint)]
        with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE) as process:
            program = int(process.stdout.readline())
            time.sleep(wait)
            os.kill(program, signal.SIGKILL)
            assert process.wait() == -signal.SIGKILL
        found = load(checkpoint).backbone.readout.bias
        # What was saved is the first bias plus a whole number of steps, the same for every entry.
        steps = found - first
        assert torch.allclose(steps, steps[0].round().expand_as(steps), atol=1e-3)
