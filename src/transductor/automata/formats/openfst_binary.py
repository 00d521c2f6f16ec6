"""The bytes of an OpenFst file of the type ``vector``: decoded with every length checked, and encoded.

OpenFst's own reader trusts what it reads, down to a crash, and pynini shows weights with nine digits only; so files are
read and written here, and passed to OpenFst only when they are sound.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from transductor.automata.formats.errors import AutomatonFormatError
from transductor.automata.formats.limits import MAX_ARCS
from transductor.automata.formats.symbols import MAX_ID

ARC_TYPES: Final = {"standard": "<f4", "log": "<f4", "log64": "<f8"}
"""The arc types that can be read, and how each writes a weight."""

_FST_MAGIC: Final = 2125659606
_SYMBOLS_MAGIC: Final = 2125658996
_VERSION: Final = 2
_HAS_INPUT_SYMBOLS, _HAS_OUTPUT_SYMBOLS, _IS_ALIGNED = 1, 2, 4
_MAX_NAME: Final = 2**16


@dataclass(frozen=True)
class VectorFst:
    """States 0, 1, … with a final weight and arcs ``(in, out, weight, to)`` each; weights as OpenFst means them."""

    arc_type: str
    start: int
    final: list[float]
    arcs: list[list[tuple[int, int, float, int]]]
    symbols: Mapping[int, str] | None = None


def encoded(fst: VectorFst) -> bytes:
    """Return the file that OpenFst would write, less its hints about properties."""
    flags = 0 if fst.symbols is None else _HAS_INPUT_SYMBOLS | _HAS_OUTPUT_SYMBOLS
    count = sum(map(len, fst.arcs))
    weight, arc = _dtypes(fst.arc_type)
    parts = [struct.pack("<i", _FST_MAGIC), _name_bytes("vector"), _name_bytes(fst.arc_type)]
    parts.append(struct.pack("<iiQqqq", _VERSION, flags, 0, fst.start, len(fst.final), count))
    if fst.symbols is not None:
        table = [struct.pack("<i", _SYMBOLS_MAGIC), _name_bytes("letters")]
        table.append(struct.pack("<qq", max(fst.symbols, default=-1) + 1, len(fst.symbols)))
        table += [_name_bytes(name) + struct.pack("<q", number) for number, name in sorted(fst.symbols.items())]
        parts += 2 * table
    for final, arcs in zip(fst.final, fst.arcs, strict=True):
        parts += [np.array(final, dtype=weight).tobytes(), struct.pack("<q", len(arcs))]
        parts.append(np.array(arcs, dtype=arc).tobytes())
    return b"".join(parts)


def decoded(data: bytes, source: str) -> VectorFst:
    """Return what a file holds; AutomatonFormatError unless it is complete and consistent."""
    if not data:
        raise AutomatonFormatError(source, None, "the file is empty")
    cursor = _Cursor(data, source)
    if cursor.number("i", "the header") != _FST_MAGIC:
        raise cursor.refused("this is no OpenFst file: its first four bytes are others")
    fst_type, arc_type = cursor.name("the FST type"), cursor.name("the arc type")
    if fst_type != "vector":
        raise cursor.refused(f"the FST type must be 'vector' (fstconvert --fst_type=vector); got {fst_type[:40]!r}")
    if arc_type not in ARC_TYPES:
        raise cursor.refused(f"the arc type must be 'standard', 'log' or 'log64'; got {arc_type[:40]!r}")
    version, flags = cursor.number("i", "the header"), cursor.number("i", "the header")
    if version != _VERSION:
        raise cursor.refused(f"the version must be {_VERSION}; got {version}")
    if flags & ~(_HAS_INPUT_SYMBOLS | _HAS_OUTPUT_SYMBOLS | _IS_ALIGNED):
        raise cursor.refused(f"the flags {flags:#x} are not known")
    cursor.take(8, "the header")  # properties: hints that nothing here relies on
    start, states = cursor.number("q", "the header"), cursor.number("q", "the header")
    cursor.take(8, "the header")  # the number of arcs: a hint, too
    symbols = _symbols(cursor) if flags & _HAS_INPUT_SYMBOLS else None
    if flags & _HAS_OUTPUT_SYMBOLS:
        written = _symbols(cursor)
        if symbols is not None and written != symbols:
            raise cursor.refused("a transducer: input and output symbols differ; only acceptors can be read")
        symbols = written
    final, arcs = _states(cursor, arc_type, states)
    if not 0 <= start < len(final):
        raise cursor.refused("there is no start state" if start == -1 else f"the start state {start} is not there")
    return VectorFst(arc_type, start, final, arcs, symbols)


class _Cursor:
    """Reads little-endian numbers and refuses to run past the end."""

    def __init__(self, data: bytes, source: str) -> None:
        self.data = data
        self.source = source
        self.place = 0

    def take(self, count: int, what: str) -> bytes:
        if count > len(self.data) - self.place:
            raise self.refused(f"the file ends inside {what}")
        self.place += count
        return self.data[self.place - count : self.place]

    def number(self, kind: str, what: str) -> int:
        return int(struct.unpack(f"<{kind}", self.take(struct.calcsize(f"<{kind}"), what))[0])

    def name(self, what: str) -> str:
        length = self.number("i", what)
        if not 0 <= length <= _MAX_NAME:
            raise self.refused(f"{what} has the length {length}")
        try:
            return self.take(length, what).decode()
        except UnicodeDecodeError:
            raise self.refused(f"{what} is not UTF-8") from None

    def refused(self, reason: str) -> AutomatonFormatError:
        return AutomatonFormatError(self.source, None, f"{reason} (byte {self.place})")


def _symbols(cursor: _Cursor) -> dict[int, str]:
    if cursor.number("i", "the symbol table") != _SYMBOLS_MAGIC:
        raise cursor.refused("the symbol table does not begin as one")
    cursor.name("the symbol table's name")
    cursor.take(8, "the symbol table")
    size = cursor.number("q", "the symbol table")
    if not 0 <= size <= len(cursor.data):
        raise cursor.refused(f"the symbol table has the size {size}")
    symbols: dict[int, str] = {}
    names: set[str] = set()
    for _ in range(size):
        name, number = cursor.name("a symbol"), cursor.number("q", "a symbol")
        if not 0 <= number <= MAX_ID:
            raise cursor.refused(f"the symbol {name[:40]!r} has the number {number}")
        if name in names or number in symbols:
            raise cursor.refused(f"the symbol {name[:40]!r} or its number {number} is there twice")
        names.add(name)
        symbols[number] = name
    return symbols


def _states(cursor: _Cursor, arc_type: str, states: int) -> tuple[list[float], list[list[tuple[int, int, float, int]]]]:
    """Read final weights and arcs; a file written as a stream does not say how many (-1) and goes on to its end."""
    weight, arc = _dtypes(arc_type)
    if not -1 <= states <= len(cursor.data):
        raise cursor.refused(f"the number of states is {states}")
    final: list[float] = []
    arcs: list[list[tuple[int, int, float, int]]] = []
    total, furthest = 0, -1
    while len(final) < states or (states == -1 and cursor.place < len(cursor.data)):
        what = f"state {len(final)}"
        final.append(float(np.frombuffer(cursor.take(weight.itemsize, what), dtype=weight)[0]))
        count = cursor.number("q", what)
        total += max(count, 0)
        if count < 0 or total > MAX_ARCS:
            raise cursor.refused(f"{what} has {count} arcs; at most {MAX_ARCS} arcs are read")
        block = np.frombuffer(cursor.take(count * arc.itemsize, f"the arcs of {what}"), dtype=arc)
        if count:
            if min(block["in"].min(), block["out"].min(), block["to"].min()) < 0:
                raise cursor.refused(f"an arc of {what} has a negative label or target")
            furthest = max(furthest, int(block["to"].max()))
        arcs.append(block.tolist())
    if furthest >= len(final):
        raise cursor.refused(f"an arc goes to state {furthest}, and there are {len(final)} states")
    if cursor.place < len(cursor.data):
        raise cursor.refused("there is something after the last state")
    return final, arcs


def _dtypes(arc_type: str) -> tuple[np.dtype[Any], np.dtype[Any]]:
    weight: npt.DTypeLike = ARC_TYPES[arc_type]
    return np.dtype(weight), np.dtype([("in", "<i4"), ("out", "<i4"), ("weight", weight), ("to", "<i4")])


def _name_bytes(name: str) -> bytes:
    data = name.encode()
    if len(data) > _MAX_NAME:
        raise ValueError(f"letters may have at most {_MAX_NAME} bytes; {name[:20]!r}… has {len(data)}")
    return struct.pack("<i", len(data)) + data
