"""Loops that numba compiles where it is installed; elsewhere the same functions run as they are written."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])

COMPILES = find_spec("numba") is not None


def compiled(function: _Function) -> _Function:
    """Return ``function`` compiled by numba and kept on disk, or itself where numba is missing.

    Only the file of a function is watched for changes, so a compiled function calls others of its own file alone.
    """
    if not COMPILES:
        return function
    from numba import njit

    return njit(cache=True, nogil=True, error_model="numpy")(function)  # type: ignore[no-any-return]
