"""Real ranks for tests: a script under torchrun, whose rank 0 writes what it found as JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]


def started(ranks, *arguments):
    """``torchrun`` of a script (or ``-m module``), not waited for."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.Popen(
        [*command, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )


def finished(process, seconds=240):
    """Its exit status and everything it said."""
    try:
        said, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.terminate()
        said, _ = process.communicate(timeout=60)
        raise AssertionError(f"the ranks did not finish in {seconds} s:\n{said[-4000:]}") from None
    return process.returncode, said


def answers(ranks, script, file, *arguments, seconds=240):
    """What rank 0 of ``script file …`` wrote to the JSON file."""
    status, said = finished(started(ranks, script, file, *arguments), seconds)
    assert status == 0, said[-20_000:]  # the rank that failed first is not the last to speak
    return json.loads(Path(file).read_text())


def told(file, found):
    """The end of a script: rank 0 writes ``found``, and all ranks leave together.

    What torch and gloo do at the end of a process is not what is tested, and it may hang.
    """
    import torch.distributed as dist

    if dist.get_rank() == 0:
        Path(file).write_text(json.dumps(found))
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)


def once(factory, name, found):
    """``found(folder)``, which is JSON; of several workers of pytest one looks for it and the others wait."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return json.loads(json.dumps(found(factory.mktemp(name))))
    folder = factory.getbasetemp().parent / f"shared_{name}"
    answer = folder / "found_once.json"
    try:
        folder.mkdir()
    except FileExistsError:
        for _ in range(6000):
            if answer.exists():
                break
            time.sleep(0.1)
        told = json.loads(answer.read_text())
        assert told["whole"], "another worker, which looked for this, failed"
        return told["found"]
    told = {"whole": False, "found": None}
    try:
        told = {"whole": True, "found": found(folder)}
    finally:
        partial = answer.with_suffix(".partial")
        partial.write_text(json.dumps(told))
        partial.rename(answer)
    return json.loads(json.dumps(told["found"]))
