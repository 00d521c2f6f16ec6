"""Valid documents and files, altered in their structure: what a stranger, a broken disk or a forger may hand over."""

from __future__ import annotations

import copy
import json
import math
import os
import random
import re
from pathlib import Path
from typing import Any

from tests.fuzzing.damage import mutated


def places_in(value, path=()):
    """Every part of a JSON value, by its path."""
    yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in parts:
        yield from places_in(part, (*path, name))


def part_of(value, path):
    for name in path:
        value = value[name]
    return value


def altered_leaf(value, rng):
    """Another value in place of a leaf, often a close one."""
    if isinstance(value, bool) or value is None:
        return rng.choice([True, False, None, 0, 1])
    if isinstance(value, int):
        return rng.choice([value + 1, value - 1, -value, 0, -1, value * 2, float(value), str(value), 2**70, None])
    if isinstance(value, float):
        steps = [math.nextafter(value, math.inf), math.nextafter(value, -math.inf), -value, 0.0, value * 2, value / 2]
        return rng.choice([*steps, value + 1e-6, value - 1e-6, 1e308, 5e-324, round(value), str(value), None])
    if isinstance(value, str):
        return rng.choice([value + "x", value[:-1], value[::-1], "", 7, "proved", "float32", "float64", "node", "edge"])
    return value


def altered_container(value, rng):
    """A list or an object with something missing, twice, swapped or moved."""
    value = copy.copy(value)
    if isinstance(value, dict):
        names = list(value)
        if names and rng.random() < 0.5:
            del value[rng.choice(names)]
        elif len(names) > 1:
            first, second = rng.sample(names, 2)
            value[first], value[second] = value[second], value[first]
        return value
    if not value:
        return [0]
    first, second = rng.randrange(len(value)), rng.randrange(len(value))
    match rng.randrange(5):
        case 0:
            value[first], value[second] = value[second], value[first]
        case 1:
            del value[first]
        case 2:
            value.insert(first, copy.deepcopy(value[second]))
        case 3:
            value[first] = copy.deepcopy(value[second])
        case _:
            value.reverse()
    return value


class Written(str):
    """A text that stands in a document without quotes: what no JSON value is, such as NaN or 5 000 digits."""


SECRET = "outside/secret.txt"  # beside the folder that is read; nothing may look at it
NUMBERS = [
    0, -1, 2, 7, -(10**9), 10**9, 2**31, 2**63, 10**30, 10**400, 1e308, -1e308, 5e-324, 0.5, -0.0, Written("NaN"),
    Written("-Infinity"), Written("1e400"), Written("9" * 5000), Written("1E5"), Written("-0"), Written("01"),
]  # fmt: skip
TEXTS = [
    "", "x", "0", "1", "nan", f"../{SECRET}", "/dev/zero", "/etc/passwd", "..", ".", "a\0b", "x" * 5000, "\ud800",
    "\u2028", "<unknown>", "kind", "1/0", "1e999999999", "9" * 5000, "\N{GREEK SMALL LETTER ALPHA}", "[bold]",
]  # fmt: skip
OTHERS = [
    None, True, False, [], {}, [[]], [None], {"kind": "Nonsense"}, {"kind": []}, {"": 0}, [0, 1], ["a", "a"],
    Written("[" * 400 + "]" * 400), Written('{"a":' * 200 + "0" + "}" * 200), [0] * 5000, Written("[" * 50_000),
]  # fmt: skip
_TWICE = "\x01"  # ends the name of a field that is written twice


def some_place(value: Any, rng: random.Random) -> tuple[Any, Any] | None:
    """A container of a JSON value and a key or index in it; None where there is none.  All levels are met alike."""
    place = None
    while isinstance(value, dict | list) and value and (place is None or rng.random() < 0.8):
        key = rng.choice([*value]) if isinstance(value, dict) else rng.randrange(len(value))
        place, value = (value, key), value[key]
    return place


def hostile(rng: random.Random) -> Any:
    """A value that few readers expect."""
    return copy.deepcopy(rng.choice(rng.choice([NUMBERS, TEXTS, OTHERS])))


