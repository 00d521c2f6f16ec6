"""Automata from one line of text, as a person writes on a shell: a file, a named machine, an expression."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transductor.automata.boolean import as_dfa, from_dfa
from transductor.automata.finite_automata import DFA
from transductor.automata.formats import read
from transductor.automata.library import LIBRARY, machine
from transductor.automata.logic.second_order import mso
from transductor.automata.logic.weighted import weighted_mso
from transductor.automata.regular_expression import regex
from transductor.automata.weighted import WeightedAutomaton

SOURCES = "a file, regex:PATTERN, mso:FORMULA, wmso:FORMULA, or a named machine such as parity or counter:5"


def automaton_from(source: str, alphabet: Sequence[str] | None = None, **options: Any) -> WeightedAutomaton:
    """The automaton that ``source`` names.

    Args:
        source: A path; ``regex:(ab)*``; ``mso:exists x. a(x)``; ``wmso:sum x. [a(x)]``; or a name of
            :mod:`transductor.automata.library`.
        alphabet: The letters of an expression.  Needed by logic; a regular expression has those it mentions.
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
    """The language of an automaton whose weights are truth values or the numbers 0 and 1, as a minimal DFA.

    A named machine with other values, such as a counter's residues, is taken as the language of its zeros: the words
    that lead back.
    """
    if automaton.weights.name == "boolean":
        return as_dfa(automaton)
    deterministic = all(
        set(matrix[:, state]) <= {0, 1} and sum(matrix[:, state]) <= 1
        for matrix in automaton.matrices
        for state in range(automaton.dim)
    )
    if not deterministic or not set(automaton.initial) <= {0, 1} or sum(automaton.initial) != 1:
        raise ValueError(
            "automaton must be a finite machine: one initial state, and one step for each state and letter"
        )
    values = set(automaton.final)
    final = automaton.final == 1 if values <= {0, 1} else automaton.final == 0
    return as_dfa(
        WeightedAutomaton(automaton.initial, automaton.matrices, final, automaton.alphabet, weights="boolean")
    )
