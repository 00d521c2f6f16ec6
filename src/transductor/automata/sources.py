"""Automata from one line of text, as written on a command line: a file, a named machine or an expression."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transductor.automata.boolean import as_dfa, from_dfa
from transductor.automata.finite_automata import DFA
from transductor.automata.formats import read
from transductor.automata.labelled_series import labels_of_series
from transductor.automata.library import LIBRARY, machine
from transductor.automata.logic.second_order import mso
from transductor.automata.logic.weighted import weighted_mso
from transductor.automata.regular_expression import regex
from transductor.automata.weighted import WeightedAutomaton

SOURCES = "a file, regex:PATTERN, mso:FORMULA, wmso:FORMULA, or a named machine such as parity or counter:5"


def automaton_from(source: str, alphabet: Sequence[str] | None = None, **options: Any) -> WeightedAutomaton:
    """Return the automaton that ``source`` names.

    Args:
        source: A path; ``regex:(ab)*``; ``mso:exists x. a(x)``; ``wmso:sum x. [a(x)]``; or a name of
            :mod:`transductor.automata.library`.
        alphabet: The letters of an expression.  Logic needs them; a regular expression has those that it mentions.
        options: Passed to the reader of a file, such as ``weights=`` for AT&T text.

    Raises:
        ValueError: What is wrong with the text, or with the file.
    """
    kind, colon, text = source.partition(":")
    if colon and kind == "regex":
        return from_dfa(regex(text, alphabet))
    if colon and kind in ("mso", "wmso"):
        if not alphabet:
            raise ValueError(f"alphabet must be given with {kind}: a formula does not say which letters there are")
        return from_dfa(mso(text, alphabet)) if kind == "mso" else weighted_mso(text, alphabet)
    if Path(source).exists():
        return read(source, **options)
    if kind in LIBRARY:
        return machine(source).automaton
    raise ValueError(f"source must be {SOURCES}; there is no file {source!r}")


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