def altered_once(value: Any, rng: random.Random) -> Any:
    """The same JSON value with one part altered, where it stands."""
    place = some_place(value, rng)
    if place is None or rng.random() < 0.02:
        return hostile(rng)
    parent, key = place
    old = parent[key]
    if isinstance(old, int) and abs(old) >= 2**1000:  # an earlier alteration; floats end before it
        old = 1
    match rng.randrange(10):
        case 0 | 1 | 2:
            container = isinstance(old, dict | list) and old
            parent[key] = altered_container(old, rng) if container else altered_leaf(old, rng)
        case 3 | 4:
            parent[key] = hostile(rng)
        case 5:
            del parent[key]
        case 6:  # what stands elsewhere in the same document
            other = some_place(value, rng)
            assert other is not None
            parent[key] = copy.deepcopy(other[0][other[1]])
        case 7:
            parent[key] = [copy.deepcopy(old)] if rng.random() < 0.5 else str(old)[:50]
        case 8 if isinstance(parent, dict):
            name = rng.choice(["extra", "kind", "", f"{key}s", key[:-1], key.upper(), "seal", f"{key}\0", "__class__"])
            parent[name] = copy.deepcopy(old) if rng.random() < 0.5 else hostile(rng)
            if rng.random() < 0.5:
                parent.pop(key, None)
        case 9 if isinstance(parent, dict):
            parent[f"{key}{_TWICE}"] = copy.deepcopy(old) if rng.random() < 0.5 else hostile(rng)
        case _:
            parent[key] = rng.choice([*NUMBERS, *TEXTS])
    return value


def altered_json(value: Any, rng: random.Random) -> Any:
    """A copy of a JSON value after one to three alterations; see :func:`text_of`."""
    value = copy.deepcopy(value)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        value = altered_once(value, rng)
    return value


def text_of(value: Any) -> str:
    """Return the text of an altered value, with what no JSON value is written out."""

    def marked(part: Any) -> Any:
        if isinstance(part, Written):
            return f"\x00{part}\x00"
        if isinstance(part, dict):
            return {name: marked(each) for name, each in part.items()}
        return [marked(each) for each in part] if isinstance(part, list) else part

    text = json.dumps(marked(value))
    text = re.sub(r'"\\u0000((?:[^"\\]|\\.)*?)\\u0000"', lambda match: json.loads(f'"{match[1]}"'), text)
    return text.replace("\\u0001", "")


def altered_text(data: bytes, rng: random.Random) -> bytes:
    """A JSON document, lines of JSON or any other text, altered in its structure if it has one, or byte by byte."""
    if rng.random() < 0.8:
        try:
            return text_of(altered_json(json.loads(data), rng)).encode("utf-8", "surrogatepass")
        except ValueError:
            lines = data.split(b"\n")
            number = rng.randrange(len(lines))
            try:
                lines[number] = text_of(altered_json(json.loads(lines[number]), rng)).encode("utf-8", "surrogatepass")
                return b"\n".join(lines)
            except ValueError:
                pass
    return mutated(data, rng)


def altered_safetensors(data: bytes, rng: random.Random) -> bytes:
    """A file of tensors with another header, other lengths or other bytes."""
    size = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8 : 8 + size]), data[8 + size :]
    match rng.randrange(6):
        case 0:
            return mutated(data, rng)
        case 1:
            return data[: rng.randrange(len(data))]
        case 2:
            changed = bytearray(body)
            for _ in range(rng.randint(1, 8)):
                changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
            return data[: 8 + size] + bytes(changed)
        case 3:
            entry = header[rng.choice([name for name in header if name != "__metadata__"])]
            change = rng.choice([
                {"dtype": rng.choice(["F16", "BF16", "F64", "I64", "U8", "BOOL", "F8_E4M3", "F4", "C64", "X", 5])},
                {"shape": rng.choice([[], [10**12], [2**62, 4], [-1], [0], [1.5], "x", [[1]], entry["shape"][::-1]])},
                {"data_offsets": rng.choice([[0, 10**15], [5, 2], [-8, 8], [0], None, [0, 1], [0, 2**64]])},
            ])  # fmt: skip
            entry.update(change)
            text = json.dumps(header).encode()
        case _:
            text = text_of(altered_json(header, rng)).encode("utf-8", "surrogatepass")
    length = rng.choice([len(text)] * 6 + [0, len(text) + 1, 2**63, 2**31, len(text) - 1])
    return length.to_bytes(8, "little", signed=False) + text + body


def put_odd_file(path: Path, rng: random.Random, elsewhere: list[bytes]) -> str:
    """Put something else in the place of a file: nothing, a folder, a pipe, a device, a loop, much or another's."""
    path.unlink()
    kind = rng.choice(["missing", "folder", "pipe", "device", "loop", "sparse", "swapped", "swapped", "empty"])
    match kind:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "loop":
            path.symlink_to(path.name)
        case "sparse":
            path.touch()
            os.truncate(path, 2**34)
        case "swapped":
            path.write_bytes(rng.choice(elsewhere))
        case "empty":
            path.touch()
    return kind
