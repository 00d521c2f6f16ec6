r"""JSON schemas to regular expressions: the texts of a schema's values, in one spelling each.

Understood are ``type`` (also a list of types), ``enum``, ``const``, ``anyOf``; ``properties`` and ``required`` of
objects; ``items``, ``minItems`` and ``maxItems`` of arrays; ``minLength``, ``maxLength`` and ``pattern`` of strings.
Everything else that would restrict a value is refused by name.  The texts are fewer than a schema allows, never others:

* Objects have the properties that the schema lists, in its order, and no others.
* There is no whitespace but that of ``separators``.
* Numbers are written as ``json`` writes them or with an exponent; integers have neither point nor exponent.
* Strings write characters as they are; ``"``, ``\`` and control characters are escaped, and others may be, except
  halves of surrogate pairs.  Strings with a ``pattern`` have no escapes, and their characters need none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from transductor.automata.finite_algebra import shortest_word
from transductor.automata.regular_expression import regex, written_letters
from transductor.json_reading import parsed_json

MOST_DEPTH: Final = 32
MOST_CHARACTERS: Final = 1 << 18
"""Length past which an expression is refused; schemas within schemas are written out."""

_ANNOTATIONS: Final = frozenset(
    {"$schema", "$id", "$comment", "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"}
)
_KEYWORDS: Final[dict[str, frozenset[str]]] = {
    "object": frozenset({"properties", "required", "additionalProperties"}),
    "array": frozenset({"items", "minItems", "maxItems"}),
    "string": frozenset({"minLength", "maxLength", "pattern"}),
    "number": frozenset(),
    "integer": frozenset(),
    "boolean": frozenset(),
    "null": frozenset(),
}
_PLAIN: Final = r'[^"\\\x00-\x1f]'
_SURROGATE_FREE: Final = r"u(?:[0-9a-cefA-CEF][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2})"
_CHARACTER: Final = rf'(?:{_PLAIN}|\\(?:["\\/bfnrt]|{_SURROGATE_FREE}))'
_INTEGER: Final = r"-?(?:0|[1-9][0-9]*)"
_VALUES: Final = {
    "integer": _INTEGER,
    "number": _INTEGER + r"(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?",
    "boolean": "(?:true|false)",
    "null": "null",
}
_NEEDS_ESCAPE: Final = {'"', "\\", *map(chr, range(0x20))}


class SchemaNotSupported(ValueError):
    """The schema says something that is not understood; the message names it and where it stands."""


def regex_of_json_schema(schema: Mapping[str, Any] | str, *, separators: tuple[str, str] = (",", ":")) -> str:
    """Return a regular expression of JSON texts whose values the schema allows.

    Args:
        schema: The schema, or its JSON text.
        separators: What stands between items, and between a name and its value, as for ``json.dumps``:
            ``(", ", ": ")`` writes a space after each.

    Raises:
        SchemaNotSupported: If the schema has a keyword that is not understood.
        JSONError: If its text is not JSON.
    """
    for separator, mark in zip(separators, ",:", strict=True):
        if separator.strip(" \t\r\n") != mark:
            raise ValueError(f"separators must be a comma and a colon with whitespace around them; got {separators!r}")
    parsed = parsed_json(schema) if isinstance(schema, str) else schema
    return _Writer(separators).value(parsed, "schema", 0)


class _Writer:
    def __init__(self, separators: tuple[str, str]) -> None:
        self.separators = separators
        self.comma, self.colon = separators  # neither has a character that an expression escapes

    def value(self, schema: Any, where: str, depth: int) -> str:
        """Return the expression of one schema; ``where`` is its place in the words of an error."""
        if not isinstance(schema, Mapping):
            raise SchemaNotSupported(f"{where} must be an object that says what a value is; got {schema!r:.40}")
        if depth > MOST_DEPTH:
            raise SchemaNotSupported(f"{where} must not be nested deeper than {MOST_DEPTH}")
        said = schema.keys() - _ANNOTATIONS
        for keyword, writer in (("const", self.const), ("enum", self.enum), ("anyOf", self.any_of)):
            if keyword in said:
                self.only(said, {keyword, "type"} if keyword != "anyOf" else {keyword}, where, f"beside {keyword}")
                return writer(schema, where, depth)
        types = schema.get("type")
        if types is None:
            self.only(said, set(), where, "without a type")
            raise SchemaNotSupported(
                f"{where} must have a type, enum, const or anyOf: any value at all is not supported"
            )
        names = [types] if isinstance(types, str) else list(types)
        unknown = [name for name in names if name not in _KEYWORDS]
        if unknown or not names:
            raise SchemaNotSupported(f"{where} must have one of the types {', '.join(_KEYWORDS)}; got {types!r}")
        self.only(said, {"type"}.union(*(_KEYWORDS[name] for name in names)), where, f"with type {types!r}")
        written = _one_of([self.typed(name, schema, where, depth) for name in names])
        if len(written) > MOST_CHARACTERS:
            raise SchemaNotSupported(f"{where} must need at most {MOST_CHARACTERS} characters as a regular expression")
        return written

    def only(self, said: set[str], understood: set[str], where: str, beside: str) -> None:
        """Refuse keywords by name."""
        others = sorted(said - understood)
        if others:
            raise SchemaNotSupported(f"{where} has {others[0]!r}, which is not supported {beside}")

    def const(self, schema: Mapping[str, Any], where: str, depth: int) -> str:
        return self.literal(schema["const"])

    def enum(self, schema: Mapping[str, Any], where: str, depth: int) -> str:
        if not schema["enum"]:
            raise SchemaNotSupported(f"{where} must have at least one value in enum")
        return _one_of([self.literal(value) for value in schema["enum"]])

    def any_of(self, schema: Mapping[str, Any], where: str, depth: int) -> str:
        if not schema["anyOf"]:
            raise SchemaNotSupported(f"{where} must have at least one schema in anyOf")
        return _one_of(
            [self.value(each, f"{where}.anyOf[{place}]", depth + 1) for place, each in enumerate(schema["anyOf"])]
        )

    def literal(self, value: Any) -> str:
        text = json.dumps(value, ensure_ascii=False, separators=self.separators, allow_nan=False)
        return re.sub(r"[\\.^$*+?{}()\[\]|]", r"\\\g<0>", text)  # only what every dialect escapes

    def typed(self, name: str, schema: Mapping[str, Any], where: str, depth: int) -> str:
        if name == "object":
            return self.object(schema, where, depth)
        if name == "array":
            return self.array(schema, where, depth)
        return self.string(schema, where) if name == "string" else _VALUES[name]

    def string(self, schema: Mapping[str, Any], where: str) -> str:
        if "pattern" in schema:
            if "minLength" in schema or "maxLength" in schema:
                raise SchemaNotSupported(f"{where} has 'pattern' beside a length, which is not supported")
            return f'"{_unescaped(schema["pattern"], where)}"'
        least, most = _bounds(schema, "minLength", "maxLength", where)
        return f'"{_CHARACTER}{_times(least, most)}"'

    def array(self, schema: Mapping[str, Any], where: str, depth: int) -> str:
        if "items" not in schema:
            raise SchemaNotSupported(f"{where} must say what its items are: any value at all is not supported")
        least, most = _bounds(schema, "minItems", "maxItems", where)
        if most == 0:
            return r"\[\]"
        item = self.value(schema["items"], f"{where}.items", depth + 1)
        more = _times(max(0, least - 1), None if most is None else most - 1)
        filled = f"{item}(?:{self.comma}{item}){more}"
        return rf"\[{filled}\]" if least else rf"\[(?:{filled})?\]"

    def object(self, schema: Mapping[str, Any], where: str, depth: int) -> str:
        if schema.get("additionalProperties", False) is not False:
            raise SchemaNotSupported(f"{where} has 'additionalProperties' other than false, which is not supported")
        properties = schema.get("properties", {})
        required = set(schema.get("required", ()))
        if not required <= properties.keys():
            raise SchemaNotSupported(
                f"{where} requires {min(required - properties.keys())!r}, which it does not describe"
            )
        members = [
            (f"{self.literal(name)}{self.colon}{self.value(each, f'{where}.{name}', depth + 1)}", name in required)
            for name, each in properties.items()
        ]
        # The first property that is there has no comma before it.
        ways = []
        for place, (member, needed) in enumerate(members):
            rest = "".join(
                f"{self.comma}{later}" if wanted else f"(?:{self.comma}{later})?"
                for later, wanted in members[place + 1 :]
            )
            ways.append(member + rest)
            if needed:
                break
        else:
            ways.append("")
        return rf"\{{{_one_of(ways)}\}}"


def _one_of(ways: Sequence[str]) -> str:
    return ways[0] if len(ways) == 1 else f"(?:{'|'.join(ways)})"


def _times(least: int, most: int | None) -> str:
    if most is None:
        return {0: "*", 1: "+"}.get(least, f"{{{least},}}")
    return f"{{{least},{most}}}"


def _bounds(schema: Mapping[str, Any], lower: str, upper: str, where: str) -> tuple[int, int | None]:
    least, most = schema.get(lower, 0), schema.get(upper)
    for name, bound in ((lower, least), (upper, most)):
        if bound is not None and (isinstance(bound, bool) or not isinstance(bound, int) or bound < 0):
            raise SchemaNotSupported(f"{where} must have an integer of at least 0 for {name}; got {bound!r}")
    if most is not None and most < least:
        raise SchemaNotSupported(f"{where} must have {lower} at most {upper}; got {least} and {most}")
    return least, most


_ELEMENT: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.", re.DOTALL)
_NEGATED: Final = {r"\S": r"\s", r"\W": r"\w", r"\D": r"\d"}


def _unescaped(pattern: str, where: str) -> str:
    """Return the expression of texts in which ``pattern`` is found and whose characters JSON writes as they are."""
    parts = _ELEMENT.findall(pattern)
    begins, ends = parts[:1] == ["^"], parts[-1:] == ["$"]
    inner = parts[begins : len(parts) - ends]
    if (begins or ends) and _alternates(inner):
        raise SchemaNotSupported(f"{where} has an anchor beside '|' in its pattern {pattern!r}: put the rest in (?:…)")
    body = "".join(map(_narrowed, inner))
    try:
        letters = "".join(sorted({*written_letters(body), *_NEEDS_ESCAPE}))
        machine = regex(body, letters) & regex(rf"(?s:.)*[{re.escape(''.join(_NEEDS_ESCAPE))}](?s:.)*", letters)
    except ValueError as error:
        raise SchemaNotSupported(f"{where} has the pattern {pattern!r}: {error}") from error
    word = shortest_word(machine)
    if word is not None:
        raise SchemaNotSupported(
            f"{where} has the pattern {pattern!r}, which matches {''.join(map(str, word))!r}; characters that JSON "
            "escapes are not supported"
        )
    return f"{'' if begins else _PLAIN + '*'}(?:{body}){'' if ends else _PLAIN + '*'}"


def _alternates(parts: Sequence[str]) -> bool:
    """Tell whether there is a ``|`` outside all groups."""
    depth = 0
    for part in parts:
        depth += (part == "(") - (part == ")")
        if part == "|" and depth == 0:
            return True
    return False


def _narrowed(part: str) -> str:
    r"""Return one element of a pattern without the characters that JSON escapes, if it is a dot or a negation."""
    if part == ".":
        return _PLAIN
    if part in _NEGATED:
        return rf'[^{_NEGATED[part]}"\\\x00-\x1f]'
    if part.startswith("[^"):
        return rf'{part[:-1]}"\\\x00-\x1f]'
    return part
