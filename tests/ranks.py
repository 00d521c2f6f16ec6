"""Real ranks for tests: forks of one process, or ranks of torchrun; rank 0 writes its answer as JSON."""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path

from tests.forks import environment, python


def torchrun(ranks, *arguments):
    """Start ``torchrun`` of a script (or ``-m module``) and do not wait for it."""
    command = "torch.distributed.run", "--standalone", "--nproc-per-node", ranks, "--no-python"
    return _started(*command, *python(), *arguments)


def forked(module, arguments, seconds=240):
    """Run ``main(arguments[ranks])`` of a module on that many ranks, for one number of ranks after the other.

    The ranks are forks of one process that has imported the module: if every rank imported torch for itself, that
    would take longer than most of what the ranks are asked to do.
    """
    words = [word for ranks, argument in arguments.items() for word in (ranks, argument)]
    status, output = finished(_started("tests.ranks", module, *words), seconds)
    assert status == 0, output[-20_000:]  # the rank that failed first is not the last to write


def answers(module, folder, counts=(2, 4)):
    """Return what rank 0 of ``main(file)`` wrote to its file, for every number of ranks."""
    files = {ranks: folder / f"{ranks}" / "answer.json" for ranks in counts}
    for file in files.values():
        file.parent.mkdir()
    forked(module, files)
    return {ranks: json.loads(file.read_text()) for ranks, file in files.items()}


def _started(module, *arguments):
    return subprocess.Popen(
        [*python(), "-m", module, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment(CUDA_VISIBLE_DEVICES=""),  # ranks are processes on CPUs, also where there is a GPU
        start_new_session=True,  # one signal reaches every process of it
    )


def finished(process, seconds=240):
    """Wait for a started process; return its exit status and its output."""
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)
        output, _ = process.communicate(timeout=60)
        raise AssertionError(f"the ranks did not finish in {seconds} s:\n{output[-4000:]}") from None
    return process.returncode, output


def leave(file, answer):
    """End a rank: rank 0 writes the answer, and all ranks leave together.

    What torch and gloo do at the end of a process is not what is tested, and it may hang.
    """
    import torch.distributed as dist

    if dist.get_rank() == 0:
        Path(file).write_text(json.dumps(answer))
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)


def once(factory, name, ask):
    """Return ``ask(folder)``, which is JSON; one of pytest's workers computes it and the others wait for it."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return json.loads(json.dumps(ask(factory.mktemp(name))))
    folder = factory.getbasetemp().parent / f"shared_{name}"
    file = folder / "once.json"
    try:
        folder.mkdir()
    except FileExistsError:
        for _ in range(6000):
            if file.exists():
                break
            time.sleep(0.1)
        outcome = json.loads(file.read_text())
        assert outcome["complete"], "it failed on another worker of pytest, which shows why"
        return outcome["answer"]
    outcome = {"complete": False, "answer": None}
    try:
        outcome = {"complete": True, "answer": ask(folder)}
    finally:
        partial = file.with_suffix(".partial")
        partial.write_text(json.dumps(outcome))
        partial.rename(file)
    return json.loads(json.dumps(outcome["answer"]))


def _fork_ranks(main, world, argument):
    """Run ``main(argument)`` on ``world`` forks of this process; the first to fail ends the others."""
    import torch.distributed as dist

    shared = {
        "WORLD_SIZE": f"{world}",
        "LOCAL_WORLD_SIZE": f"{world}",
        "MASTER_ADDR": "localhost",
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # the store above, where torchrun would have one
        "TORCHELASTIC_RESTART_COUNT": "0",
    }
    # The store starts after the last fork: its thread looks up names, and a fork taken meanwhile would inherit glibc's
    # lock on the resolver, held for ever.
    ports, announce = os.pipe()
    ranks = set()
    for rank in range(world):
        child = os.fork()
        if child == 0:
            port = os.read(ports, 5).decode()
            os.environ |= shared | {"RANK": f"{rank}", "LOCAL_RANK": f"{rank}", "MASTER_PORT": port}
            _run_and_exit(main, argument)
        ranks.add(child)
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)  # any free port
    os.write(announce, f"{store.port:05d}".encode() * world)
    while ranks:
        child, status = os.wait()
        ranks.discard(child)
        if status:
            for other in ranks:
                os.kill(other, signal.SIGTERM)
            sys.exit(f"a rank of {world} ended with status {os.waitstatus_to_exitcode(status)}")


def _run_and_exit(main, argument):
    try:
        main(argument)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    gc.disable()  # what is imported stays
    module = importlib.import_module(sys.argv[1])
    for name in ("torch._dynamo", "torch.distributed.tensor", "transductor.kernels.cpu.loops"):
        with suppress(ImportError):
            importlib.import_module(name)  # otherwise every rank does it at its first gradient or scan
    gc.freeze()
    gc.enable()
    for world, argument in zip(sys.argv[2::2], sys.argv[3::2], strict=True):
        _fork_ranks(module.main, int(world), argument)
