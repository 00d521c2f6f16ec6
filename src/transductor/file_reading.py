"""Files from strangers: the bytes of regular files alone, because a pipe or a device could go on for ever."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

_PIECE: Final = 2**20


def opened_file(path: str | Path) -> BinaryIO:
    """Open a regular file to read its bytes; nothing is waited for.

    Raises:
        OSError: If it is missing, or anything but a regular file; ``strerror`` says what.
    """
    try:
        _check_regular(os.stat(path).st_mode, path)  # before it is opened: opening a device may do something
        # Without waiting, in case a pipe has come to its place since.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except ValueError as error:  # a NUL in the name
        raise OSError(errno.EINVAL, f"its name cannot be one: {error}", str(path)) from None
    try:
        _check_regular(os.fstat(descriptor).st_mode, path)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _check_regular(mode: int, path: str | Path) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "Is a directory", str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))


def bytes_of(path: str | Path, most: int | None = None) -> bytes:
    """Return the content of a regular file, or its first ``most`` bytes; raises what :func:`opened_file` raises."""
    with opened_file(path) as file:
        return file.read() if most is None else file.read(most)


def pieces_of(path: str | Path) -> Iterator[bytes]:
    """Yield the content of a regular file in pieces; raises what :func:`opened_file` raises."""
    with opened_file(path) as file:
        while piece := file.read(_PIECE):
            yield piece
