"""Automata from one line of text, as written on a command line: a file, a named machine or an expression."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from transductor.automata.boolean import as_dfa, from_dfa
from transductor.automata.expression_writing import LETTERS
from transductor.automata.finite_automata import DFA
from transductor.automata.formats import EXPRESSION_SUFFIXES, AutomatonFormatError, read
from transductor.automata.formats.limits import read_bytes, text_of
from transductor.automata.labelled_series import labels_of_series
from transductor.automata.library import LIBRARY, machine
from transductor.automata.logic.second_order import mso
from transductor.automata.logic.second_order_syntax import letters_used, logic_formula
from transductor.automata.logic.weighted import weighted_mso
from transductor.automata.logic.weighted_syntax import weighted_formula
from transductor.automata.regular_expression import regex
from transductor.automata.weighted import WeightedAutomaton

SOURCES = "a file, regex:PATTERN, mso:FORMULA, wmso:FORMULA, or a named machine such as parity or counter:5"


def automaton_from(source: str, alphabet: Sequence[str] | None = None, **options: Any) -> WeightedAutomaton:
    """Return the automaton that ``source`` names.

    Args:
        source: A path, also of a file that holds an expression (.regex .mso .fo .wmso); ``regex:(ab)*``;
            ``mso:exists x. a(x)``; ``wmso:sum x. [a(x)]``; or a name of
            :mod:`transductor.automata.library`.  Where some letter is longer than a character, an expression writes
            letters between blanks: ``regex:(open close)* open?``.
        alphabet: The letters of an expression.  Logic on a command line needs them; a regular expression, and a
            sentence in a file, has those that it mentions.
        options: Passed to the reader of a file, such as ``weights=`` for AT&T text.

    Raises:
        ValueError: What is wrong with the text, or with the file.
    """
    kind, colon, text = source.partition(":")
    if colon and kind in ("mso", "wmso") and not alphabet:
        raise ValueError(f"alphabet must be given with {kind}: a formula does not say which letters there are")
    if colon and kind in ("regex", "mso", "wmso"):
        return _of_expression(kind, text, alphabet)
    if Path(source).exists():
        name = EXPRESSION_SUFFIXES.get(Path(source).suffix.lower())
        return read(source, **options) if name is None else _of_file(source, "mso" if name == "fo" else name, alphabet)
    if kind in LIBRARY:
        return machine(source).automaton
    raise ValueError(f"source must be {SOURCES}; there is no file {source!r}")


def _of_expression(kind: str, text: str, alphabet: Sequence[str] | None) -> WeightedAutomaton:
    if kind == "regex":
        if text.startswith(LETTERS):
            listed, _, text = text.removeprefix(LETTERS).partition(")")
            alphabet = listed.split() if alphabet is None else alphabet
        long = alphabet is not None and any(len(name) != 1 for name in alphabet)
        return from_dfa(_regex_of_names(text, alphabet) if alphabet is not None and long else regex(text, alphabet))
    read_formula = weighted_formula if kind == "wmso" else logic_formula
    letters = sorted(letters_used(read_formula(text))) if alphabet is None else alphabet
    return from_dfa(mso(text, letters)) if kind == "mso" else weighted_mso(text, letters)


def _of_file(path: str, kind: str, alphabet: Sequence[str] | None) -> WeightedAutomaton:
    data = read_bytes(path)
    text = text_of(data, path).removesuffix("\n").removesuffix("\r") if data.strip() else ""
    try:
        return _of_expression(kind, text, alphabet)
    except ValueError as error:
        raise AutomatonFormatError(path, 1, str(error)) from None


def _regex_of_names(text: str, alphabet: Sequence[str]) -> DFA:
    """Return the automaton of an expression whose letters are names: each stands for a character that is in no text."""
    stand_in = {name: chr(0xE000 + number) for number, name in enumerate(alphabet)}
    # A name is read where no longer one is; {2,5} counts repeats; backslashes and blanks are no letters.
    names = "|".join(
        (r"(?<!\w)" if name[0].isalnum() else "") + re.escape(name) + (r"(?!\w)" if name[-1].isalnum() else "")
        for name in sorted(filter(None, alphabet), key=len, reverse=True)
    )
    pattern = ""
    for piece in re.finditer(rf"(?P<name>{names})|(?P<repeat>\{{\d*,?\d*\}})|(?P<blank>\s+)|(?P<other>\w+|.)", text):
        if piece["other"] is not None and (piece["other"] == "\\" or piece["other"].isalnum()):
            raise ValueError(
                f"regex: {piece['other']!r} is none of the letters {', '.join(alphabet[:8])}"
                f"{', …' if len(alphabet) > 8 else ''}, which are written between blanks"
            )
        pattern += stand_in[piece["name"]] if piece["name"] else "" if piece["blank"] else piece[0]
    return replace(regex(pattern, list(stand_in.values())), alphabet=tuple(alphabet))


def language_of(automaton: WeightedAutomaton) -> DFA:
    """Return the language of an automaton whose weights are truth values or the numbers 0 and 1, as a minimal DFA.

    Of a machine with other values, such as a counter's residues, it is the language of the words of value 0.
    """
    if automaton.weights.name == "boolean":
        return as_dfa(automaton)
    is_accepting = automaton.final == (1 if set(automaton.final) <= {0, 1} else 0)
    parts = automaton.initial, automaton.matrices, is_accepting, automaton.alphabet
    if not automaton.weights.field or labels_of_series(WeightedAutomaton(*parts)) is None:
        raise ValueError("automaton must be a finite machine: one initial state, one step for each state and letter")
    return as_dfa(WeightedAutomaton(*parts, weights="boolean"))
