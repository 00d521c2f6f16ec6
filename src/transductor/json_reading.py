"""JSON from strangers: one reader that refuses what would exhaust memory or time, or could be read in two ways."""

from __future__ import annotations

import gzip
import io
import json
import re
import sys
import zlib
from collections import Counter
from collections.abc import Iterable
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, NoReturn

from transductor.file_reading import bytes_of

MOST_BYTES: Final = 32 * 2**20
_MOST_MEMORY: Final = 800 * 2**20  # of the value, in bytes
_DEEPEST: Final = 100  # what walks through a value calls itself
# Possessive, and a text without an end reaches to the end of all: whatever is read, every character is passed once.
_NOT_BRACKETS: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[^][{}"]++', re.DOTALL)


class JSONError(ValueError):
    """A file or text that is not JSON as this library reads it; the message says why, and ``line`` where, if known."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.line = line


def brief(error: Exception) -> str:
    """Return what an error says in one line of at most 400 characters, its end too: the value that was given is there.

    Some errors quote a file or their own source.
    """
    first = (str(error).splitlines() or [type(error).__name__])[0]
    return first if len(first) <= 400 else f"{first[:299]}…{first[-100:]}"


def read_json(path: str | Path, *, most_bytes: int = MOST_BYTES) -> Any:
    """Return the value of a JSON file, which may be compressed by gzip.

    Args:
        path: A regular file: a pipe or a device could go on for ever.
        most_bytes: A larger file, or one that unpacks to more, is refused.

    Raises:
        JSONError: Also for a file that cannot be read.
    """
    try:
        data = bytes_of(path, most_bytes + 1)
        if data[:2] == b"\x1f\x8b":
            with gzip.open(io.BytesIO(data)) as packed:
                data = packed.read(most_bytes + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise JSONError(f"{path} is not JSON: it is not a complete gzip file ({error})") from error
    except OSError as error:
        raise JSONError(f"{path} cannot be read: {error.strerror or error}") from error
    if len(data) > most_bytes:
        raise JSONError(f"{path} is larger than {most_bytes // 2**20} MiB")
    try:
        return parsed_json(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise JSONError(f"{path} is not JSON: byte {error.start} is not UTF-8") from None
    except JSONError as error:
        raise JSONError(f"{path} is {error}") from None


def parsed_json(text: str) -> Any:
    """Return the value of a JSON text; refuse a field given twice, NaN, infinity, and numbers too long to read.

    Also refused is what is nested deeper than a hundred times, and what would take more than 800 MiB of memory.
    """
    _check_cost(text)
    try:
        return json.loads(text, object_pairs_hook=_distinct, parse_constant=_refuse_constant, parse_float=_finite)
    except json.JSONDecodeError as error:
        raise JSONError(f"not JSON: line {error.lineno}: {error.msg}", error.lineno) from None
    except RecursionError:
        raise JSONError("not JSON: it is nested too deeply") from None
    except JSONError:
        raise
    except ValueError as error:  # an integer of more digits than Python reads
        raise JSONError(f"not JSON: {error}") from None


def _check_cost(text: str) -> None:
    """Refuse what would exhaust memory, or the stack of whoever walks through the value, before it is parsed."""
    lists, objects = text.count("["), text.count("{")
    if sys.getsizeof(text) + 64 * lists + 300 * objects + 40 * text.count(",") > _MOST_MEMORY:
        raise JSONError(f"not JSON: its value would take more than {_MOST_MEMORY // 2**20} MiB")
    if lists + objects > _DEEPEST:
        steps = (1 if bracket in "[{" else -1 for bracket in _NOT_BRACKETS.sub("", text) if bracket != '"')
        if max(accumulate(steps), default=0) > _DEEPEST:
            raise JSONError("not JSON: it is nested too deeply")


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise JSONError(f"not JSON: an object has the field {most_frequent(name for name, _ in pairs)[:40]!r} twice")
    return fields


def most_frequent(names: Iterable[str]) -> str:
    """Return the name that occurs most often."""
    return Counter(names).most_common(1)[0][0]


def _refuse_constant(name: str) -> NoReturn:
    raise JSONError(f"not JSON: {name} is not a number")


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise JSONError(f"not JSON: {text[:40]} is too large for a number")
    return number
