"""Automata in files: AT&T text, OpenFst, Graphviz, JFLAP and our own JSON."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any, Final

from transductor.automata.formats import att, dot, jflap, native, openfst
from transductor.automata.formats.errors import AutomatonFormatError
from transductor.automata.formats.limits import read_bytes
from transductor.automata.formats.symbols import read_symbols, write_symbols
from transductor.automata.weighted import WeightedAutomaton
from transductor.results import write_atomically

__all__ = ["FORMATS", "SUFFIXES", "AutomatonFormatError", "read", "read_symbols", "write", "write_symbols"]

FORMATS: Final[dict[str, ModuleType]] = {"att": att, "openfst": openfst, "dot": dot, "jflap": jflap, "native": native}
"""Each is a module with ``parse(data, source, **options)`` and ``render(automaton, **options)``."""

SUFFIXES: Final = {
    ".att": "att",
    ".txt": "att",
    ".fst": "openfst",
    ".dot": "dot",
    ".gv": "dot",
    ".jff": "jflap",
    ".json": "native",
}


def read(path: str | Path, format: str | None = None, **options: Any) -> WeightedAutomaton:
    """Return the automaton in a file.

    Args:
        path: The file.
        format: ``"att"``, ``"openfst"``, ``"dot"``, ``"jflap"`` or ``"native"``; without it, the suffix tells.
        **options: What the format's ``parse`` takes: ``weights=``, ``symbols=``, ``labels=``, ``acceptor=`` and
            ``alphabet=`` for AT&T text, ``symbols=`` and ``alphabet=`` for OpenFst, ``alphabet=`` for JFLAP.

    Raises:
        AutomatonFormatError: What the file holds is no automaton, or too large; the message names file and line.
    """
    module = FORMATS[_format(path, format)]
    automaton: WeightedAutomaton = module.parse(read_bytes(path), str(path), **options)
    return automaton


def write(automaton: object, path: str | Path, format: str | None = None, **options: Any) -> Path:
    """Write a weighted automaton, a DFA or an NFA; readers see the old file or the complete new one.

    Args:
        automaton: What to write.
        path: The file.
        format: As for :func:`read`.
        **options: What the format's ``render`` takes: ``symbols=``, ``labels=`` and ``acceptor=`` for AT&T text,
            ``arc_type=`` and ``symbols=`` for OpenFst.
    """
    module = FORMATS[_format(path, format)]
    data: bytes = module.render(automaton, **options)
    return write_atomically(path, data)


def _format(path: str | Path, format: str | None) -> str:
    if format is None:
        suffix = Path(path).suffix.lower()
        if suffix not in SUFFIXES:
            raise ValueError(f"path must end in one of {', '.join(SUFFIXES)}, or format be given; got {str(path)!r}")
        return SUFFIXES[suffix]
    if format not in FORMATS:
        raise ValueError(f"format must be one of {', '.join(map(repr, FORMATS))}; got {format!r}")
    return format
