"""Our own JSON: every automaton, every semiring, exactly.

```json
{"format": "transductor.automaton", "version": 1, "weights": "rational", "states": 2, "alphabet": ["a", 7],
 "initial": {"sparse": [[0, "1"]]}, "final": {"dense": ["0", "2/3"]},
 "matrices": [{"sparse": [[1, 0, "1/2"]]}, {"dense": [["1", "0"], ["0", "1"]]}]}
```

Matrices are in the order of the alphabet and have rows ``to`` and columns ``from``.  A sparse entry is its indices and
then its weight; all others are zero.  Rationals are strings (or integers), truth values ``true`` and ``false``, all
other weights numbers; ``null`` is the semiring's zero, which may be infinite.
"""

from __future__ import annotations

import json
import math
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from transductor.automata.formats.errors import AutomatonFormatError
from transductor.automata.formats.graph import as_weighted
from transductor.automata.formats.limits import check_size, parsed_weight, text_of, written_weight
from transductor.automata.formats.symbols import alphabet_from_json, alphabet_to_json
from transductor.automata.weighted import WeightedAutomaton
from transductor.automata.weights import WEIGHTS, Array, Weights
from transductor.json_reading import JSONError, parsed_json

FORMAT = "transductor.automaton"
VERSION = 1
_FIELDS = ("format", "version", "weights", "states", "alphabet", "initial", "final", "matrices")


def render(automaton: object) -> bytes:
    """Return the automaton as JSON; arrays are sparse where that is shorter."""
    machine = as_weighted(automaton)
    ring = machine.weights
    document = {
        "format": FORMAT,
        "version": VERSION,
        "weights": ring.name,
        "states": machine.dim,
        "alphabet": alphabet_to_json(machine.alphabet),
        "initial": _entries(ring, machine.initial),
        "final": _entries(ring, machine.final),
        "matrices": [_entries(ring, matrix) for matrix in machine.matrices],
    }
    fields = (f"  {json.dumps(name)}: {json.dumps(value, allow_nan=False)}" for name, value in document.items())
    return ("{\n" + ",\n".join(fields) + "\n}\n").encode()


def _entries(ring: Weights, array: Array) -> dict[str, Any]:
    places = np.argwhere(~ring.is_zero(array)).tolist()
    if len(places) * (array.ndim + 1) <= array.size:
        return {"sparse": [[*place, _to_json(ring, array[tuple(place)])] for place in places]}
    if array.ndim == 1:
        return {"dense": [_to_json(ring, weight) for weight in array]}
    return {"dense": [[_to_json(ring, weight) for weight in row] for row in array]}


def _to_json(ring: Weights, weight: Any) -> Any:
    if isinstance(weight, Fraction):
        return written_weight(ring, weight)
    return (None if math.isinf(weight) else float(weight)) if ring.name != "boolean" else bool(weight)


def parse(data: bytes, source: str = "<text>") -> WeightedAutomaton:
    """Return the automaton in a JSON document; errors name a path inside the document, such as ``$.initial``."""
    document = _loaded(text_of(data, source), source)
    refused = partial(_refused, source)
    if not isinstance(document, dict):
        raise refused("$", "must be an object")
    for name in _FIELDS:
        if name not in document:
            raise refused(f"$.{name}", "is missing")
    for name in document:
        if name not in _FIELDS:
            raise refused(f"$.{name[:40]}", f"is not known; fields are {', '.join(_FIELDS)}")
    if document["format"] != FORMAT:
        raise refused("$.format", f"must be {FORMAT!r}")
    if type(document["version"]) is not int or document["version"] != VERSION:
        raise refused("$.version", f"must be {VERSION}, the only version there is")
    if not isinstance(document["weights"], str) or document["weights"] not in WEIGHTS:
        raise refused("$.weights", f"must be one of {', '.join(WEIGHTS)}")
    ring, dim = WEIGHTS[document["weights"]], document["states"]
    if type(dim) is not int or dim < 0:
        raise refused("$.states", "must be a whole number")
    alphabet = alphabet_from_json(document["alphabet"], source, None, "$.alphabet")
    check_size(source, None, ring, dim, len(alphabet))
    listed = document["matrices"]
    if not isinstance(listed, list) or len(listed) != len(alphabet):
        raise refused("$.matrices", f"must be a list of {len(alphabet)} matrices, one for each letter")
    reader = _Entries(ring, source)
    initial = reader.read(document["initial"], (dim,), "$.initial")
    final = reader.read(document["final"], (dim,), "$.final")
    matrices = ring.zeros(len(alphabet), dim, dim)
    for number, matrix in enumerate(listed):
        matrices[number] = reader.read(matrix, (dim, dim), f"$.matrices[{number}]")
    try:
        return WeightedAutomaton(initial, matrices, final, alphabet, weights=ring)
    except ValueError as error:
        raise AutomatonFormatError(source, None, str(error)) from None


