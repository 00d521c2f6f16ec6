"""Programs that run in forks of one process, which has imported what takes seconds to import."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
CLIENT = Path(__file__).with_name("forked_python.py")
SERVER = "FORKED_PYTHON"  # the variable that names the server's socket
IMPORTED = (
    "torch._dynamo",
    "torch.distributed.run",
    "torch.distributed.tensor",
    "numba.typed",
    "networkx",
    "pytest",
    "typer.testing",
    "matplotlib.backends.backend_agg",
    "matplotlib.figure",
    "transformers.trainer",
)


@contextmanager
def server():
    """Start the server, unless one is running, for this process and the processes that it starts."""
    if SERVER in os.environ:
        yield
        return
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        path = os.path.join(folder, "socket")
        listener.bind(path)
        listener.listen()
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        process = subprocess.Popen(
            [sys.executable, "-P", CLIENT, "--serve", str(listener.fileno()), *IMPORTED],
            stdin=subprocess.PIPE,
            pass_fds=[listener.fileno()],
            env=variables | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        )
        listener.close()
        os.environ[SERVER] = path
        try:
            yield
        finally:
            del os.environ[SERVER]
            process.stdin.close()
            process.wait()


def python():
    """Return the command of a Python that has imported torch, and nothing of this project.

    It takes ``-c code``, ``-m module`` or a script.  It is a fork: unlike ``sys.executable``, it does not spend most of
    its time on imports.
    """
    return [sys.executable, "-I", "-S", str(CLIENT), os.environ[SERVER]]


def environment(**changes):
    """Return the environment of a program: one thread, and this checkout before anything that is installed."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)} | changes


def run(*arguments, folder, **changes):
    """Run ``-c code``, ``-m module`` or a script in a folder, with changes of the environment; return its output."""
    command = [*python(), *map(str, arguments)]
    variables = environment(**{name: str(value) for name, value in changes.items()})
    ended = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=variables, check=False)
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-4000:]
    return ended.stdout
