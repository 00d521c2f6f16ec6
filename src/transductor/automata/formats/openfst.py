"""OpenFst's binary files, and pynini's objects with the extra ``transductor[openfst]``.

Three arc types are known: ``"standard"`` (tropical, ``"min_plus"`` here, rounded to float32 as OpenFst keeps it),
``"log"`` (float32) and ``"log64"``.  OpenFst's log weights are *negative* logarithms; their sign changes here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Final

import numpy as np

from transductor.automata.formats.errors import AutomatonFormatError
from transductor.automata.formats.graph import Arc, ArcList, arcs_of, as_weighted, assembled, with_one_start
from transductor.automata.formats.openfst_binary import VectorFst, decoded, encoded
from transductor.automata.formats.symbols import EPSILON, MAX_ID, Symbols, encodable, symbol_table
from transductor.automata.weighted import WeightedAutomaton
from transductor.automata.weights import weights_named
from transductor.automata.words import Symbol

_WEIGHTS: Final = {"standard": "min_plus", "log": "log", "log64": "log"}
_ARC_TYPES: Final = {"min_plus": ("standard",), "log": ("log64", "log")}


def parse(
    data: bytes, source: str = "<bytes>", *, symbols: Symbols | None = None, alphabet: Sequence[Symbol] | None = None
) -> WeightedAutomaton:
    """Return the acceptor in a binary file of the type ``vector``; parallel arcs are summed, ε arcs removed exactly.

    Letters are the names in ``symbols``, else those in the file's own table, else the label numbers themselves.
    """
    return assembled(listed_arcs(data, source, symbols=symbols, alphabet=alphabet))


def listed_arcs(
    data: bytes, source: str = "<bytes>", *, symbols: Symbols | None = None, alphabet: Sequence[Symbol] | None = None
) -> ArcList:
    """Return the arcs in a binary file of the type ``vector``; arguments as for :func:`parse`."""
    fst, table = decoded(data, source), symbol_table(symbols)
    names = fst.symbols if table is None else table.names
    ring = weights_named(_WEIGHTS[fst.arc_type])
    sign = -1.0 if ring.name == "log" else 1.0

    def weight(number: float, state: int) -> float:
        if math.isnan(number) or number == -math.inf:
            raise AutomatonFormatError(source, None, f"state {state} has the weight {number}, which is none")
        return sign * number

    arcs: list[Arc] = []
    for state, leaving in enumerate(fst.arcs):
        for read, written, number, to in leaving:
            if read != written:
                reason = f"a transducer: an arc of state {state} reads {read} and writes {written}"
                raise AutomatonFormatError(source, None, f"{reason}; only acceptors can be read")
            if read != 0 and names is not None and read not in names:
                raise AutomatonFormatError(source, None, f"the label {read} is not in the symbol table")
            letter: Symbol = read if names is None else names.get(read)
            arcs.append((state, None if read == 0 else letter, to, weight(number, state)))
    final = {state: weight(number, state) for state, number in enumerate(fst.final)}
    if alphabet is None and names is not None:
        alphabet = tuple(names[number] for number in sorted(names) if number != 0)
    return ArcList(source, ring, len(final), arcs, {fst.start: ring.one}, final, alphabet)


def render(automaton: object, *, arc_type: str | None = None, symbols: Symbols | None = None) -> bytes:
    """Return the automaton, whose weights are ``"min_plus"`` or ``"log"``, as a binary file.

    Several initial states become a new one (same series).  String letters get a symbol table, that of ``symbols`` or
    one numbered from 1; integer letters are labels, and one that no arc reads is kept by an arc of weight zero.
    ``arc_type`` is ``"standard"`` for ``"min_plus"``; ``"log64"`` (the default) or ``"log"`` for ``"log"``.
    """
    start, machine = with_one_start(as_weighted(automaton))
    ring = machine.weights
    if ring.name not in _ARC_TYPES:
        raise ValueError(f"weights must be 'min_plus' or 'log' for OpenFst; got {ring.name!r}")
    allowed = _ARC_TYPES[ring.name]
    kind = allowed[0] if arc_type is None else arc_type
    if kind not in allowed:
        raise ValueError(f"arc_type must be one of {', '.join(map(repr, allowed))} for {ring.name!r}; got {arc_type!r}")
    sign = -1.0 if ring.name == "log" else 1.0

    def weight(value: Any) -> float:
        number = sign * float(value)
        if kind != "log64" and math.isfinite(number) and abs(number) > float(np.finfo(np.float32).max):
            raise ValueError(f"the weight {value} is too large for the float32 weights of {kind!r}")
        return number

    labels, names = _labels(machine.alphabet, symbols)
    arcs: list[list[tuple[int, int, float, int]]] = [[] for _ in range(machine.dim)]
    for source, letter, to, value in arcs_of(machine):
        arcs[source].append((labels[letter], labels[letter], weight(value), to))
    if names is None:
        unread = np.flatnonzero(ring.is_zero(machine.matrices).all(axis=(1, 2)))
        arcs[start] += [(labels[letter], labels[letter], math.inf, start) for letter in unread.tolist()]
    return encoded(VectorFst(kind, start, [weight(value) for value in machine.final], arcs, names))


def from_pynini(
    fst: Any, *, symbols: Symbols | None = None, alphabet: Sequence[Symbol] | None = None
) -> WeightedAutomaton:
    """Return the series of a pynini acceptor, with all digits of its weights; arguments as for :func:`parse`."""
    return parse(fst.write_to_string(), "fst", symbols=symbols, alphabet=alphabet)


def to_pynini(automaton: object, *, arc_type: str | None = None, symbols: Symbols | None = None) -> Any:
    """Return a pynini ``Fst`` with the series of ``automaton``; arguments as for :func:`render`."""
    try:
        pynini = import_module("pynini")
    except ImportError as error:
        raise ImportError("to_pynini needs pynini: pip install 'transductor[openfst]'") from error
    return pynini.Fst.read_from_string(render(automaton, arc_type=arc_type, symbols=symbols))


def _labels(alphabet: Sequence[Symbol], symbols: Symbols | None) -> tuple[list[int], Mapping[int, str] | None]:
    """Return the number of each letter, and the names to attach, if letters are names."""
    table = symbol_table(symbols)
    if table is None and alphabet and all(type(letter) is int for letter in alphabet):
        numbers: list[Any] = list(alphabet)
        for number in numbers:
            if not 0 < number <= MAX_ID:
                raise ValueError(f"integer letters must be in 1…{MAX_ID}, since label 0 is ε; got {number}")
        return numbers, None
    letters: list[str] = []
    for letter in alphabet:
        if not isinstance(letter, str):
            raise ValueError(f"letters must all be strings, or all integers, for OpenFst; got {letter!r}")
        letters.append(encodable(letter))
    if table is None:
        if EPSILON in letters:
            raise ValueError(f"the letter {EPSILON!r} is the name of ε; give symbols with another name for ε")
        names = {0: EPSILON} | dict(enumerate(letters, 1))
        return list(range(1, len(names))), names
    for name in letters:
        if not table.ids.get(name):
            raise ValueError(f"symbols must hold every letter, and not as ε; got {name!r}")
    return [table.ids[name] for name in letters], table.names
