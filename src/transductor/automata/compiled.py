"""Loops that numba compiles where it is installed; elsewhere the same functions run as they are written."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from importlib.util import find_spec
from typing import Any, Final, TypeVar

import numpy as np

_Function = TypeVar("_Function", bound=Callable[..., Any])

COMPILES = find_spec("numba") is not None
SMALL: Final = 5_000
"""Steps below which a loop is over sooner than numba is imported."""


def compiled(function: _Function) -> _Function:
    """Return ``function`` compiled by numba and kept on disk, or itself where numba is missing.

    Only the file of a function is watched for changes, so a compiled function calls others of its own file alone.
    """
    if not COMPILES:
        return function
    from numba import njit

    return njit(cache=True, nogil=True, error_model="numpy")(function)  # type: ignore[no-any-return]


def compiled_when_large(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``function`` with a first argument more, its number of steps: from ``SMALL`` on numba compiles it.

    Importing numba takes half a second, so it waits for the first large input.
    """

    @cache
    def quick() -> Callable[..., Any]:
        return compiled(function)

    @wraps(function)
    def called(steps: int, *arguments: Any) -> Any:
        if steps < SMALL or not COMPILES:
            return function(*arguments)
        return quick()(*map(_read_only, arguments))

    return called


def _read_only(argument: Any) -> Any:
    """Return an array as one that is not written to: numba would compile a loop again for each mixture of the two."""
    if not isinstance(argument, np.ndarray):
        return argument
    view = np.ascontiguousarray(argument).view()
    view.flags.writeable = False
    return view
