"""Runs of a study that are killed, or find the disk full: nothing written is lost, and the end is the same."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import time
from dataclasses import replace

import pytest
import torch

from tests.forks import environment, python
from tests.studies.miniatures import (
    ANNEALED,
    COUNTED,
    OFTEN,
    PLAIN,
    STUDY,
    TRAINING,
    contents,
    findings,
    measured,
)
from transductor import results
from transductor.results import read_record
from transductor.studies import Study, reproduce, run_arm, running
from transductor.studies.running import DamagedRecordWarning, record_path
from transductor.training import TrainingError

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="torch cannot train in a fork of a process whose autograd has begun to use a GPU"
)

HALF_WRITTEN = re.compile(r"/\.[^/]*$")  # what a file is called until it is whole
# One record is there already; the other run is the one that is killed.
VICTIM = Study("miniature", "Does it run?", (PLAIN, ANNEALED), (0,))


@pytest.fixture(autouse=True)
def checkpoints_often(monkeypatch):
    monkeypatch.setattr(running, "_CHECKPOINT_EVERY", OFTEN)


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """What the study finds when nothing happens."""
    folder = tmp_path_factory.mktemp("whole")
    reproduce([VICTIM], folder)
    return findings(folder, VICTIM)


@pytest.fixture(scope="module")
def half_done(tmp_path_factory):
    """A folder in which the first arm is done."""
    folder = tmp_path_factory.mktemp("half")
    run_arm(VICTIM, PLAIN, (0,), folder)
    return folder


def check_whole(folder, half_done):
    """Every record can be read, and what was there before is what it was."""
    for path in folder.glob("miniature/*/seed*.json"):
        read_record(path)
    there = {name: data for name, (data, _) in contents(folder).items()}
    before = {name: data for name, (data, _) in contents(half_done).items()}
    assert before.items() <= there.items()


# The study in another process, forked for every line: what shall happen to it, when, and where its folder is.
TROUBLE = """
import os, resource, signal, sys
from tests.studies.miniatures import OFTEN
from tests.studies.test_study_kills import VICTIM
from transductor.studies import reproduce, running

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def killed_at_step(number):
    advance = running.Trainer.advance
    def advanced(self):
        if self.step == number:
            die()
        return advance(self)
    running.Trainer.advance = advanced

def killed_judging(_):
    running.judge_arm = lambda *_, **__: die()

def killed_at(name, number, after):
    real, calls = getattr(os, name), []
    def called(*arguments):
        calls.append(arguments)
        if len(calls) == number and not after:
            die()
        result = real(*arguments)
        if len(calls) == number and after:
            die()
        return result
    setattr(os, name, called)

def limited_from(owner, name, limit):
    real = getattr(owner, name)
    def limited(*arguments, **options):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        return real(*arguments, **options)
    setattr(owner, name, limited)

trouble = {
    "killed at step": killed_at_step,
    "killed judging": killed_judging,
    "killed at flush": lambda number: killed_at("fsync", number, False),
    "killed before rename": lambda number: killed_at("replace", number, False),
    "killed after rename": lambda number: killed_at("replace", number, True),
    "small files from the start": lambda limit: limited_from(running.Trainer, "advance", limit),
    "small files from the model on": lambda limit: limited_from(running, "save", limit),
    "small files after training": lambda limit: limited_from(running, "judge_arm", limit),
}
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
running._CHECKPOINT_EVERY = OFTEN
reproduce([VICTIM], sys.argv[1])  # what is made at the first call is made once, for all children
for line in sys.stdin.read().splitlines():
    what, number, folder = line.split("|")
    child = os.fork()
    if child == 0:
        trouble[what](int(number))
        try:
            reproduce([VICTIM], folder)
            print("done", flush=True)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", flush=True)
        os._exit(0)
    if status := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        print(status, flush=True)
