"""Training on several ranks is training on one: losses, curricula, states on disk; and a killed rank is survived."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from tests.forks import environment, python
from tests.ranks import finished, forked, once, torchrun
from tests.training import distributed_runs
from tests.training.distributed_runs import EVERY, FIRST, KILLED_AT, RUNS, SECOND, TRIED, begun, curve
from transductor.cli import app
from transductor.model import load
from transductor.training import Trainer
from transductor.training.distributed import DistributedTrainer, rows_of_rank

SCRIPT = Path(distributed_runs.__file__)
# float32, ten steps: the same sums in another order.
EXACT = 1e-6
STRATEGIES = "ddp", "fsdp2"


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    """Every run on one process."""
    folder = tmp_path_factory.mktemp("single")
    runs = {name: begun(Trainer, name, folder) for name in RUNS}
    for trainer in runs.values():
        trainer.run()
    return runs


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    return once(tmp_path_factory, "training_ranks", all_runs)


def all_runs(folder):
    """Two ranks, of which one is killed in the end; one process for some steps; four ranks to the end."""
    distributed_runs.words(folder)
    status, said = finished(torchrun(2, SCRIPT, folder))
    ended = time.time()
    assert (folder / "2.json").exists(), said[-4000:]
    for strategy in STRATEGIES:
        trainer = Trainer.resumed(folder / strategy)
        assert trainer.step == FIRST
        distributed_runs.stopped_at(trainer, SECOND, folder / strategy)
    answer = {"status": status, "said": said, "seconds": ended - float((folder / "killed_at").read_text())}
    forked("tests.training.distributed_runs", {4: folder})
    each = {ranks: json.loads((folder / f"{ranks}.json").read_text()) for ranks in ("2", "4")}
    return answer | each | {"folder": str(folder)}


def assert_same_curve(measured, expected):
    expected = torch.tensor(curve(expected), dtype=torch.float64)
    torch.testing.assert_close(torch.tensor(measured, dtype=torch.float64), expected, atol=EXACT, rtol=EXACT)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(("ranks", "name"), [(ranks, name) for ranks in TRIED for name in TRIED[ranks]])
def test_losses_are_those_of_one_process(outcomes, single, ranks, strategy, name):
    assert_same_curve(outcomes[str(ranks)]["curves"][f"{strategy}-{name}"], single[name])
    assert outcomes[str(ranks)]["lengths"][f"{strategy}-{name}"] == single[name].length


def test_the_curriculum_moved(single):
    assert single["curriculum"].length > 2


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_run_of_two_ranks_goes_on_with_one_and_then_with_four(outcomes, single, strategy):
    assert_same_curve(outcomes["4"]["resumed"][strategy], single["curriculum"])
    trainer = Trainer.resumed(Path(outcomes["folder"]) / strategy)
    assert trainer.finished
    # Not the weights: the gradient of a key's bias is rounding alone, and Adam takes its sign.
    tokens = torch.randint(0, 2, (3, 9))
    torch.testing.assert_close(trainer.model(tokens), single["curriculum"].model(tokens), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("ranks", [2, 4])
def test_the_head_stays_float32_where_the_model_is_bfloat16(outcomes, ranks):
    assert outcomes[str(ranks)]["precision"] == {
        "states": "torch.float32",
        "logits": "torch.bfloat16",
        "masters": ["torch.float32"],
    }


def test_a_killed_rank_is_noticed_named_and_survived(outcomes, single):
    assert outcomes["status"] != 0
    assert outcomes["seconds"] < 60
    said = outcomes["said"]
    # torchrun may be so quick that the step of the death is not over here.
    assert re.search(rf"rank 0 of 2 stopped at step ({KILLED_AT}|{KILLED_AT + 1}): ", said), said[-6000:]
    assert "a rank was killed" in said
    assert f"the last state written is that of step {EVERY}, in" in said
    assert "the same torchrun command continues from there" in said
    assert outcomes["4"]["resumed_at"] == EVERY
    assert_same_curve(outcomes["4"]["resumed"]["killed"], single["plain"])


# Both ranks: rank 1 is a fork of rank 0, so that torch is imported once.
WAITING = """
import os, signal, sys
import torch._dynamo
import torch.distributed as dist
from tests.training.distributed_runs import begun
from transductor.training.distributed import DistributedTrainer, joined_ranks
os.environ["RANK"] = "0" if os.fork() else "1"
if os.environ["RANK"] == "1":
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
with joined_ranks(timeout=60):
    trainer = begun(DistributedTrainer, "plain", None)
    def on_step(point):
        if dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        print("waits", flush=True)
    trainer.run(on_step)
