"""Runs that are killed, told to end, begun twice or read while they are written: nothing is lost, nothing is left over.

The quick tests do each of these a few times; the slow ones as often as the page on training says.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import replace

import pytest
import torch

from tests.forks import environment, python
from tests.training.test_resuming import SETTINGS, assert_identical
from tests.training.test_training import TASK, model
from transductor.endings import EndedBySignal, answered_signals
from transductor.model import load, save
from transductor.one_writer import FolderInUseError
from transductor.training import Trainer, TrainingError

LONG = replace(SETTINGS, steps=1200)
TRAIN = ["train", "run", "--task=parity", "--length=8", "--model=readout", "--state-dim=3", "--steps=100000"]

# Every line of the input is a run in a fork: it prints the fork's number when the first state is written, and its exit
# status when it has ended.
KILLED = """
import os, sys
from pathlib import Path
import torch._dynamo  # otherwise every fork imports it at its first step
from tests.training.test_run_folders import LONG
from tests.training.test_training import TASK, model
from transductor.training import Trainer
folder = Path(sys.argv[1])
for _ in sys.stdin:
    child = os.fork()
    if child == 0:
        trainer = Trainer.resumed(folder) if (folder / "training.json").exists() else Trainer(model(), TASK, LONG)
        first = trainer.step + 1
        trainer.run(lambda at: at.step == first and print(os.getpid(), flush=True), folder=folder, checkpoint_every=1)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def bundle_alone(folder):
    """Say whether a folder holds one complete state and nothing else."""
    names = sorted(path.name for path in folder.iterdir())
    return len(names) == 2 and names[0].startswith("state-") and names[1] == "training.json"


def killed(folder, kills, seed=0):
    """Train in forks that are killed, each after a random time; return how many were killed."""
    moments = random.Random(seed)
    command = [*python(), "-c", KILLED, folder]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    done, steps = 0, []
    with subprocess.Popen(list(map(str, command)), **pipes, env=environment(), text=True, bufsize=1) as process:
        while done < kills:
            process.stdin.write("run\n")
            child = int(process.stdout.readline())
            time.sleep(moments.uniform(0, 0.03))
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            done += int(process.stdout.readline()) == -signal.SIGKILL
            steps.append(Trainer.resumed(folder).step)
            assert steps == sorted(set(steps))  # what was written stays written
            if steps[-1] >= LONG.steps - 100:  # begin again, so that there is something left to kill
                shutil.rmtree(folder)
                steps.clear()
    return done


def check_kills(folder, kills):
    assert killed(folder, kills) == kills
    last = Trainer.resumed(folder)
    with suppress(ZeroDivisionError):  # one more step, then something stops it
        last.run(lambda _: 1 / 0, folder=folder, checkpoint_every=1)
    assert bundle_alone(folder)
    whole = Trainer(model(), TASK, LONG)
    while whole.step < last.step:
        whole.advance()
    assert_identical(whole, Trainer.resumed(folder))


def test_five_kills_lose_nothing_and_leave_nothing(tmp_path):
    check_kills(tmp_path / "run", 5)


@pytest.mark.slow
def test_two_hundred_kills_lose_nothing_and_leave_nothing(tmp_path):
    check_kills(tmp_path / "run", 200)


def started(folder, *arguments):
    command = [*python(), "-m", "transductor", *arguments]
    return subprocess.Popen(command, cwd=folder, env=environment(), stdout=-1, stderr=-1, text=True)


def wait_for(path, process, seconds=60):
    until = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < until
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


def check_signals(folder, numbers, seed=0):
    """Tell a run to end again and again; each time it goes on from the very step that it said it had saved."""
    moments, reached = random.Random(seed), 0
    for number in numbers:
        process = started(folder, *TRAIN, "--checkpoint-every", "100000")
        wait_for(folder / "run" / ".writer", process)
        going_on = process.stdout.readline() if reached else ""
        time.sleep(moments.uniform(1.0, 1.5) if not reached else moments.uniform(0.1, 0.4))
        process.send_signal(number)
        try:
            _, errors = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)
            _, errors = process.communicate(timeout=60)
        assert process.returncode == 128 + number, errors
        assert f"ended by {signal.Signals(number).name} after the state of step " in errors
        said = int(errors.split("the state of step ")[1].split()[0].replace(",", ""))
        assert bundle_alone(folder / "run")
        assert Trainer.resumed(folder / "run").step == said > reached
        assert going_on == (f"going on from step {reached:,}\n" if reached else "")
        reached = said


