"""Graphviz: a graph to look at, whose attributes hold the automaton exactly, so that it can be read back.

Only what is written here can be read: one statement in each line, every attribute in quotes.  ``label`` and the other
attributes of style are ignored; ``weights``, ``states`` and ``letters`` of the graph, ``initial`` and
``final`` of a node, ``weight_0``, ``weight_1``, … of an edge (one for each letter it reads) are the automaton.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from transductor.automata.formats.errors import AutomatonFormatError
from transductor.automata.formats.graph import ArcList, as_weighted, assembled, edges_of
from transductor.automata.formats.labels import arc_label, weight_label
from transductor.automata.formats.limits import check_size, lines_of, parsed_weight, text_of, written_weight
from transductor.automata.formats.symbols import alphabet_from_json, alphabet_to_json, whole_number
from transductor.automata.weighted import WeightedAutomaton
from transductor.automata.weights import WEIGHTS, Weights

VERSION = "1"

_STATEMENT = re.compile(r"(graph|node|edge|[0-9]+|start_[0-9]+)(?:\s*->\s*([0-9]+))?\s*\[(.*)\](?:\s*;)?\Z")
_ATTRIBUTE = re.compile(r'\s*(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(,|\Z)', re.ASCII)
_OPENING = re.compile(r"digraph\s+automaton\s*\{\Z")
_STYLE = frozenset(("arrowsize", "fontname", "fontsize", "height", "label", "margin", "rankdir", "shape", "width"))


def render(automaton: object) -> bytes:
    """Return the automaton as a graph: zeros are not drawn, ones not written, parallel arcs share an edge."""
    machine = as_weighted(automaton)
    ring = machine.weights
    graph = {
        "rankdir": "LR",
        "transductor": VERSION,
        "weights": ring.name,
        "states": str(machine.dim),
        "letters": json.dumps(alphabet_to_json(machine.alphabet)),
    }
    lines = [
        "digraph automaton {",
        _statement("graph", graph),
        _statement("node", {"shape": "circle", "fontname": "Helvetica", "width": "0.45", "margin": "0.03"}),
        _statement("edge", {"fontname": "Helvetica", "fontsize": "11", "arrowsize": "0.7"}),
    ]
    for state in range(machine.dim):
        lines += _state_statements(machine, state)
    for (source, to), read in edges_of(machine).items():
        label = arc_label(machine, read)
        exact = {f"weight_{letter}": written_weight(ring, weight) for letter, weight in read}
        lines.append(_statement(f"{source} -> {to}", {"label": _escaped_label(label), **exact}))
    return ("\n".join([*lines, "}"]) + "\n").encode()


def _state_statements(machine: WeightedAutomaton, state: int) -> Iterator[str]:
    ring, initial, final = machine.weights, machine.initial[state], machine.final[state]
    attributes = {"label": str(state)}
    if final != ring.zero:
        attributes |= {"shape": "doublecircle", "final": written_weight(ring, final)}
        if shown := weight_label(ring, final):
            attributes["label"] += f"\\n→ {shown}"
    if initial != ring.zero:
        attributes["initial"] = written_weight(ring, initial)
    yield _statement(str(state), attributes)
    if initial != ring.zero:
        yield _statement(f"start_{state}", {"label": "", "shape": "none", "width": "0", "height": "0"})
        yield _statement(f"start_{state} -> {state}", {"label": weight_label(ring, initial)})


def _statement(subject: str, attributes: dict[str, str]) -> str:
    # A label brings the escapes that Graphviz interprets; every other attribute is quoted here.
    quoted = (f'{key}="{value if key == "label" else _escaped(value)}"' for key, value in attributes.items())
    return f"  {subject} [{', '.join(quoted)}];"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _escaped_label(text: str) -> str:
    return _escaped(text.replace("&", "&amp;")).replace("\n", "\\n")


class _Graph:
    """What the lines that were read so far say."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.weights: Weights | None = None
        self.states = 0
        self.alphabet: tuple[Any, ...] = ()
        self.letters: dict[str, Any] = {}
        self.seen: set[int] = set()
        self.edges: set[tuple[int, int]] = set()
        self.arcs: list[tuple[int, Any, int, Any]] = []
        self.initial: dict[int, Any] = {}
        self.final: dict[int, Any] = {}

    def read(self, line: int, text: str) -> None:
        statement = _STATEMENT.match(text)
        if not statement:
            raise self.refused(line, f"not a statement that this library writes: {text[:60]!r}")
        subject, target, attributes = statement[1], statement[2], self.attributes(line, statement[3])
        if subject == "graph" and target is None and attributes.keys() - _STYLE:
            self.read_graph(line, attributes)
        elif subject in ("graph", "node", "edge") or subject.startswith("start_"):
            if target is not None and not subject.startswith("start_"):
                raise self.refused(line, f"an edge must go from a state; got {subject!r}")
            self.allow(line, attributes, set())
        elif target is None:
            self.read_state(line, self.state(line, subject), attributes)
        else:
            self.read_edge(line, self.state(line, subject), self.state(line, target), attributes)

    def read_graph(self, line: int, attributes: dict[str, str]) -> None:
        self.allow(line, attributes, {"transductor", "weights", "states", "letters"})
        if self.weights is not None:
            raise self.refused(line, "a second graph statement says what the weights are")
        for name in ("transductor", "weights", "states", "letters"):
            if name not in attributes:
                raise self.refused(line, f"the graph has no attribute {name!r}")
        if attributes["transductor"] != VERSION:
            raise self.refused(line, f"version {attributes['transductor'][:20]!r} is not {VERSION!r}")
        if attributes["weights"] not in WEIGHTS:
            raise self.refused(line, f"weights must be one of {', '.join(WEIGHTS)}; got {attributes['weights'][:40]!r}")
        states = whole_number(attributes["states"])
        if states is None:
            raise self.refused(line, f"states must be a whole number; got {attributes['states'][:40]!r}")
        try:
            letters = json.loads(attributes["letters"])
        except (ValueError, RecursionError):
            raise self.refused(line, "letters must be a JSON list") from None
        self.alphabet = alphabet_from_json(letters, self.source, line, "letters")
        self.letters = {f"weight_{number}": letter for number, letter in enumerate(self.alphabet)}
        weights = WEIGHTS[attributes["weights"]]
        check_size(self.source, line, weights, states, len(self.alphabet))
        self.weights, self.states = weights, states

    def read_state(self, line: int, state: int, attributes: dict[str, str]) -> None:
        self.allow(line, attributes, {"initial", "final"})
        if state in self.seen:
            raise self.refused(line, f"state {state} is there twice")
        self.seen.add(state)
        if "initial" in attributes:
            self.initial[state] = self.weight(line, attributes["initial"])
        if "final" in attributes:
            self.final[state] = self.weight(line, attributes["final"])

    def read_edge(self, line: int, source: int, to: int, attributes: dict[str, str]) -> None:
        self.allow(line, attributes, self.letters.keys())
        if (source, to) in self.edges:
            raise self.refused(line, f"the edge from {source} to {to} is there twice")
        self.edges.add((source, to))
        for name, text in attributes.items():
            if name in self.letters:
                self.arcs.append((source, self.letters[name], to, self.weight(line, text)))

    def attributes(self, line: int, text: str) -> dict[str, str]:
        attributes: dict[str, str] = {}
        place, more = 0, bool(text.strip())
        while more:
            match = _ATTRIBUTE.match(text, place)
            if not match:
                raise self.refused(line, f'attributes must be name="value", …; got {text[place : place + 40]!r}')
            if match[1] in attributes:
                raise self.refused(line, f"the attribute {match[1]!r} is there twice")
            attributes[match[1]] = re.sub(r"\\(.)", r"\1", match[2])
            place, more = match.end(), match[3] == ","
        return attributes

    def allow(self, line: int, attributes: dict[str, str], names: Any) -> None:
        for name in attributes:
            if name not in names and name not in _STYLE:
                raise self.refused(line, f"the attribute {name[:40]!r} is not known here")

    def state(self, line: int, text: str) -> int:
        number = whole_number(text)
        if self.weights is None:
            raise self.refused(line, "the graph statement, which says what the weights are, must come first")
        if number is None or number >= self.states:
            raise self.refused(line, f"state {text[:40]} is not one of the {self.states} states")
        return number

    def weight(self, line: int, text: str) -> Any:
        assert self.weights is not None
        try:
            return parsed_weight(self.weights, text)
        except ValueError as error:
            raise self.refused(line, str(error)) from None

    def refused(self, line: int, reason: str) -> AutomatonFormatError:
        return AutomatonFormatError(self.source, line, reason)


def parse(data: bytes, source: str = "<text>") -> WeightedAutomaton:
    """Return the automaton in a graph that :func:`render` wrote; the same numbers, not only the same series."""
    graph = _Graph(source)
    opened, closed, number = False, False, 1
    for number, line in lines_of(text_of(data, source)):
        stripped = line.strip()
        if not stripped or stripped.startswith("//"):
            continue
        if closed:
            raise graph.refused(number, "there is something after the last '}'")
        if not opened:
            if not _OPENING.match(stripped):
                raise graph.refused(number, "the first line must be 'digraph automaton {'")
            opened = True
        elif stripped == "}":
            closed = True
        else:
            graph.read(number, stripped)
    if not closed:
        raise graph.refused(number, "the file must end with '}'; it may be cut off")
    if graph.weights is None:
        raise graph.refused(number, "no graph statement says what the weights are")
    missing = next((state for state in range(graph.states) if state not in graph.seen), None)
    if missing is not None:
        raise graph.refused(number, f"state {missing} of {graph.states} has no line")
    ends = graph.initial, graph.final
    return assembled(ArcList(source, graph.weights, graph.states, graph.arcs, *ends, graph.alphabet))
