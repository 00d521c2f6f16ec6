"""JFLAP's ``.jff`` files: finite automata, whose weights are truth values.

JFLAP has no list of letters: those that arcs read are the alphabet, sorted.  An automaton with a
letter that no arc reads is written with one state more, which nothing reaches, to keep the letter.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np

from transductor.automata.formats.errors import AutomatonFormatError
from transductor.automata.formats.graph import Arc, ArcList, arcs_of, as_weighted, assembled, with_one_start
from transductor.automata.formats.limits import text_of
from transductor.automata.formats.safe_xml import Element, parsed_xml
from transductor.automata.formats.symbols import whole_number
from transductor.automata.weighted import WeightedAutomaton
from transductor.automata.weights import weights_named
from transductor.automata.words import Symbol

_OTHER_TYPES = {
    "pda": "a pushdown automaton",
    "turing": "a Turing machine",
    "mealy": "a Mealy machine",
    "moore": "a Moore machine",
    "grammar": "a grammar",
    "re": "a regular expression",
    "lsystem": "an L-system",
    "unrestricted": "a grammar",
    "cfpumpinglemma": "a pumping lemma",
    "regularpumpinglemma": "a pumping lemma",
}
_XML_CHARACTER = re.compile("[\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]\\Z")


def parse(data: bytes, source: str = "<text>", *, alphabet: Sequence[Symbol] | None = None) -> WeightedAutomaton:
    """Return the finite automaton in a JFLAP file, with weights ``"boolean"``; ε arcs are removed.

    ``alphabet`` gives the letters in this order; without it, those that the file reads.
    """
    root = parsed_xml(text_of(data, source), source)
    parts = _automaton(root, source)
    places: dict[int, int] = {}
    starts: list[Element] = []
    accepting: list[int] = []
    for element in parts:
        if element.tag == "state":
            number = _number(element.attributes.get("id"), "a state's id", element, source)
            if number in places:
                raise AutomatonFormatError(source, element.line, f"state {number} is there twice")
            places[number] = len(places)
            if element.all("final"):
                accepting.append(places[number])
            if element.all("initial"):
                starts.append(element)
    if len(starts) != 1:
        line = starts[1].line if starts else root.line
        raise AutomatonFormatError(source, line, f"one state must be initial; {len(starts)} are")
    start = places[_number(starts[0].attributes["id"], "a state's id", starts[0], source)]
    arcs = [_arc(element, places, source) for element in parts if element.tag == "transition"]
    ring = weights_named("boolean")
    final = dict.fromkeys(accepting, True)
    return assembled(ArcList(source, ring, len(places), arcs, {start: True}, final, alphabet, list(places)))


def render(automaton: object) -> bytes:
    """Return the automaton for JFLAP, states on a circle; several initial states become a new one (same language).

    Letters must be single characters: JFLAP reads ``ab`` as ``a`` and then ``b``.
    """
    machine = as_weighted(automaton)
    if machine.weights.name != "boolean":
        raise ValueError(f"weights must be 'boolean' for JFLAP, which has none; got {machine.weights.name!r}")
    written = [_escaped(letter) for letter in machine.alphabet]
    start, machine = with_one_start(machine)
    unread = np.flatnonzero(~machine.matrices.any(axis=(1, 2))).tolist()
    transitions = [(source, to, written[letter]) for source, letter, to, _ in arcs_of(machine)]
    transitions += [(machine.dim, machine.dim, written[letter]) for letter in unread]
    states = machine.dim + bool(unread)
    lines = ['<?xml version="1.0" encoding="UTF-8" standalone="no"?>', "<structure>", "\t<type>fa</type>"]
    lines.append("\t<automaton>")
    for state in range(states):
        turn, radius = 2 * math.pi * state / states - math.pi, 60 + 20 * states
        x, y = (1 + math.cos(turn)) * radius + 40, (1 + math.sin(turn)) * radius + 40
        marks = "<initial/>" * (state == start) + "<final/>" * (state < machine.dim and bool(machine.final[state]))
        lines.append(f'\t\t<state id="{state}" name="q{state}"><x>{x:.1f}</x><y>{y:.1f}</y>{marks}</state>')
    for source, to, letter in transitions:
        lines.append(f"\t\t<transition><from>{source}</from><to>{to}</to><read>{letter}</read></transition>")
    return "\n".join([*lines, "\t</automaton>", "</structure>", ""]).encode()


def _automaton(root: Element, source: str) -> list[Element]:
    """Return the states and transitions: inside ``<automaton>``, or beside the type as older versions write them."""
    if root.tag != "structure":
        raise AutomatonFormatError(source, root.line, f"the root must be <structure>; got <{root.tag[:40]}>")
    types = root.all("type")
    if len(types) != 1:
        raise AutomatonFormatError(source, root.line, f"one <type> is needed; there are {len(types)}")
    kind = types[0].text.strip()
    if kind != "fa":
        name = _OTHER_TYPES.get(kind.lower(), "no finite automaton")
        raise AutomatonFormatError(source, types[0].line, f"the type {kind[:40]!r} is {name}; only 'fa' can be read")
    inner = root.all("automaton")
    if len(inner) > 1:
        raise AutomatonFormatError(source, inner[1].line, "a second <automaton>")
    holder = inner[0] if inner else root
    for child in holder.children:
        if child.tag not in ("state", "transition", "note") and not (holder is root and child.tag == "type"):
            raise AutomatonFormatError(source, child.line, f"<{child.tag[:40]}> is not known here")
    if inner and len(root.children) > 2:
        extra = next(child for child in root.children if child.tag not in ("type", "automaton"))
        raise AutomatonFormatError(source, extra.line, f"<{extra.tag[:40]}> must be inside <automaton>")
    return holder.children


def _arc(element: Element, places: dict[int, int], source: str) -> Arc:
    ends = []
    for tag in ("from", "to"):
        number = _number(_only(element, tag, source).text.strip(), f"<{tag}>", element, source)
        if number not in places:
            raise AutomatonFormatError(source, element.line, f"there is no state {number}")
        ends.append(places[number])
    read = _only(element, "read", source)
    if read.children:
        raise AutomatonFormatError(source, read.line, "<read> must hold a character")
    if len(read.text) > 1:
        reason = f"an arc may read one character, or none for ε; got {read.text[:40]!r}"
        raise AutomatonFormatError(source, read.line, reason)
    return ends[0], read.text or None, ends[1], True


def _only(element: Element, tag: str, source: str) -> Element:
    children = element.all(tag)
    if len(children) != 1:
        raise AutomatonFormatError(source, element.line, f"a transition has one <{tag}>; this one has {len(children)}")
    return children[0]


def _number(text: str | None, what: str, element: Element, source: str) -> int:
    number = None if text is None else whole_number(text)
    if number is None:
        got = "nothing" if text is None else repr(text[:40])
        raise AutomatonFormatError(source, element.line, f"{what} must be a whole number; got {got}")
    return number


def _escaped(letter: Symbol) -> str:
    if not isinstance(letter, str) or len(letter) != 1 or not _XML_CHARACTER.match(letter):
        raise ValueError(f"letters must be single characters that XML can hold, for JFLAP; got {letter!r}")
    return f"&#{ord(letter)};" if letter in "<>&\"'\t\n\r\u0085\u2028" else letter
