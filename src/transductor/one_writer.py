"""One writer per folder, and no leftovers: locks that the operating system drops when their process ends.

A process that writes to a folder locks the file ``.writer`` in it, which says who it is.  A file that is being written
is locked too, so that what a killed process left can be told from what another one is still writing.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from transductor.json_reading import JSONError, read_json

# Windows has none: there leftovers are told by their age, and no folder is locked.
_fcntl: Any = import_module("fcntl") if find_spec("fcntl") else None

LOCK_FILE: Final = ".writer"
_UNFINISHED: Final = re.compile(r"\..+\.[A-Za-z0-9_]{8}\.unfinished")
_PAUSE: Final = 0.005  # seconds between two tries
_OLD: Final = 60.0  # seconds after which a leftover is one, where files cannot be locked

# The folders that threads of this process hold: the same thread may enter one again.
_held: dict[tuple[Path, int, int], _Lock] = {}


class FolderInUseError(ValueError):
    """Another process writes to the folder; the message says which."""


class FolderLostError(OSError):
    """The folder was deleted, or replaced by another, while this process wrote to it."""


class _Lock:
    """The open lock file of one folder."""

    def __init__(self, descriptor: int, path: Path) -> None:
        self.descriptor, self.path = descriptor, path

    def is_at_its_place(self) -> bool:
        """Say whether the file that is locked is the one that another process would open."""
        try:
            there = os.stat(self.path)
        except OSError:
            return False
        mine = os.fstat(self.descriptor)
        return (there.st_ino, there.st_dev) == (mine.st_ino, mine.st_dev)


@contextmanager
def only_writer(folder: str | Path, *, wait: float = 0.0) -> Iterator[None]:
    """Make the folder, and be the only process that writes to it; remove what killed writers left in it.

    Args:
        folder: The folder; the same thread may enter it several times.
        wait: Seconds to wait for another process, for what is written in a moment.

    Raises:
        FolderInUseError: If another process, or another thread, holds the folder; the message says who.
        FolderLostError: If this process holds it already, and it was deleted in the meantime.
        OSError: If the folder cannot be made or written to.
    """
    folder = Path(folder)
    key = Path(os.path.realpath(folder)), os.getpid(), threading.get_ident()
    if key in _held:
        if not _held[key].is_at_its_place():
            raise FolderLostError(f"{folder} was deleted or replaced while it was written to")
        yield
        return
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder} cannot be written to: it must be a folder, and is a file")
    lock = _acquired(folder, wait)
    _held[key] = lock
    try:
        remove_leftovers(folder)
        yield
    finally:
        del _held[key]
        if lock.is_at_its_place():  # removed before it is released: whoever opened it sees that it is gone
            lock.path.unlink(missing_ok=True)
        os.close(lock.descriptor)


def _acquired(folder: Path, wait: float) -> _Lock:
    path, until = folder / LOCK_FILE, time.monotonic() + wait
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and time.monotonic() < until:
                continue  # deleted between the two lines
            raise type(error)(f"{folder} cannot be written to: {error.strerror or error}") from error
        lock = _Lock(descriptor, path)
        if not locked(descriptor):
            os.close(descriptor)
            if time.monotonic() >= until:
                raise FolderInUseError(f"{folder} is in use by {_holder(path)}; wait for it, or choose another folder")
            time.sleep(_PAUSE)
        elif not lock.is_at_its_place():  # its holder has just ended and removed it
            os.close(descriptor)
        else:
            who = {
                "process": os.getpid(),
                "host": socket.gethostname(),
                "since": datetime.now(UTC).isoformat(timespec="seconds"),
            }
            os.ftruncate(descriptor, 0)
            os.write(descriptor, json.dumps(who).encode())
            return lock


def _holder(path: Path) -> str:
    """Return who holds a folder, in words; the file is read while another process may be writing it."""
    try:
        who: Any = read_json(path, most_bytes=4096)
        return f"process {str(int(who['process']))[:20]} on {str(who['host'])[:80]}, since {str(who['since'])[:40]}"
    except (JSONError, KeyError, TypeError, ValueError):
        return "another process"


def locked(descriptor: int, *, wait: bool = False) -> bool:
    """Lock an open file until it is closed or the process ends; say whether no other process holds it.

    Where the file system has no locks, the answer is yes: there is nothing to wait for.
    """
    if _fcntl is None:
        return True
    try:
        _fcntl.flock(descriptor, _fcntl.LOCK_EX | (0 if wait else _fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def unfinished_file(path: Path) -> tuple[int, str]:
    """Return a new, locked, open file beside ``path`` and its name: what will be renamed to ``path``."""
    while True:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".unfinished")
        locked(descriptor, wait=True)
        if os.fstat(descriptor).st_nlink:
            return descriptor, name
        os.close(descriptor)  # another process took it for a leftover before it was locked


def remove_leftovers(folder: Path) -> None:
    """Remove what killed processes left in the folder while they wrote files; what is being written stays."""
    for entry in os.scandir(folder):
        if not _UNFINISHED.fullmatch(entry.name) or not entry.is_file(follow_symlinks=False):
            continue
        with contextlib.suppress(OSError):  # its writer has just renamed it, or it belongs to another user
            if _fcntl is None and time.time() - entry.stat().st_mtime < _OLD:
                continue
            descriptor = os.open(entry.path, os.O_RDWR)
            try:
                if locked(descriptor):
                    os.unlink(entry.path)
            finally:
                os.close(descriptor)
