"""Limits on what a file may ask for, so that no file can exhaust the memory or the time of its reader."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from transductor.automata.formats.errors import AutomatonFormatError
from transductor.automata.weights import Weights
from transductor.file_reading import bytes_of

MAX_BYTES: Final = 32 * 2**20
MAX_ARCS: Final = 1_000_000
MAX_ENTRIES: Final = 2**25
"""Letters times states squared: an automaton holds one dense matrix for each letter."""
MAX_BOOLEAN_ENTRIES: Final = 2**27
MAX_RATIONAL_ENTRIES: Final = 2**21
MAX_WEIGHT_CHARACTERS: Final = 4300
"""Python itself writes and reads integers up to this many digits."""
MAX_EXPONENT: Final = 4300
MAX_SUM_BITS: Final = 2**14
MAX_STEPS: Final = 5_000_000_000
"""What summing parallel arcs and removing ε arcs may cost, in steps of about a nanosecond."""

_EXPONENT = re.compile(r"[eE]([+-]?[0-9_]+)\s*\Z")
_BOM = "\ufeff"


def read_bytes(path: str | Path) -> bytes:
    """Return the content of a regular file of at most ``MAX_BYTES``; a missing one raises ``FileNotFoundError``."""
    try:
        data = bytes_of(path, MAX_BYTES + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise AutomatonFormatError(str(path), None, f"it cannot be read: {error.strerror}") from error
    if len(data) > MAX_BYTES:
        raise AutomatonFormatError(str(path), None, f"the file is larger than {MAX_BYTES // 2**20} MiB")
    return data


def text_of(data: bytes, source: str) -> str:
    """Return ``data`` as text: UTF-8, with or without a byte order mark, and not empty."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise AutomatonFormatError(source, line, f"byte {error.start} is not UTF-8") from None
    text = text.removeprefix(_BOM)
    if not text.strip():
        raise AutomatonFormatError(source, 1, "the file is empty")
    return text


def lines_of(text: str) -> Iterator[tuple[int, str]]:
    """Yield numbered lines, which end at ``\\n`` only: other separators of Unicode may be letters."""
    for number, line in enumerate(io.StringIO(text, newline="\n"), 1):
        yield number, line.removesuffix("\n")


def check_size(source: str, line: int | None, weights: Weights, states: int, letters: int) -> None:
    """Refuse what would not fit: the matrices of an automaton are dense."""
    bound = {"rational": MAX_RATIONAL_ENTRIES, "boolean": MAX_BOOLEAN_ENTRIES}.get(weights.name, MAX_ENTRIES)
    if max(letters, 1) * states**2 > bound:
        reason = (
            f"{states} states over {letters} letters do not fit: matrices are dense, and letters × states² may be at "
            f"most {bound} for {weights.name!r} weights; read_dfa reads machines without weights of any size"
        )
        raise AutomatonFormatError(source, line, reason)


def parsed_weight(weights: Weights, text: str) -> Any:
    """Return a weight as it is written in a file; ValueError if it is none, or one of unreasonable length."""
    if len(text) > MAX_WEIGHT_CHARACTERS:
        raise ValueError(f"a weight may have {MAX_WEIGHT_CHARACTERS} characters; this one has {len(text)}")
    exponent = _EXPONENT.search(text)
    if exponent and abs(int(exponent[1].replace("_", "") or 0)) > MAX_EXPONENT:
        raise ValueError(f"the exponent of a weight may be at most {MAX_EXPONENT}; got {text!r}")
    return weights.parse(text)


def written_weight(weights: Weights, weight: Any) -> str:
    """Return the weight as text that :func:`parsed_weight` reads back to the same weight."""
    if isinstance(weight, Fraction) and (bits := _bits(weight)) > 3 * MAX_WEIGHT_CHARACTERS:
        raise ValueError(f"automaton has a weight of {bits} bits; at most {3 * MAX_WEIGHT_CHARACTERS} can be written")
    return weights.written(weight)


class Budget:
    """Bounds the arithmetic that a file can ask for; ValueError when it is spent."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def spend(self, steps: int) -> None:
        """Count ``steps``, and refuse when none are left."""
        self.left -= steps
        if self.left < 0:
            raise ValueError("there are too many ε arcs or parallel arcs to sum them in reasonable time")

    def spend_on(self, results: list[Any]) -> None:
        """Count operations on rationals by their results, which grow; reducing a fraction takes quadratic time."""
        for result in results:
            bits = _bits(result) if isinstance(result, Fraction) else 0
            if bits > MAX_SUM_BITS:
                raise ValueError(f"sums of rational weights grow beyond {MAX_SUM_BITS} bits")
            self.spend(3000 + bits**2 // 250)


def _bits(number: Fraction) -> int:
    return number.numerator.bit_length() + number.denominator.bit_length()
