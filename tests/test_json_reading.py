"""The strict JSON reader on texts that are small or legal enough to pass, and made to take long."""

from __future__ import annotations

import json
import time

import pytest

from transductor.json_reading import JSONError, parsed_json

# Each is some megabytes; read in quadratic time, it would take minutes.
HOSTILE = {
    "a field twice among very many": (
        "{" + "".join(f'"{n}":0,' for n in range(300_000)) + '"299999":0}',
        "'299999'",
    ),
    "a text that never ends, of quotes": ("[" * 101 + '"' + '\\"' * 2_000_000, "not JSON"),
    "brackets in a text that never ends": ('"' + "[" * 4_000_000, "not JSON"),
    "many texts of brackets": ("[" * 101 + '"[",' * 1_000_000, "nested too deeply"),
    "half an escape at the end": ("[" * 100 + "{" + '"' + "\\", "nested too deeply"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_refused_is_refused_soon(name):
    text, words = HOSTILE[name]
    begun = time.process_time()
    with pytest.raises(JSONError, match=words):
        parsed_json(text)
    assert time.process_time() - begun < 5


@pytest.mark.parametrize("value", [["[" * 200], {"{" * 200: '"]' * 100}, ["\\" * 301], ['\\"[' * 101]])
def test_brackets_in_texts_do_not_nest(value):
    assert parsed_json(json.dumps([value] * 101)) == [value] * 101
