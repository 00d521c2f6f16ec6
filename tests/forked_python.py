"""A Python that has imported torch: the client and the server of ``tests.forks.python``.

The client takes the place of ``python``: it hands its arguments, environment, folder and open files to the server,
passes signals on, and ends as the program ends.  The server forks a process for every program; before the first one it
imports what takes seconds to import, and nothing of this project.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import traceback
import warnings
from contextlib import suppress
from types import ModuleType

PASSED_ON = signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGABRT


def ask(path, *arguments):
    """Have the server at ``path`` run a program; return its exit status, negative for a signal."""
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        socket.send_fds(server, [b"."], [0, 1, 2])
        server.sendall(json.dumps([arguments, dict(os.environ), os.getcwd()]).encode() + b"\n")
        answers = server.makefile()
        program = int(answers.readline())
        for number in PASSED_ON:
            signal.signal(number, lambda number, _: os.kill(program, number))
        return int(answers.readline())


def serve(descriptor, *modules):
    """Run programs that are asked for at an open socket, until the standard input ends."""
    with socket.socket(fileno=int(descriptor)) as listener:
        while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
            connection, _ = listener.accept()
            load(modules)
            modules = ()
            if os.fork() == 0:
                listener.close()
                attend(connection)
                os._exit(0)
            connection.close()
            reap(os.WNOHANG)
    reap(0)
    gc.unfreeze()  # otherwise nanobind reports leaks


def reap(options):
    """Take leave of processes that ended; without ``WNOHANG``, wait for all of them."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, options)[0]:
            pass


def load(modules):
    """Import modules; the garbage collector passes over what they hold."""
    gc.disable()
    for name in modules:
        with suppress(ImportError):
            importlib.import_module(name)
    gc.freeze()
    gc.enable()


def attend(connection):
    """Run one program and say how it ended; if its client is killed, so is everything that it started."""
    _, files, _, _ = socket.recv_fds(connection, 1, 3)
    arguments, environment, folder = json.loads(connection.makefile().readline())
    program = os.fork()
    if program == 0:
        connection.close()
        os.setsid()
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        run_and_exit(arguments)
    for file in files:
        os.close(file)
    connection.sendall(b"%d\n" % program)
    end = os.pidfd_open(program)
    if end not in select.select([connection, end], [], [])[0]:
        os.killpg(program, signal.SIGKILL)
    _, status = os.waitpid(program, 0)
    with suppress(ProcessLookupError):
        os.killpg(program, signal.SIGKILL)  # what it left behind
    with suppress(BrokenPipeError):
        connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))


def run_and_exit(arguments):
    """Run ``-c code``, ``-m module`` or a script, each followed by arguments, as Python does."""
    status = 0
    for number in signal.SIGTERM, signal.SIGHUP:  # nohup ignores SIGHUP, and what it starts would too
        signal.signal(number, signal.SIG_DFL)
    faulthandler.enable()  # SIGABRT shows where a program that does not end stands
    for action in filter(None, os.environ.get("PYTHONWARNINGS", "").split(",")):
        warnings.simplefilter(action)
    sys.path[:0] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    try:
        if arguments[0] == "-c":
            sys.path.insert(0, "")
            sys.argv = ["-c", *arguments[2:]]
            main = sys.modules["__main__"] = ModuleType("__main__")
            exec(compile(arguments[1], "<string>", "exec"), vars(main))
        elif arguments[0] == "-m":
            sys.path.insert(0, os.getcwd())
            sys.argv = arguments[1:]
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, os.path.dirname(arguments[0]))
            sys.argv = arguments
            runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as leaving:
        status = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        if isinstance(leaving.code, str):
            print(leaving.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        serve(*sys.argv[2:])
    else:
        status = ask(*sys.argv[1:])
        if status < 0:
            if -status in PASSED_ON:
                signal.signal(-status, signal.SIG_DFL)
            os.kill(os.getpid(), -status)
        sys.exit(status)
