"""A run killed at any moment goes on from its last checkpoint and ends as if nothing had happened."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import replace

import pytest
import torch

from tests.forks import environment, python, run
from tests.training.test_training import TASK, model
from transductor.heads import UniversalHead
from transductor.model import BackboneConfig, CheckpointError, RationalTransductor
from transductor.training import Annealing, Curriculum, Trainer, TrainingError, TrainingSettings

SETTINGS = TrainingSettings(steps=12, length=9, batch_size=4)
VARIANTS = {
    "plain": SETTINGS,
    "adam": replace(SETTINGS, optimiser="adam", schedule="linear", warmup=3, clipping="per_tensor"),
    "curriculum": replace(SETTINGS, curriculum=Curriculum(start=2, threshold=0.01), shortest=1),
    "double": replace(SETTINGS, double=True, head_learning_rate=1e-3, schedule="constant", clipping="none"),
}


def weights(trainer):
    return {name: value.clone() for name, value in trainer.model.state_dict().items()}


def assert_identical(first, second):
    assert first.points == second.points
    assert first.length == second.length
    left, right = weights(first), weights(second)
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("stop", [1, 5, 11, 12])
def test_a_resumed_run_ends_bit_identical(tmp_path, name, stop):
    whole = Trainer(model(), TASK, VARIANTS[name])
    whole.run()
    part = Trainer(model(), TASK, VARIANTS[name])
    for _ in range(stop):
        part.advance()
    part.save(tmp_path)
    del part
    torch.manual_seed(999)  # another process has other random numbers
    resumed = Trainer.resumed(tmp_path)
    assert resumed.step == stop
    resumed.run()
    assert_identical(resumed, whole)
    assert not resumed.model.training


def test_dropout_goes_on_where_it_was(tmp_path):
    """Random numbers of the model itself are part of the state."""
    torch.manual_seed(3)
    first = Trainer(model(), TASK, SETTINGS)
    first.advance()
    torch.rand(7)
    first.save(tmp_path)
    expected = torch.rand(3)
    Trainer.resumed(tmp_path)
    assert torch.equal(torch.rand(3), expected)


def test_a_stochastic_head_is_annealed_and_resumes(tmp_path):
    def build():
        torch.manual_seed(0)
        head = UniversalHead(vocab_size=2, orthogonal_dim=4, stochastic_dim=3)
        return RationalTransductor(head, BackboneConfig(vocab_size=2, output_size=3, width=16, layers=1))

    settings = replace(SETTINGS, annealing=Annealing(1.0, 0.1))
    whole = Trainer(build(), TASK, settings)
    whole.run()
    temperatures = [m.temperature for m in whole.model.modules() if hasattr(m, "temperature")]
    assert temperatures == [pytest.approx(0.1)]
    part = Trainer(build(), TASK, settings)
    for _ in range(6):
        part.advance()
    part.save(tmp_path)
    resumed = Trainer.resumed(tmp_path)
    resumed.run()
    assert_identical(resumed, whole)


# Every line of the input is a run in a fork of this process, which has imported everything: it prints the fork's
# number when the training begins, and its exit status when it has ended.
KILLED = """
import os, sys
from pathlib import Path
import torch._dynamo  # otherwise every fork imports it at its first step
from tests.training.test_resuming import LONG
from tests.training.test_training import TASK, model
from transductor.training import Trainer
folder = Path(sys.argv[1])
for _ in sys.stdin:
    child = os.fork()
    if child == 0:
        trainer = Trainer.resumed(folder) if (folder / "training.json").exists() else Trainer(model(), TASK, LONG)
        print(os.getpid(), flush=True)
        trainer.run(folder=folder, checkpoint_every=1)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
LONG = replace(SETTINGS, steps=120)