def _loaded(text: str, source: str) -> Any:
    try:
        return parsed_json(text)
    except JSONError as error:
        raise AutomatonFormatError(source, error.line, str(error)) from None


class _Entries:
    """Reads arrays of one semiring."""

    def __init__(self, ring: Weights, source: str) -> None:
        self.ring = ring
        self.refused = partial(_refused, source)

    def read(self, value: Any, shape: tuple[int, ...], where: str) -> Array:
        if isinstance(value, dict) and list(value) == ["sparse"]:
            return self.sparse(value["sparse"], shape, f"{where}.sparse")
        if isinstance(value, dict) and list(value) == ["dense"]:
            array = self.ring.zeros(*shape)
            self.dense(value["dense"], array, f"{where}.dense")
            return array
        raise self.refused(where, "must be an object with one field, 'sparse' or 'dense'")

    def sparse(self, entries: Any, shape: tuple[int, ...], where: str) -> Array:
        array = self.ring.zeros(*shape)
        if not isinstance(entries, list):
            raise self.refused(where, "must be a list of entries")
        seen = set()
        for number, entry in enumerate(entries):
            here = f"{where}[{number}]"
            if not isinstance(entry, list) or len(entry) != len(shape) + 1:
                raise self.refused(here, f"must be {len(shape)} indices and a weight")
            place = tuple(entry[:-1])
            for index, bound in zip(place, shape, strict=True):
                if type(index) is not int or not 0 <= index < bound:
                    raise self.refused(here, f"must have indices from 0 to {bound - 1}")
            if place in seen:
                raise self.refused(here, f"gives the entry {list(place)} a second time")
            seen.add(place)
            array[place] = self.weight(entry[-1], here)
        return array

    def dense(self, values: Any, array: Array, where: str) -> None:
        if not isinstance(values, list) or len(values) != len(array):
            raise self.refused(where, f"must be a list of length {len(array)}")
        for number, value in enumerate(values):
            here = f"{where}[{number}]"
            if array.ndim > 1:
                self.dense(value, array[number], here)
            else:
                array[number] = self.weight(value, here)

    def weight(self, value: Any, where: str) -> Any:
        if value is None:
            return self.ring.zero
        wanted = {"rational": (str, int), "boolean": (bool,)}.get(self.ring.name, (int, float))
        if not isinstance(value, wanted) or (isinstance(value, bool) and self.ring.name != "boolean"):
            described = _WANTED.get(self.ring.name, "a number")
            raise self.refused(where, f"must be a weight of {self.ring.name!r}: {described}")
        try:
            return parsed_weight(self.ring, value) if isinstance(value, str) else self.ring.number(value)
        except ValueError as error:
            raise self.refused(where, str(error)) from None


_WANTED = {"rational": "a string such as '2/3' or an integer", "boolean": "true or false"}


def _refused(source: str, where: str, reason: str) -> AutomatonFormatError:
    return AutomatonFormatError(source, None, f"{where} {reason}")
