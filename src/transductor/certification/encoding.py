"""Arrays, machines and series as JSON, each with a digest of its content."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np

from transductor.automata.moore import MooreMachine
from transductor.automata.weighted import WeightedAutomaton
from transductor.certification.ball_arithmetic import Array

_Value = TypeVar("_Value")
_FRACTION = re.compile(r"-?[0-9]{1,4000}(/[0-9]{1,4000})?")


class CertificateError(ValueError):
    """A certificate that is damaged, altered, or not about this model; the message says what does not hold."""


def digest(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a JSON value, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _sealed(content: dict[str, Any]) -> dict[str, Any]:
    return content | {"sha256": digest(content)}


def optional(convert: Callable[[Any], _Value], value: Any) -> _Value | None:
    """Convert a value that may be missing."""
    return None if value is None else convert(value)


def encoded_array(values: Array) -> dict[str, Any]:
    """Return the bytes, little-endian, with dtype, shape and a digest of all three."""
    data = np.ascontiguousarray(values).astype(values.dtype.newbyteorder("<"), copy=False).tobytes()
    return _sealed({"dtype": values.dtype.name, "shape": list(values.shape), "data": base64.b64encode(data).decode()})


def decoded_array(plain: Any, name: str) -> Array:
    """Return the array that :func:`encoded_array` wrote; ``name`` says in an error which one it is."""
    if not isinstance(plain, dict) or plain.get("dtype") not in ("float32", "float64", "int64"):
        raise CertificateError(f"{name} must be an array of float32, float64 or int64")
    try:
        data = base64.b64decode(plain["data"], validate=True)
        shape = tuple(int(size) for size in plain["shape"])
        dtype = np.dtype(plain["dtype"]).newbyteorder("<")
        values = np.frombuffer(data, dtype).reshape(shape).astype(plain["dtype"])
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise CertificateError(f"{name} is not a complete array: {error}") from error
    if plain.get("sha256") != digest({part: plain[part] for part in ("dtype", "shape", "data")}):
        raise CertificateError(f"{name} was altered: its SHA-256 is not the one beside it")
    return values


def encoded_machine(machine: MooreMachine) -> dict[str, Any]:
    """Return the tables of a machine as lists."""
    return _sealed(
        {"transitions": machine.transitions.tolist(), "outputs": machine.outputs.tolist(), "start": machine.start}
    )


def decoded_machine(plain: Any) -> MooreMachine:
    """Return the machine that :func:`encoded_machine` wrote."""
    transitions, outputs = (np.array(plain[name], dtype=np.int64) for name in ("transitions", "outputs"))
    return MooreMachine(transitions, outputs, plain["start"])


def encoded_series(series: WeightedAutomaton) -> dict[str, Any]:
    """Return the weights of a weighted automaton as fractions in text."""
    rational = series.over("rational")
    parts = {"initial": rational.initial, "matrices": rational.matrices, "final": rational.final}
    return _sealed({name: np.vectorize(str, otypes=[object])(values).tolist() for name, values in parts.items()})


def _weight(text: Any) -> Fraction:
    """Return a weight written as a fraction; nothing else, because a decimal's exponent could ask for all memory."""
    if not isinstance(text, str) or not _FRACTION.fullmatch(text):
        raise CertificateError(f"a weight must be a whole number or a fraction of two in text; got {str(text)[:40]!r}")
    return Fraction(text)


def decoded_series(plain: Any) -> WeightedAutomaton:
    """Return the weighted automaton that :func:`encoded_series` wrote."""
    initial, matrices, final = (
        np.vectorize(_weight, otypes=[object])(np.array(plain[name], dtype=object))
        for name in ("initial", "matrices", "final")
    )
    return WeightedAutomaton(initial, matrices, final, tuple(range(len(matrices))))
