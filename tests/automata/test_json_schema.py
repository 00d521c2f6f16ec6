"""Texts of a schema's expression are JSON that the schema allows; schemas with more are refused by name."""

from __future__ import annotations

import json
import random
import re
from itertools import islice

import pytest

from transductor.automata import regex
from transductor.automata.json_schema import SchemaNotSupported, regex_of_json_schema

PERSON = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "nick": {"type": "string", "maxLength": 3},
        "name": {"type": "string", "minLength": 1, "description": "of a person"},
        "age": {"type": ["integer", "null"]},
        "tags": {"type": "array", "items": {"enum": ["a", 1, None, {"x": [1, 2]}]}, "minItems": 1, "maxItems": 2},
        "place": {"type": "object", "properties": {"zip": {"type": "string", "pattern": "^[0-9]{2}$"}}},
    },
    "required": ["name", "tags"],
    "additionalProperties": False,
}


def test_values_of_an_object():
    pattern = re.compile(regex_of_json_schema(PERSON))
    good = [
        {"name": "Zoë \U0001f642", "tags": ["a"]},
        {"nick": "é", "name": "x", "age": None, "tags": [{"x": [1, 2]}, 1]},
        {"name": "x", "age": -12, "tags": [None], "place": {}},
        {"name": "x", "tags": [None], "place": {"zip": "12"}},
    ]
    bad = [
        {},
        {"name": "", "tags": ["a"]},
        {"name": "x", "tags": []},
        {"name": "x", "tags": ["a", "a", "a"]},
        {"nick": "four", "name": "x", "tags": ["a"]},
        {"tags": ["a"], "name": "x"},
        {"name": "x", "age": 1.5, "tags": ["a"]},
        {"name": "x", "tags": ["a"], "place": {"zip": "123"}},
        {"name": "x", "tags": ["a"], "more": 1},
    ]
    for values, fits in ((good, True), (bad, False)):
        for value in values:
            for ascii_only in (False, True):
                if ascii_only and "\U0001f642" in str(value):
                    continue  # would be written as a pair of surrogates
                text = json.dumps(value, separators=(",", ":"), ensure_ascii=ascii_only)
                assert bool(pattern.fullmatch(text)) is fits, text
    spaced = regex_of_json_schema(PERSON, separators=(", ", ": "))
    assert re.fullmatch(spaced, json.dumps(good[1]))
    assert not re.fullmatch(spaced, json.dumps(good[1], separators=(",", ":")))


def random_schema(depth=2):
    kinds = ["string", "number", "integer", "boolean", "null", "enum", "const", "anyOf"]
    kind = random.choice(kinds + ["object", "array"] * 3 * (depth > 0))
    if kind == "object":
        names = random.sample(["a", "b b", 'c"', "d"], random.randint(0, 3))
        required = [name for name in names if random.random() < 0.5]
        return {
            "type": "object",
            "properties": {name: random_schema(depth - 1) for name in names},
            "required": required,
        }
    if kind == "array":
        least = random.randint(0, 2)
        bounds = random.choice([{}, {"minItems": least}, {"minItems": least, "maxItems": least + random.randint(0, 2)}])
        return {"type": "array", "items": random_schema(depth - 1), **bounds}
    if kind == "string":
        return {"type": "string", **random.choice([{}, {"maxLength": 3}, {"minLength": 2}, {"pattern": "^a+.?$"}])}
    if kind == "enum":
        return {"enum": random.sample([1, "x", None, True, [1, "a"], {"q": 0.5}], 2)}
    if kind == "const":
        return {"const": random.choice([1, 'say "hi"\n', {"a": {}}])}
    if kind == "anyOf":
        return {"anyOf": [random_schema(depth - 1) for _ in range(2)]}
    return {"type": kind}


def allows(schema, value):
    """Judge a value by what the keywords mean."""
    if "const" in schema:
        return repr(schema["const"]) == repr(value)
    if "enum" in schema:
        return any(repr(each) == repr(value) for each in schema["enum"])
    if "anyOf" in schema:
        return any(allows(each, value) for each in schema["anyOf"])
    match schema["type"]:
        case "object":
            described = schema["properties"]
            return (
                isinstance(value, dict)
                and value.keys() <= described.keys()
                and set(schema["required"]) <= value.keys()
                and all(allows(described[name], inner) for name, inner in value.items())
            )
        case "array":
            fits = isinstance(value, list) and all(allows(schema["items"], item) for item in value)
            return fits and schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", 99)
        case "string":
            fits = isinstance(value, str) and schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", 99)
            return fits and ("pattern" not in schema or bool(re.search(schema["pattern"], value)))
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case _:
            return value is None


