"""The table of operators: which function computes ``a & b``, ``a == b`` or the picture of an automaton.

An automaton is a value that the algebra works on, so its class cannot import the algebra.  Instead each function says,
where it is defined, which operator it computes, ``@operator(DFA, "&")``, and the class looks it up here.  Importing any
module of ``transductor.automata`` imports the package, and with it every function of this table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Value = TypeVar("_Value")
_FUNCTIONS: dict[tuple[type, str], Callable[..., Any]] = {}


def operator(kind: type, sign: str) -> Callable[[_Function], _Function]:
    """Enter the decorated function as the operator ``sign`` of the class ``kind``."""

    def entered(function: _Function) -> _Function:
        _FUNCTIONS[kind, sign] = function
        return function

    return entered


def applied(kind: type[_Value], sign: str, *operands: object) -> _Value:
    """Return the result of an operator, which most often is of the same class ``kind`` as the operands."""
    result: _Value = _FUNCTIONS[kind, sign](*operands)
    return result