"""
# States at 5, 10 and 12 steps, the model: two files each; its history; the record.
FILES = 3 * 2 + 2 + 1 + 1
DEATHS = [
    *(("killed at step", number) for number in (0, 3, 7, 11)),
    ("killed judging", 0),
    *((what, number) for what in ("killed before rename", "killed after rename") for number in range(1, FILES + 1)),
    *(("killed at flush", number) for number in (1, 4, 7, 9, 10)),
]
STATE = r"TrainingError: the state of step 5 cannot be written to .*/\.state/miniature/annealed/seed0-\w+: "
# How large files may be, and what is said then.
LIMITS = {
    ("small files from the start", 0): STATE,
    ("small files from the start", 5000): STATE,
    ("small files from the model on", 300): r"OSError: .*/models/miniature/annealed/seed0 cannot be written: ",
    ("small files from the model on", 1000): r"OSError: .*/models/miniature/annealed/seed0 cannot be written: ",
    ("small files after training", 3000): r"OSError: .*/miniature/annealed/seed0\.json cannot be written: ",
}
# One file more than there are, and room enough.
NOTHING = [("killed before rename", FILES + 1), ("small files from the start", 100_000)]


@pytest.fixture(scope="module")
def troubled(tmp_path_factory, half_done):
    """For every trouble what the process said, or how it died, and the folder it left."""
    folder = tmp_path_factory.mktemp("troubled")
    places = {trouble: folder / f"{number}" for number, trouble in enumerate((*DEATHS, *LIMITS, *NOTHING))}
    for place in places.values():
        shutil.copytree(half_done, place)
    ended = subprocess.run(
        [*python(), "-c", TROUBLE, str(folder / "warm")],
        env=environment(),
        input="\n".join(f"{what}|{number}|{place}" for (what, number), place in places.items()),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr
    said = ended.stdout.splitlines()
    return {trouble: (words, place) for (trouble, place), words in zip(places.items(), said, strict=True)}


def test_sigkill_anywhere_loses_nothing_and_the_end_is_the_same(troubled, half_done, expected):
    resumed = {}
    for death in DEATHS:
        words, folder = troubled[death]
        assert words == str(-signal.SIGKILL), death
        check_whole(folder, half_done)
        done = record_path(folder, "miniature", "annealed", 0).exists()
        assert done == (death == ("killed after rename", FILES))
        assert reproduce([VICTIM], folder) == (0 if done else 1), death
        assert findings(folder, VICTIM) == expected, death
        check_whole(folder, half_done)
        assert not [name for name in contents(folder) if name.startswith(".state")], death
        resumed[death] = measured(folder, VICTIM, ANNEALED, 0)["training"].get("resumed_at")
    assert [resumed["killed at step", number] for number in (0, 3, 7, 11)] == [None, None, 5, 10]
    # The second file of a state is its manifest: with it, the state is there.
    assert [resumed["killed after rename", number] for number in range(1, 7)] == [None, 5, 5, 10, 10, 12]
    assert [resumed["killed before rename", number] for number in range(1, 7)] == [None, None, 5, 5, 10, 10]
    # After training it is the model that is gone on from; it was trained in one go.
    assert resumed["killed judging", 0] is None


def test_a_full_disk_is_said_and_the_next_run_goes_on(troubled, half_done, expected):
    """A limit on the size of files, at which now the state, now the model, now the record has no room."""
    for trouble, pattern in LIMITS.items():
        words, folder = troubled[trouble]
        assert re.match(pattern, words), words
        assert str(folder) in words
        assert words.endswith("File too large; what was there is intact")
        assert not record_path(folder, "miniature", "annealed", 0).exists()
        check_whole(folder, half_done)
        assert not [name for name in contents(folder) if HALF_WRITTEN.search(name)]
        assert reproduce([VICTIM], folder) == 1
        assert findings(folder, VICTIM) == expected


def test_without_trouble_nothing_is_said(troubled, expected):
    for trouble in NOTHING:
        words, folder = troubled[trouble]
        assert words == "done"
        assert findings(folder, VICTIM) == expected


# Long enough to be found at work.
LONG = replace(VICTIM, arms=(replace(ANNEALED, training=replace(ANNEALED.training, steps=300)),))
OUTSIDE = """
import os, sys
print(os.getpid(), flush=True)
from tests.studies.miniatures import OFTEN
from tests.studies.test_study_kills import LONG
from transductor.studies import reproduce, running
running._CHECKPOINT_EVERY = OFTEN
reproduce([LONG], sys.argv[1])
"""


def test_a_run_killed_from_outside_goes_on_from_its_state(tmp_path):
    reproduce([LONG], tmp_path / "whole")
    command = [*python(), "-c", OUTSIDE, str(tmp_path / "killed")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=environment(), **pipes) as process:
        program = int(process.stdout.readline())
        until = time.monotonic() + 120
        while not list((tmp_path / "killed").glob(".state/**/training.json")):
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < until
            time.sleep(0.01)
        os.kill(program, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    assert not list((tmp_path / "killed").glob("miniature/**/*.json"))
    assert reproduce([LONG], tmp_path / "killed") == 1
    assert findings(tmp_path / "killed", LONG) == findings(tmp_path / "whole", LONG)
    resumed = measured(tmp_path / "killed", LONG, LONG.arms[0], 0)["training"]["resumed_at"]
    assert 0 < resumed < 300
    assert resumed % OFTEN == 0


def test_a_model_under_an_old_history_is_never_taken_for_its_own(tmp_path, monkeypatch, expected):
    """Other settings, killed between their model and its history; then the first settings again."""
    run_arm(VICTIM, PLAIN, (0,), tmp_path)
    other = replace(PLAIN, training=replace(TRAINING, steps=20))
    study = replace(VICTIM, arms=(other, ANNEALED))
    save = running.save

    def killed(*arguments):
        save(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "save", killed)
    with pytest.raises(KeyboardInterrupt):
        run_arm(study, other, (0,), tmp_path)
    monkeypatch.setattr(running, "save", save)
    record_path(tmp_path, "miniature", "plain", 0).unlink()
    reproduce([VICTIM], tmp_path)
    assert findings(tmp_path, VICTIM) == expected


def full_from(monkeypatch, number):
    """No room from the given flush of a file on."""
    real, calls = os.fsync, []

    def fsync(handle):
        calls.append(handle)
        if len(calls) >= number:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    monkeypatch.setattr(results.os, "fsync", fsync)
    return calls


@pytest.mark.parametrize("number", range(1, FILES + 1))
def test_wherever_the_disk_fills_up(tmp_path, monkeypatch, half_done, expected, number):
    folder = tmp_path / "folder"
    shutil.copytree(half_done, folder)
    with monkeypatch.context() as patch:
        full_from(patch, number)
        with pytest.raises(
            (OSError, TrainingError), match=r"cannot be written.*No space left.*what was there is intact"
        ):
            reproduce([VICTIM], folder)
    check_whole(folder, half_done)
    assert not [name for name in contents(folder) if HALF_WRITTEN.search(name)]
    assert reproduce([VICTIM], folder) == 1
    assert findings(folder, VICTIM) == expected
    resumed = measured(folder, VICTIM, ANNEALED, 0)["training"].get("resumed_at")
    assert resumed == [None, None, 5, 5, 10, 10, 12, 12, 12, None][number - 1]


@pytest.mark.parametrize(
    ("number", "file"), [(6, "hardened/single/counted/seed0"), (8, "certificates/single/counted/seed0.json.gz")]
)
def test_a_hardened_model_or_certificate_without_room_is_said(tmp_path, monkeypatch, number, file):
    study = Study("single", "Does it run?", (COUNTED,), (0,))
    monkeypatch.setattr(running, "_CHECKPOINT_EVERY", 1000)
    with monkeypatch.context() as patch:
        full_from(patch, number)
        with pytest.raises(OSError, match=f"{file} cannot be written"):
            reproduce([study], tmp_path)
    assert reproduce([study], tmp_path) == 1
    assert measured(tmp_path, study, COUNTED, 0)["hardening"]["certificate"]["verdict"] == "proved"


def test_a_folder_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises((OSError, TrainingError), match="cannot be written"):
        reproduce([VICTIM], tmp_path / "file")


# A damaged state.


def interrupted(folder, at=7):
    """The second arm stopped after a written state; returns where that is."""

    def stop(step, total):
        if step == at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_arm(VICTIM, ANNEALED, (0,), folder, on_step=stop)
    (manifest,) = folder.glob(".state/miniature/annealed/seed0-*/training.json")
    return manifest.parent


def test_an_interrupted_run_goes_on_from_its_state(tmp_path, half_done, expected):
    folder = tmp_path / "folder"
    shutil.copytree(half_done, folder)
    interrupted(folder)
    steps = []
    run_arm(VICTIM, ANNEALED, (0,), folder, on_step=lambda *step: steps.append(step))
    assert steps == [(step, 12) for step in range(6, 13)]
    assert findings(folder, VICTIM) == expected
    assert measured(folder, VICTIM, ANNEALED, 0)["training"]["resumed_at"] == 5


@pytest.mark.parametrize("damage", ["truncate", "flip", "remove", "manifest", "step"])
def test_a_damaged_state_is_named_and_the_run_starts_again(tmp_path, half_done, expected, damage):
    folder = tmp_path / "folder"
    shutil.copytree(half_done, folder)
    state = interrupted(folder)
    weights, manifest = next(state.glob("*.safetensors")), state / "training.json"
    data = bytearray(weights.read_bytes())
    if damage == "truncate":
        weights.write_bytes(data[:-10])
    elif damage == "flip":
        data[len(data) // 2] ^= 1
        weights.write_bytes(data)
    elif damage == "remove":
        weights.unlink()
    elif damage == "manifest":
        manifest.write_text(manifest.read_text()[:40])
    else:
        manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "step": 9}))
    with pytest.warns(DamagedRecordWarning, match=rf"{state.name}.*the run starts again"):
        reproduce([VICTIM], folder)
    assert findings(folder, VICTIM) == expected
    assert "resumed_at" not in measured(folder, VICTIM, ANNEALED, 0)["training"]
    check_whole(folder, half_done)
    assert not [name for name in contents(folder) if name.startswith(".state")]


def test_the_state_of_other_settings_is_not_gone_on_from(tmp_path, half_done):
    folder = tmp_path / "folder"
    shutil.copytree(half_done, folder)
    interrupted(folder)
    other = replace(ANNEALED, training=replace(ANNEALED.training, learning_rate=1e-3))
    study = replace(VICTIM, arms=(PLAIN, other))
    reproduce([study], folder)
    assert "resumed_at" not in measured(folder, study, other, 0)["training"]
    reproduce([VICTIM], folder)  # and its own is still there
    assert measured(folder, VICTIM, ANNEALED, 0)["training"]["resumed_at"] == 5


def test_the_miniature_has_what_the_kills_are_about():
    assert STUDY.arms == VICTIM.arms
    assert ANNEALED.training.annealing is not None
    assert ANNEALED.training.curriculum is not None
