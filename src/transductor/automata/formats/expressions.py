"""Automata as expressions for people: regular expressions and sentences of logic, which are written here.

Reading one means compiling it, whose cost no size of a file bounds, so :func:`~transductor.automata.formats.read` does
not; :func:`transductor.automata.sources.automaton_from` does, as it reads an expression on a command line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from transductor.automata.expression_writing import as_regex
from transductor.automata.first_order import as_first_order
from transductor.automata.formats.errors import AutomatonFormatError
from transductor.automata.logic.formula_tree import Node
from transductor.automata.logic.runs import as_mso, as_weighted_mso, letter_names
from transductor.automata.logic.second_order_syntax import Letter, letters_used, logic_formula
from transductor.automata.logic.weighted_syntax import weighted_formula

EXPRESSIONS: Final[dict[str, Callable[..., str]]] = {
    "regex": as_regex,
    "mso": as_mso,
    "fo": as_first_order,
    "wmso": as_weighted_mso,
}
"""Each takes an automaton and ``limit=``, and returns the text."""


def render(automaton: Any, name: str, **options: Any) -> bytes:
    """Return the expression of that name in one line; letters that it does not need are mentioned without effect."""
    text = EXPRESSIONS[name](automaton, **options)
    if name != "regex":  # which mentions them itself
        read = weighted_formula if name == "wmso" else logic_formula
        text = _with_letters(text, read(text), automaton.alphabet, weighted=name == "wmso")
    return f"{text}\n".encode()


def _with_letters(text: str, formula: Node, alphabet: Sequence[Any], *, weighted: bool) -> str:
    used = letters_used(formula)
    unused = [Letter(name, "x") for name in letter_names(alphabet) if name not in used]
    if not unused:
        return text
    mentioned = " | ".join(map(str, unused))
    if weighted:
        return f"{text} + 0 * [exists x. {mentioned}]"
    return f"({text}) & (forall x. {mentioned} | true)"


def refusal(path: str, name: str) -> AutomatonFormatError:
    """Return the error for a file that holds an expression and is read as an automaton."""
    kind = "mso" if name == "fo" else name
    reason = f"it holds an expression to be compiled: automaton_from({path!r}) does that, and {kind}:… takes the text"
    return AutomatonFormatError(path, None, reason)