def test_sigkill_at_any_moment_loses_nothing(tmp_path):
    """Checkpoints are written at every step, so most kills fall into a write."""
    whole = Trainer(model(), TASK, LONG)
    whole.run()
    moments = random.Random(0)
    command = [*python(), "-c", KILLED, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    kills = 0
    with subprocess.Popen(command, **pipes, env=environment(), text=True, bufsize=1) as process:
        for _ in range(6):
            process.stdin.write("run\n")
            child = int(process.stdout.readline())
            time.sleep(moments.uniform(0.02, 0.25))
            with suppress(ProcessLookupError):  # it was done before
                os.kill(child, signal.SIGKILL)
            kills += int(process.stdout.readline()) == -signal.SIGKILL
            if (tmp_path / "training.json").exists() and Trainer.resumed(tmp_path).finished:
                break
        else:
            process.stdin.write("run\n")
            process.stdout.readline()
            assert int(process.stdout.readline()) == 0
    assert process.returncode == 0
    assert kills >= 1
    resumed = Trainer.resumed(tmp_path)
    resumed.run()
    assert_identical(resumed, whole)


FULL = """
import resource, sys, torch
from tests.training.test_resuming import SETTINGS
from tests.training.test_training import TASK, model
from transductor.training import Trainer, TrainingError
import signal
trainer = Trainer(model(), TASK, SETTINGS)
trainer.advance()
trainer.save(sys.argv[1])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
trainer.advance()
try:
    trainer.save(sys.argv[1])
except TrainingError as error:
    print(error)
"""


def test_a_full_disk_is_said_and_the_old_state_stays(tmp_path):
    shown = run("-c", FULL, tmp_path, folder=tmp_path)
    assert "the state of step 2 cannot be written" in shown
    assert "what was there is intact" in shown
    assert Trainer.resumed(tmp_path).step == 1
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 2000


@pytest.mark.parametrize("damage", ["truncate", "flip", "remove", "manifest", "step", "foreign"])
def test_damage_is_named_and_nothing_partial_is_used(tmp_path, damage):
    trainer = Trainer(model(), TASK, SETTINGS)
    trainer.advance()
    trainer.save(tmp_path)
    manifest = tmp_path / "training.json"
    state = next(tmp_path.glob("state-*.safetensors"))
    data, text = bytearray(state.read_bytes()), json.loads(manifest.read_text())
    del text["seal"]  # which would notice any change
    words = "truncated or altered"
    if damage == "truncate":
        state.write_bytes(data[:-10])
    elif damage == "flip":
        data[len(data) // 2] ^= 1
        state.write_bytes(data)
    elif damage == "remove":
        state.unlink()
        words = "cannot be read"
    elif damage == "manifest":
        manifest.write_text(manifest.read_text()[:40])
        words = "not JSON"
    elif damage == "step":
        manifest.write_text(json.dumps({**text, "step": 7}))
        words = "the history has 1 steps, the manifest says 7"
    else:
        manifest.write_text(json.dumps({**text, "format": "somebody else's"}))
        words = "must say"
    with pytest.raises(CheckpointError, match=words):
        Trainer.resumed(tmp_path)


def test_an_exploding_loss_stops_and_keeps_the_last_checkpoint(tmp_path):
    trainer = Trainer(model(), TASK, replace(SETTINGS, explosion=1.5))
    trainer.advance()
    trainer.save(tmp_path)
    with torch.no_grad():
        trainer.model.backbone.readout.bias.copy_(torch.tensor([0.0, 0.0, 1e4]))
    with pytest.raises(TrainingError, match="times what it was at first"):
        trainer.advance()
    assert Trainer.resumed(tmp_path).step == 1


def test_schedules():
    rates = {
        name: [replace(SETTINGS, schedule=name, warmup=2).rate_factor(step) for step in range(13)]
        for name in ("cosine", "linear", "constant")
    }
    for values in rates.values():
        assert values[:3] == [pytest.approx(1 / 3), pytest.approx(2 / 3), pytest.approx(1.0)]
    assert rates["cosine"][12] == pytest.approx(0) == rates["linear"][12]
    assert rates["constant"][12] == 1
    assert rates["linear"][7] == pytest.approx(0.5) == rates["cosine"][7]


def test_a_curriculum_grows_only_when_a_batch_is_right():
    trainer = Trainer(model(), TASK, replace(SETTINGS, curriculum=Curriculum(start=2, threshold=1.0)))
    lengths = []
    for _ in range(6):
        before = trainer.length
        point = trainer.advance()
        lengths.append((before, trainer.length, point.accuracy))
    assert all(after == (min(9, 2 * before) if accuracy >= 1 else before) for before, after, accuracy in lengths)
    assert Curriculum(factor=1.1).longer(4, 100) == 5
    assert Curriculum().longer(60, 100) == 100


@pytest.mark.parametrize(
    ("words", "change"),
    [
        ("one of 'adamw', 'adam'", {"optimiser": "sgd"}),
        ("one of 'cosine'", {"schedule": "steps"}),
        ("one of 'global'", {"clipping": "hard"}),
        ("warmup must be an integer from 0", {"warmup": 13}),
        ("head_learning_rate must be a positive", {"head_learning_rate": 0.0}),
        ("curriculum must start at length = 9", {"curriculum": Curriculum(start=10)}),
    ],
)
def test_bad_settings_are_refused_by_name(words, change):
    with pytest.raises(ValueError, match=words):
        replace(SETTINGS, **change)


def test_bad_curricula_and_annealings_are_refused():
    for act in (
        lambda: Curriculum(start=0),
        lambda: Curriculum(factor=1.0),
        lambda: Curriculum(threshold=0.0),
        lambda: Annealing(end=0.0),
    ):
        with pytest.raises(ValueError, match="must"):
            act()
