"""AT&T text, which OpenFst's ``fstprint`` writes and ``fstcompile`` reads.

An arc is a line ``from to label [label] [weight]``, a final state a line ``state [weight]``; the state that begins the
first line is the start, and a missing weight is one.  ``"min_plus"`` is OpenFst's tropical semiring.  OpenFst's log
semiring holds *negative* logarithms, so weights of ``"log"`` change their sign here, in both directions.  All other
semirings are our extension: OpenFst would read their numbers as costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from transductor.automata.formats.errors import AutomatonFormatError
from transductor.automata.formats.graph import Arc, ArcList, arcs_of, as_weighted, assembled, with_one_start
from transductor.automata.formats.limits import MAX_ARCS, lines_of, parsed_weight, text_of, written_weight
from transductor.automata.formats.symbols import (
    EPSILON,
    MAX_ID,
    Symbols,
    SymbolTable,
    fields_of,
    symbol_table,
    whole_number,
    writable_name,
)
from transductor.automata.weighted import WeightedAutomaton
from transductor.automata.weights import Weights, weights_named
from transductor.automata.words import Symbol

Labels: TypeAlias = Literal["names", "numbers"]


@dataclass(frozen=True, slots=True)
class _Row:
    """A line that is not empty."""

    source: str
    line: int
    fields: list[str]

    def refused(self, reason: str) -> AutomatonFormatError:
        return AutomatonFormatError(self.source, self.line, reason)


def parse(
    data: bytes,
    source: str = "<text>",
    *,
    weights: str | Weights = "min_plus",
    symbols: Symbols | None = None,
    labels: Labels | None = None,
    acceptor: bool | None = None,
    alphabet: Sequence[Symbol] | None = None,
) -> WeightedAutomaton:
    """Return the acceptor in AT&T text; parallel arcs are summed, ε arcs removed exactly.

    Args:
        data: The content of the file.
        source: What messages call it.
        weights: The semiring of the weights.
        symbols: A symbol table (file or mapping).  It tells the alphabet, and number 0 is ε.
        labels: Whether labels are ``"names"`` or ``"numbers"``, of the table or as letters of their own, where 0 is ε.
            Without it: numbers if there is no table and every label is a whole number, otherwise names.
        acceptor: Whether arcs have one label (True) or two (False); without it, the columns must tell.
        alphabet: The letters in this order; without it, those of the table, or those that arcs read.
    """
    options: dict[str, Any] = {
        "weights": weights,
        "symbols": symbols,
        "labels": labels,
        "acceptor": acceptor,
        "alphabet": alphabet,
    }
    return assembled(listed_arcs(data, source, **options))


def listed_arcs(
    data: bytes,
    source: str = "<text>",
    *,
    weights: Any = "min_plus",
    symbols: Any = None,
    labels: Any = None,
    acceptor: bool | None = None,
    alphabet: Any = None,
) -> ArcList:
    """Return the arcs in AT&T text; arguments as for :func:`parse`."""
    ring, table = weights_named(weights), symbol_table(symbols)
    _check_labels(labels)
    rows = _rows(text_of(data, source), source)
    arc_rows = [row for row in rows if len(row.fields) > 2]
    paired = not (_acceptor_columns(arc_rows, ring) if acceptor is None else acceptor)
    if labels is None:
        all_numbers = all(whole_number(row.fields[2]) is not None for row in arc_rows)
        labels = "numbers" if table is None and all_numbers else "names"
    numbers: set[int] = set()
    raw_arcs: list[tuple[int, Symbol | None, int, Any]] = []
    raw_final: dict[int, Any] = {}
    for row in rows:
        state = _state(row, 0)
        numbers.add(state)
        if len(row.fields) <= 2:
            if state in raw_final:
                raise row.refused(f"state {state} has a second final weight")
            raw_final[state] = _weight(row, 1, ring)
            continue
        to = _state(row, 1)
        numbers.add(to)
        letter = _letter(row, table, labels)
        raw_arcs.append((state, letter, to, _weight(row, 4 if paired else 3, ring)))
        if paired:
            _check_pair(row)
    names = sorted(numbers)
    place = {number: position for position, number in enumerate(names)}
    arcs: list[Arc] = [(place[state], letter, place[to], weight) for state, letter, to, weight in raw_arcs]
    final = {place[state]: weight for state, weight in raw_final.items()}
    start = {place[_state(rows[0], 0)]: ring.one}
    if alphabet is None and table is not None:
        alphabet = table.alphabet
    return ArcList(source, ring, len(names), arcs, start, final, alphabet, names)


def render(
    automaton: object, *, symbols: Symbols | None = None, labels: Labels | None = None, acceptor: bool = False
) -> bytes:
    """Return the automaton as AT&T text; every line has its weight.

    One start of weight one is needed, so several initial states become a new one (same series).  A state that has no
    arc, and a letter that no arc reads, is kept by a line of weight zero.

    Args:
        automaton: A weighted automaton, a DFA or an NFA.
        symbols: A table that must hold the letters; needed to write names as numbers.
        labels: ``"names"`` or ``"numbers"``; without it, numbers for integer letters, names for strings.
        acceptor: Whether to write each label once, as ``fstcompile --acceptor`` wants it, or twice.
    """
    start, machine = with_one_start(as_weighted(automaton))
    table = symbol_table(symbols)
    _check_labels(labels)
    written = [_label(letter, table, labels) for letter in machine.alphabet]
    if labels is None and table is None:
        _check_kind(machine.alphabet)
    columns = [name if acceptor else f"{name}\t{name}" for name in written]
    ring = machine.weights
    lines: dict[int, list[str]] = {state: [] for state in range(machine.dim)}
    for source, letter, to, weight in arcs_of(machine):
        lines[source].append(f"{source}\t{to}\t{columns[letter]}\t{_written(ring, weight)}")
    zero = _written(ring, ring.zero)
    unread = np.flatnonzero(ring.is_zero(machine.matrices).all(axis=(1, 2)))
    lines[start] += [f"{start}\t{start}\t{columns[letter]}\t{zero}" for letter in unread.tolist()]
    for state, weight in enumerate(machine.final):
        if weight != ring.zero or not lines[state]:
            lines[state].append(f"{state}\t{_written(ring, weight)}")
    ordered = lines.pop(start) + [line for state_lines in lines.values() for line in state_lines]
    return ("\n".join(ordered) + "\n").encode()


def _rows(text: str, source: str) -> list[_Row]:
    rows = []
    for number, line in lines_of(text):
        fields = fields_of(line)
        if len(fields) > 5:
            raise AutomatonFormatError(source, number, f"a line has at most 5 fields; got {len(fields)}")
        if fields:
            rows.append(_Row(source, number, fields))
        if len(rows) > MAX_ARCS:
            raise AutomatonFormatError(source, number, f"at most {MAX_ARCS} lines are read")
    if not rows:
        raise AutomatonFormatError(source, 1, "the file is empty")
    return rows


def _acceptor_columns(rows: list[_Row], ring: Weights) -> bool:
    """Whether arcs have one label: 3 or 4 fields, the last a weight; with two labels they have 4 or 5."""
    widths = {len(row.fields): row for row in rows}
    if 3 in widths and 5 in widths:
        raise widths[3].refused("some arcs have one label, others have two")
    if 5 in widths or not rows:
        return False
    if 3 in widths:
        return True
    for row in rows:
        if row.fields[2] != row.fields[3] and not _is_weight(ring, row.fields[3]):
            _check_pair(row)
    repeated = all(row.fields[2] == row.fields[3] for row in rows)
    weighted = all(_is_weight(ring, row.fields[3]) for row in rows)
    if repeated == weighted:
        reason = "the fourth field may be a second label or a weight; say which with acceptor=False or acceptor=True"
        raise rows[0].refused(reason)
    return weighted


def _is_weight(ring: Weights, text: str) -> bool:
    try:
        _parsed(ring, text)
    except ValueError:
        return False
    return True


def _check_pair(row: _Row) -> None:
    if len(row.fields) < 4:
        raise row.refused("the arc has no output label; give acceptor=True if none has")
    if row.fields[2] != row.fields[3]:
        reason = f"a transducer from {row.fields[2][:40]!r} to {row.fields[3][:40]!r}; only acceptors can be read"
        raise row.refused(reason)


def _state(row: _Row, place: int) -> int:
    number = whole_number(row.fields[place])
    if number is None:
        raise row.refused(f"a state must be a whole number; got {row.fields[place][:40]!r} in field {place + 1}")
    return number


def _letter(row: _Row, table: SymbolTable | None, labels: Labels) -> Symbol | None:
    label = row.fields[2]
    if labels == "numbers":
        number = whole_number(label)
        if number is None or number > MAX_ID:
            raise row.refused(f"a label must be in 0…{MAX_ID}; got {label[:40]!r}")
        if number == 0:
            return None
        if table is None:
            return number
        if number not in table.names:
            raise row.refused(f"the label {number} is not in the symbol table")
        return table.names[number]
    if label == (EPSILON if table is None else table.epsilon):
        return None
    if table is not None and label not in table.ids:
        raise row.refused(f"the label {label[:40]!r} is not in the symbol table")
    return label


def _weight(row: _Row, place: int, ring: Weights) -> Any:
    if place >= len(row.fields):
        return ring.one
    if place < len(row.fields) - 1:
        raise row.refused(f"field {place + 2} is one too many")
    try:
        return _parsed(ring, row.fields[place])
    except ValueError as error:
        raise row.refused(str(error)) from None


def _parsed(ring: Weights, text: str) -> Any:
    if ring.name == "log":
        return -parsed_weight(weights_named("min_plus"), text)
    return parsed_weight(ring, text)


def _written(ring: Weights, weight: Any) -> str:
    text = written_weight(ring, -weight if ring.name == "log" else weight)
    return text.replace("inf", "Infinity")


def _label(letter: Symbol, table: SymbolTable | None, labels: Labels | None) -> str:
    if isinstance(letter, int) and not isinstance(letter, bool) and table is None and labels != "names":
        if not 0 < letter <= MAX_ID:
            raise ValueError(f"integer letters must be in 1…{MAX_ID}, since label 0 is ε; got {letter}")
        return str(letter)
    if table is None:
        if labels == "numbers":
            raise ValueError(f"symbols must be given to write the letter {letter!r} as a number")
        return writable_name(letter)
    if not isinstance(letter, str) or not table.ids.get(letter):
        raise ValueError(f"symbols must hold every letter, and not as ε; got {letter!r}")
    return str(table.ids[letter]) if labels == "numbers" else writable_name(letter, table.epsilon)


def _check_labels(labels: object) -> None:
    if labels not in (None, "names", "numbers"):
        raise ValueError(f"labels must be 'names', 'numbers' or None; got {labels!r}")


def _check_kind(alphabet: Sequence[Symbol]) -> None:
    """Return a file cannot tell a number from a name that looks like one, so there may be only one kind of letter."""
    names = [letter for letter in alphabet if isinstance(letter, str)]
    if names and len(names) < len(alphabet):
        raise ValueError(f"letters must all be strings, or all integers, in AT&T text; {names[0]!r} is a string")
    if names and all(whole_number(name) is not None for name in names):
        raise ValueError(
            f"the letters {', '.join(map(repr, names[:4]))} would be read as label numbers; give labels='names' here "
            "and where the file is read, or a table of symbols"
        )
