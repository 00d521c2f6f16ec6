"""Languages of source code: which files are theirs, and where a text may begin to be read."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from transductor.automata.python_lexing import lexed

_BETWEEN_DEFINITIONS: Final = re.compile(rb"(?:(?<=\n\n)|(?<=\n}\n))(?=[A-Za-z#/])")


@dataclass(frozen=True)
class Language:
    """A language of source code.

    Attributes:
        name: What it is called in a manifest.
        suffixes: Endings of the names of its files.
        begins: Returns where, beside its first byte, a file may begin to be read, in increasing order.
    """

    name: str
    suffixes: tuple[str, ...]
    begins: Callable[[bytes], NDArray[np.int64]]


def _statements(text: bytes) -> NDArray[np.int64]:
    """Return where a statement begins at column 0, outside of strings and brackets."""
    measured = np.concatenate(([0], lexed(text)[:-1, 3]))  # the column before each byte
    return np.flatnonzero((measured == 0) & ~np.isin(np.frombuffer(text, np.uint8), list(b" \t\n\f#")))


def _definitions(text: bytes) -> NDArray[np.int64]:
    """Return where a line begins at column 0 after an empty one, or after a brace that closes at column 0."""
    return np.array([match.start() for match in _BETWEEN_DEFINITIONS.finditer(text)], dtype=np.int64)


LANGUAGES: Final = {
    language.name: language
    for language in (Language("python", (".py",), _statements), Language("c", (".c", ".h"), _definitions))
}
