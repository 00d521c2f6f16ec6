"""Checkpoints: whole, or refused with a reason; never half."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import signal
import subprocess
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import safetensors.torch
import torch

from tests.forks import environment, python
from tests.laws.test_models import V, backbone, tokens_head
from transductor.cli.models import described_data, write_data
from transductor.heads import RationalHead, UniversalHead
from transductor.model import CheckpointError, RationalReadout, RationalTransductor, load, save
from transductor.model.bundle import UnsealedCheckpointWarning
from transductor.model.storage import _BUNDLE, classes_of
from transductor.training import FileData, Vocabulary
from transductor.transitions import ChartedFamily, OrthogonalTransitions, PermutationTransitions


@pytest.fixture
def checkpoint(tmp_path):
    return save(RationalTransductor(tokens_head(), backbone()), tmp_path / "checkpoint")


def weights_of(folder):
    return folder / json.loads((folder / "config.json").read_text())["weights"]


def edited(folder, **fields):
    manifest = json.loads((folder / "config.json").read_text())
    del manifest["seal"]  # a forger makes a new one; what is tested is what is noticed besides
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
    config = plain(folder)
    config["head"]["transitions"]["family"] = "celery"
    edited(folder, config=config)


def plain(folder):
    return json.loads((folder / "config.json").read_text())["config"]


def universal_over_cayley(folder):
    config = plain(folder)
    config["head"]["head"] = "universal"
    edited(folder, config=config)


def other_width(folder):
    config = plain(folder)
    config["backbone"]["width"] = 32
    edited(folder, config=config)


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
        (lambda folder: edited(folder, version=True), "has version True"),
        (lambda folder: edited(folder, weights="a\0b"), "name of a file beside it"),
        (lambda folder: edited(folder, config={"kind": []}), "kind must be one of"),
        (lambda folder: edited(folder, frozen=5), "frozen must be a list of names of parameters"),
        (lambda folder: edited(folder, frozen="weight"), "frozen must be a list of names of parameters"),
        (lambda folder: edited(folder, frozen=["weight"]), "frozen must be a list of names of parameters"),
        (lambda folder: (folder / "config.json").write_text("[" * 100_000), "nested too deeply"),
        (lambda folder: (folder / "config.json").write_text("1" * 5_000), "is not JSON"),
        (lambda folder: (folder / "config.json").write_text('{"a": 1, "a": 2}'), "twice"),
    ],
)
def test_damage_is_refused_with_its_reason(checkpoint, damage, words):
    damage(checkpoint)
    with pytest.raises(CheckpointError, match=words):
        load(checkpoint)


def altered(value):
    """Every configuration in which one number, text or truth of this one is another."""
    match value:
        case dict() | list():
            for key, part in list(value.items() if isinstance(value, dict) else enumerate(value)):
                for other in altered(part):
                    copied = copy.copy(value)
                    copied[key] = other
                    yield copied
        case bool():
            yield not value
        case int() | float():
            yield value + 1
        case str():
            yield value + "x"


def test_nothing_of_the_manifest_can_be_altered(checkpoint):
    """Also what leaves a model that can be built: another window, another temperature."""
    manifest = json.loads((checkpoint / "config.json").read_text())
    others = list(altered(manifest))
    assert len(others) > 20
    for other in others:
        (checkpoint / "config.json").write_text(json.dumps(other))
        with pytest.raises(CheckpointError):
            load(checkpoint)


def test_a_checkpoint_without_a_seal_says_so(checkpoint):
    edited(checkpoint)
    with pytest.warns(UnsealedCheckpointWarning, match="config.json is not sealed"):
        model = load(checkpoint)
    save(model, checkpoint)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load(checkpoint)


@pytest.mark.parametrize(("field", "size"), [("width", 200_000), ("layers", 1_000_000), ("feedforward", 10**9)])
def test_a_small_file_does_not_ask_for_much(checkpoint, field, size):
    """The sizes are compared with the weights before anything is made of them."""
    config = plain(checkpoint)
    config["backbone"][field] = size
    edited(checkpoint, config=config)
    began = time.perf_counter()
    with pytest.raises(CheckpointError):
        load(checkpoint)
    assert time.perf_counter() - began < 5


def test_parts_that_no_tensor_belongs_to_are_not_made(tmp_path):
    """A hundred thousand parts took half a minute."""
    head = UniversalHead(vocab_size=3, orthogonal_dim=2, stochastic_dim=2)
    save(head, tmp_path)
    config = plain(tmp_path)
    config["transitions"]["parts"] = config["transitions"]["parts"][:1] * 100_000
    edited(tmp_path, config=config)
    with pytest.raises(CheckpointError, match="parts is 100000, and the weights have room for"):
        load(tmp_path)


def test_weights_that_are_no_numbers_are_refused_unless_asked_for(checkpoint):
    file = weights_of(checkpoint)
    tensors = safetensors.torch.load_file(file)
    tensors["backbone.readout.bias"][0] = float("nan")
    safetensors.torch.save_file(tensors, file)
    edited(checkpoint, sha256=hashlib.sha256(file.read_bytes()).hexdigest())
    with pytest.raises(CheckpointError, match=r"backbone\.readout\.bias has NaN or infinity"):
        load(checkpoint)
    assert load(checkpoint, finite=False).backbone.readout.bias.isnan().any()


def test_saving_removes_only_what_saving_wrote(checkpoint):
    precious = checkpoint / "precious.txt"
    precious.write_text("precious")
    edited(checkpoint, weights="precious.txt")
    save(RationalTransductor(tokens_head(), backbone()), checkpoint)
    assert precious.read_text() == "precious"
    load(checkpoint)


@pytest.mark.parametrize("name", ["config.json", "weights"])
def test_a_pipe_is_not_waited_for(checkpoint, name):
    file = weights_of(checkpoint) if name == "weights" else checkpoint / name
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(CheckpointError, match="not a regular file"):
        load(checkpoint)


def test_reading_beside_a_process_that_saves(checkpoint):
    """A reader sees the old model or the new one, though the weights of the old one are removed."""
    models = [load(checkpoint), RationalTransductor(tokens_head(), backbone())]
    stop = threading.Event()

    def saving():
        while not stop.is_set():
            for model in models:
                save(model, checkpoint)

    writer = threading.Thread(target=saving)
    writer.start()
    try:
        for _ in range(100):
            _BUNDLE.read(checkpoint)
    finally:
        stop.set()
        writer.join()


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
    (checkpoint / ".config.json.abcd1234.unfinished").write_text("half")
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


def test_names_of_classes_are_under_the_seal(tmp_path):
    """A class name in the description of the data cannot be altered any more than a weight."""
    vocabulary = Vocabulary(("<start>", "<end>", "<unknown>", "a", "b"), ("no", "yes"))
    data = FileData("recognition", "words.txt", vocabulary=vocabulary, sha256="0" * 64)
    model = RationalReadout(RationalHead(OrthogonalTransitions(vocab_size=5, state_dim=2)), 2)
    save(model, tmp_path, letters=vocabulary.tokens, classes=vocabulary.classes)
    assert classes_of(tmp_path) == ("no", "yes")
    write_data(data, tmp_path)
    assert described_data(tmp_path) == data
    write_data(replace(data, vocabulary=replace(vocabulary, classes=("yes", "no"))), tmp_path)
    with pytest.raises(ValueError, match=r"names other classes than config\.json"):
        described_data(tmp_path)


@pytest.mark.parametrize(("start", "size"), [(b"", 2**34), (b"\x00" * 8, 2**34), ((2**40).to_bytes(8, "little"), 100)])
def test_a_file_that_promises_more_than_it_holds_is_not_read(checkpoint, start, size):
    file = weights_of(checkpoint)
    file.write_bytes(start)
    os.truncate(file, size)  # sparse: sixteen gigabytes that take no room
    with pytest.raises(CheckpointError, match="truncated or altered: "):
        load(checkpoint)


def test_a_field_that_is_not_known_is_refused(checkpoint):
    edited(checkpoint, meaning="another")
    with pytest.raises(CheckpointError, match="has the field 'meaning', which this release does not know"):
        load(checkpoint)


def test_permutations_beside_others_are_refused(tmp_path):
    """They are in the configuration and in the weights, and must be the same."""
    save(RationalReadout(RationalHead(PermutationTransitions(permutations=[[0, 1], [1, 0]])), 2), tmp_path)
    edited(tmp_path, config=json.loads(json.dumps(plain(tmp_path)).replace("[1, 0]", "[0, 1]")))
    with pytest.raises(CheckpointError, match="those of another configuration"):
        load(tmp_path)
