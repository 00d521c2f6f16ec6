"""The error that every reader of automaton files raises."""

from __future__ import annotations

from typing import Final

_LONGEST: Final = 400  # characters of a reason, which may quote the file


class AutomatonFormatError(ValueError):
    """A file that does not hold an automaton this library can represent; the message is ``file:line: reason``.

    ``line`` is None where a place has no line: in a binary file, or where the reason names a path inside a document.
    """

    def __init__(self, path: str, line: int | None, reason: str) -> None:
        super().__init__(path, line, reason)
        self.path = path
        self.line = line
        self.reason = reason

    def __str__(self) -> str:
        where = self.path if self.line is None else f"{self.path}:{self.line}"
        return f"{where}: {self.reason if len(self.reason) <= _LONGEST else self.reason[: _LONGEST - 1] + '…'}"