def test_a_run_that_is_told_to_end_saves_and_says_so(tmp_path):
    check_signals(tmp_path, [signal.SIGTERM, signal.SIGHUP])


def test_a_signal_whose_exception_was_lost_ends_the_next_step(tmp_path):
    trainer = Trainer(model(), TASK, SETTINGS)
    with answered_signals():
        with suppress(EndedBySignal):  # as Python does in destructors and callbacks
            signal.raise_signal(signal.SIGTERM)
        with pytest.raises(EndedBySignal) as ended:
            trainer.run(folder=tmp_path)
    assert (ended.value.number, ended.value.step) == (signal.SIGTERM, 1)
    trainer.run(folder=tmp_path)
    assert trainer.finished


@pytest.mark.slow
def test_fifty_terminations_save_and_say_so(tmp_path):
    check_signals(tmp_path, [signal.SIGTERM] * 50)


def test_a_second_run_in_the_same_folder_is_refused(tmp_path):
    with started(tmp_path, *TRAIN) as first:
        wait_for(tmp_path / "run" / ".writer", first)
        time.sleep(0.2)
        with started(tmp_path, *TRAIN) as second:
            _, errors = second.communicate(timeout=60)
        first.kill()
        first.communicate()
    assert second.returncode == 2
    assert "error: run is in use by process " in errors


def test_a_trainer_refuses_a_folder_that_another_trains_in(tmp_path):
    refused = []

    def other():
        try:
            Trainer(model(), TASK, SETTINGS).run(folder=tmp_path)
        except FolderInUseError as error:
            refused.append(error)

    def on_step(_):
        if not refused:
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()

    Trainer(model(), TASK, SETTINGS).run(on_step, folder=tmp_path)
    assert len(refused) == 1
    assert bundle_alone(tmp_path)


def test_a_deleted_folder_ends_the_run_and_is_told(tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(TrainingError, match=r"deleted or replaced.*; no state of this run is left there"):
        Trainer(model(), TASK, SETTINGS).run(lambda _: shutil.rmtree(folder), folder=folder, checkpoint_every=1)


def test_an_unwritable_folder_is_noticed_before_the_first_step(tmp_path):
    (tmp_path / "file").write_text("")
    trainer = Trainer(model(), TASK, SETTINGS)
    with pytest.raises(OSError, match="cannot be written to"):
        trainer.run(folder=tmp_path / "file" / "run")
    assert trainer.step == 0


SAVES = """
import sys, torch
from tests.training.test_training import model
from transductor.model import save
models = [model() for _ in range(2)]
for place, each in enumerate(models):
    torch.nn.init.constant_(next(each.parameters()), place + 1.0)
print("begun", flush=True)
while True:
    for each in models:
        save(each, sys.argv[1])
"""


def check_reading(folder, reads, writers):
    """Load a model as often as this while other processes save two models there in turn."""
    first = model()
    torch.nn.init.constant_(next(first.parameters()), 1.0)
    save(first, folder)
    command = [*python(), "-c", SAVES, str(folder)]
    processes = [subprocess.Popen(command, env=environment(), stdout=-1, text=True) for _ in range(writers)]
    try:
        for process in processes:
            assert process.stdout.readline() == "begun\n"
        seen = [float(next(load(folder).parameters()).detach().flatten()[0]) for _ in range(reads)]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    assert set(seen) == {1.0, 2.0}
    save(first, folder)
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize("writers", [1, 2])
def test_a_reader_beside_writers_sees_one_model_or_the_other(tmp_path, writers):
    check_reading(tmp_path, 100, writers)


@pytest.mark.slow
def test_ten_thousand_reads_beside_two_writers(tmp_path):
    check_reading(tmp_path, 10_000, 2)