"""


def test_told_to_stop_while_it_waits_for_another_rank_it_speaks():
    """A rank that hangs does not answer; torchrun's SIGTERM comes while the others wait inside a library."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    variables = environment(WORLD_SIZE="2", MASTER_ADDR="localhost", MASTER_PORT=port)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": variables}
    with subprocess.Popen([*python(), "-c", WAITING], **pipes) as rank:
        try:
            assert rank.stdout.readline() == "waits\n", rank.stderr.read()
            time.sleep(1)  # into the second step, which needs the other rank
            rank.send_signal(signal.SIGTERM)
            _, said = rank.communicate(timeout=30)
        finally:
            rank.kill()  # and with it both ranks, of which one is stopped
    assert rank.returncode == 128 + signal.SIGTERM
    assert "rank 0 of 2 stopped at step 2: it was told to stop" in said
    assert "no state was written by this run" in said


LOST = """
import os, signal
from transductor.training.distributed import _message_on_termination
from transductor.training.trainer import TrainingError
try:
    with _message_on_termination(lambda: "not this"):
        raise TrainingError("rank 0 of 2 stopped at step 7: another rank does not answer")
except TrainingError:
    os.kill(os.getpid(), signal.SIGTERM)  # as torchrun does, before the error is printed
    signal.pause()
"""


def test_what_a_rank_noticed_is_said_even_if_it_is_ended_before_its_error_is_printed():
    rank = subprocess.run(
        [*python(), "-c", LOST], capture_output=True, text=True, env=environment(), timeout=60, check=False
    )
    assert rank.returncode == 128 + signal.SIGTERM
    assert rank.stderr == "error: rank 0 of 2 stopped at step 7: another rank does not answer\n"


SMALL = ("--width", "16", "--layers", "1", "--state-dim", "4", "--attention-heads", "2", "--batch-size", "6")
TRAIN = ("--task", "parity", "--steps", "5", "--length", "8", *SMALL)


def test_the_command_under_torchrun_is_the_command(tmp_path):
    arguments = ("-m", "transductor", "train", tmp_path / "ranks", *TRAIN, "--distributed", "fsdp2")
    status, said = finished(torchrun(2, *arguments))
    assert status == 0, said[-4000:]
    assert said.count("written: ") == 1
    alone = CliRunner().invoke(app, ["train", str(tmp_path / "alone"), *TRAIN])
    assert alone.exit_code == 0, alone.output
    assert_same_curve(curve(Trainer.resumed(tmp_path / "ranks")), Trainer.resumed(tmp_path / "alone"))
    tokens = torch.randint(0, 2, (3, 8))
    actual, expected = (load(tmp_path / name / "model")(tokens) for name in ("ranks", "alone"))
    torch.testing.assert_close(actual, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("words", "arguments", "environment"),
    [
        ("torchrun --nproc-per-node 2 -m transductor train", ("--distributed", "ddp"), {}),
        ("--distributed must be one of 'ddp', 'fsdp2'", ("--distributed", "magic"), {}),
        ("add --distributed", (), {"RANK": "0", "WORLD_SIZE": "2"}),
    ],
)
def test_a_wrong_start_is_answered_in_one_line(tmp_path, words, arguments, environment):
    shown = CliRunner().invoke(app, ["train", str(tmp_path), *TRAIN, *arguments], env=environment)
    assert shown.exit_code == 2
    assert words in shown.output


def test_without_ranks_it_says_so(tmp_path):
    with pytest.raises(ValueError, match="torchrun"):
        begun(DistributedTrainer, "plain", tmp_path)
    with pytest.raises(ValueError, match="strategy must be one of 'ddp', 'fsdp2'"):
        begun(DistributedTrainer, "plain", tmp_path, strategy="magic")
    with pytest.raises(ValueError, match="precision needs strategy='fsdp2'"):
        begun(DistributedTrainer, "plain", tmp_path, precision=torch.bfloat16)


@pytest.mark.parametrize(("count", "world"), [(7, 2), (7, 4), (4, 4), (9, 1)])
def test_rows_are_shared_out_evenly_and_once(count, world):
    rows = [range(count)[rows_of_rank(count, rank, world)] for rank in range(world)]
    assert [row for part in rows for row in part] == list(range(count))
    assert max(map(len, rows)) - min(map(len, rows)) <= 1