def drawn(schema):
    """Draw a value that the schema allows, with properties in the schema's order."""
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return random.choice(schema["enum"])
    if "anyOf" in schema:
        return drawn(random.choice(schema["anyOf"]))
    match schema["type"]:
        case "object":
            kept = [name for name in schema["properties"] if name in schema["required"] or random.random() < 0.5]
            return {name: drawn(schema["properties"][name]) for name in kept}
        case "array":
            least = schema.get("minItems", 0)
            return [drawn(schema["items"]) for _ in range(random.randint(least, schema.get("maxItems", least + 2)))]
        case "string":
            if "pattern" in schema:
                return random.choice(["a", "aa!"])
            return "".join(random.choices('é"\\\n/ x', k=random.randint(schema.get("minLength", 0), 3)))
        case kind:
            return {"number": -2.5e30, "integer": random.randint(-99, 99), "boolean": True, "null": None}[kind]


def test_random_schemas_both_ways():
    random.seed(0)
    for _ in range(150):
        schema = random_schema()
        expression = regex_of_json_schema(schema)
        value = drawn(schema)
        assert allows(schema, value)
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=random.random() < 0.5)
        assert re.fullmatch(expression, text), (schema, text)
        for word in islice(regex(expression).words(7), 20):
            assert allows(schema, json.loads("".join(word))), (schema, word)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "integer", "minimum": 3}, "schema has 'minimum'"),
        ({"type": "string", "format": "date"}, "schema has 'format'"),
        ({"$ref": "#/$defs/x"}, "schema has '\\$ref'"),
        ({"type": "array", "items": {"oneOf": []}}, r"schema\.items has 'oneOf'"),
        ({"type": "array"}, "what its items are"),
        ({"type": "object", "properties": {"a": {}}}, r"schema\.a must have a type"),
        ({"type": "object", "additionalProperties": True}, "'additionalProperties' other than false"),
        ({"type": "object", "patternProperties": {}}, "has 'patternProperties'"),
        ({"type": "object", "properties": {}, "required": ["x"]}, "requires 'x'"),
        ({"type": "text"}, "one of the types"),
        ({"type": "string", "minLength": 3, "maxLength": 2}, "minLength at most maxLength"),
        ({"type": "string", "maxLength": -1}, "at least 0 for maxLength"),
        ({"type": "string", "pattern": "a", "maxLength": 2}, "beside a length"),
        ({"type": "string", "pattern": 'a"?'}, "matches 'a\"'"),
        ({"type": "string", "pattern": "^a|b$"}, "an anchor beside"),
        ({"type": "string", "pattern": r"(a)\1"}, "back-reference"),
        ({"enum": []}, "at least one value"),
        ({"const": 1, "minimum": 0}, "'minimum', which is not supported beside const"),
        (True, "must be an object"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(schema, message):
    with pytest.raises(SchemaNotSupported, match=message):
        regex_of_json_schema(schema)


def test_patterns_of_strings_are_searched_and_need_no_escapes():
    for pattern, good, bad in (
        ("b.", ["abxé", "bb"], ["b", 'b"']),
        ("^[^a]$", ["b", "é"], ["a", '"', "bb"]),
        (r"^\S+$", ["bé"], ["b b", "\\"]),
        ("^(a|b)$", ["a"], ["ab"]),
        ("", ["", "x"], ['"']),
    ):
        expression = regex_of_json_schema({"type": "string", "pattern": pattern})
        for text in good:
            assert re.fullmatch(expression, f'"{text}"')
        for text in bad:
            assert not re.fullmatch(expression, f'"{text}"')


def test_nesting_and_size_are_bounded():
    schema = {"type": "integer"}
    for _ in range(40):
        schema = {"type": "array", "items": schema}
    with pytest.raises(SchemaNotSupported, match="nested deeper"):
        regex_of_json_schema(schema)
    with pytest.raises(ValueError, match="a comma and a colon"):
        regex_of_json_schema({"type": "null"}, separators=(";", ":"))
    assert regex_of_json_schema('{"type": "null"}') == "null"
