"""Automata in files: AT&T text, OpenFst, Graphviz, JFLAP and our own JSON; written, also expressions."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any, Final

from transductor.automata.boolean import as_dfa
from transductor.automata.finite_algebra import minimised
from transductor.automata.finite_automata import DFA, determinised
from transductor.automata.formats import att, dot, expressions, jflap, native, openfst
from transductor.automata.formats.errors import AutomatonFormatError
from transductor.automata.formats.graph import language_of_arcs
from transductor.automata.formats.limits import read_bytes
from transductor.automata.formats.symbols import read_symbols, write_symbols
from transductor.automata.weighted import WeightedAutomaton
from transductor.results import write_atomically

__all__ = [
    "EXPRESSION_SUFFIXES",
    "FORMATS",
    "SUFFIXES",
    "AutomatonFormatError",
    "read",
    "read_dfa",
    "read_symbols",
    "write",
    "write_symbols",
]

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

EXPRESSION_SUFFIXES: Final = {f".{name}": name for name in expressions.EXPRESSIONS}
"""Files that :func:`write` writes and ``automaton_from`` reads: regular expressions and sentences of logic."""


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
    module = _reader(path, format)
    automaton: WeightedAutomaton = module.parse(read_bytes(path), str(path), **options)
    return automaton


def read_dfa(path: str | Path, format: str | None = None, *, limit: int = 200_000, **options: Any) -> DFA:
    """Return the language of a machine without weights in a file, as a minimal DFA.

    AT&T text and OpenFst files are read arc by arc, so that the number of letters times states² does not matter.

    Args:
        path: The file.
        format: As for :func:`read`.
        limit: The most states of a deterministic automaton before it is minimised.
        **options: As for :func:`read`; a weight must be the one or the zero of ``weights``.

    Raises:
        AutomatonFormatError: As for :func:`read`, and where a weight is neither zero nor one.
    """
    module = _reader(path, format)
    if module not in (att, openfst):
        automaton = read(path, format, **options)
        if automaton.weights.name != "boolean":
            raise AutomatonFormatError(str(path), None, f"it has {automaton.weights.name!r} weights: use read")
        return as_dfa(automaton)
    nfa = language_of_arcs(module.listed_arcs(read_bytes(path), str(path), **options))
    try:
        return minimised(determinised(nfa, limit=limit))
    except ValueError as error:
        raise AutomatonFormatError(str(path), None, str(error)) from None


def write(automaton: object, path: str | Path, format: str | None = None, **options: Any) -> Path:
    """Write a weighted automaton, a DFA or an NFA; readers see the old file or the complete new one.

    Args:
        automaton: What to write.
        path: The file.
        format: As for :func:`read`; or ``"regex"``, ``"mso"``, ``"fo"`` or ``"wmso"``, for an expression.
        **options: What the format's ``render`` takes: ``symbols=``, ``labels=`` and ``acceptor=`` for AT&T text,
            ``arc_type=`` and ``symbols=`` for OpenFst, ``limit=`` for expressions.
    """
    name = _format(path, format)
    if name in expressions.EXPRESSIONS:
        return write_atomically(path, expressions.render(automaton, name, **options))
    data: bytes = FORMATS[name].render(automaton, **options)
    return write_atomically(path, data)


def _reader(path: str | Path, format: str | None) -> ModuleType:
    name = _format(path, format)
    if name in expressions.EXPRESSIONS:
        raise expressions.refusal(str(path), name)
    return FORMATS[name]


def _format(path: str | Path, format: str | None) -> str:
    suffixes, names = SUFFIXES | EXPRESSION_SUFFIXES, (*FORMATS, *expressions.EXPRESSIONS)
    if format is None:
        suffix = Path(path).suffix.lower()
        if suffix not in suffixes:
            raise ValueError(f"path must end in one of {', '.join(suffixes)}, or format be given; got {str(path)!r}")
        return suffixes[suffix]
    if format not in names:
        raise ValueError(f"format must be one of {', '.join(map(repr, names))}; got {format!r}")
    return format
