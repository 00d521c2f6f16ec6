"""Programs that run in forks of one process, which has imported what takes seconds to import."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

# A line of the input is a program, its arguments and the folder it runs in; the answer is its exit status.
SERVER = """
import gc, importlib, json, os, sys, traceback
gc.disable()
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ImportError:
        pass
gc.freeze()
gc.enable()
for line in sys.stdin:
    program, arguments, folder = json.loads(line)
    child = os.fork()
    if child == 0:
        os.chdir(folder)
        for stream, name in ((1, "output.txt"), (2, "errors.txt")):
            os.dup2(os.open(name, os.O_CREAT | os.O_TRUNC | os.O_WRONLY), stream)
        sys.argv, status = arguments, 0
        try:
            exec(compile(program, "program", "exec"), {"__name__": "__main__"})
        except BaseException:
            traceback.print_exc()
            status = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
gc.unfreeze()  # otherwise nanobind reports leaks
"""


@contextmanager
def forks(*modules, options=(), **environment):
    """Start the process, with options of Python; yield a function that runs a program and returns what it printed."""
    with subprocess.Popen(
        [sys.executable, *options, "-c", SERVER, *modules],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
    ) as process:

        def run(program, *arguments, folder):
            process.stdin.write(json.dumps([program, ["-c", *map(str, arguments)], str(folder)]) + "\n")
            status = int(process.stdout.readline())
            assert status == 0, (Path(folder) / "errors.txt").read_text()[-4000:]
            return (Path(folder) / "output.txt").read_text()

        yield run
