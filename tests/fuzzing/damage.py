"""Small damage of many kinds, for readers that must survive all of it."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

TOKENS = [
    b"", b"0", b"1", b"-1", b"2", b"99", b"4096", b"99999999", b"1e400", b"-1e400", b"1e999999999", b"9" * 5000, b"nan",
    b"inf", b"-inf", b"Infinity", b"1/0", b"1/3", b"0x10", b"null", b"true", b"[]", b"{}", b"[" * 2000, b'"', b"\\",
    b"<", b"&lol;", b"<!DOCTYPE a [<!ENTITY b 'c'>]>", b"<!--", b"]]>", b"\x00", b"\xff\xfe", b"\xef\xbb\xbf",
    b"\xed\xa0\x80", b"\r", b"\n", b"\t", "\u2028".encode(), "\u0661".encode(), b"<eps>", b"a", b"->", b"[", b"]", b"}",
    b";", b"_",
]  # fmt: skip
_TOKEN = re.compile(rb"[\w.+-]+|[^\w\s]")


def _flip(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def _swap_lines(data: bytes, rng: random.Random) -> bytes:
    lines = data.split(b"\n")
    one, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[one], lines[other] = lines[other], lines[one]
    return b"\n".join(lines)


def _truncate(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def _replace_token(data: bytes, rng: random.Random) -> bytes:
    tokens = list(_TOKEN.finditer(data))
    if not tokens:
        return data + rng.choice(TOKENS)
    place = rng.choice(tokens)
    other = rng.choice(TOKENS) if rng.random() < 0.7 else rng.choice(tokens)[0]
    return data[: place.start()] + other + data[place.end() :]


def _insert(data: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(data) + 1)
    return data[:place] + rng.choice(TOKENS) + data[place:]


def _duplicate(data: bytes, rng: random.Random) -> bytes:
    lines = data.split(b"\n")
    place = rng.randrange(len(lines))
    return b"\n".join([*lines[:place], lines[place], *lines[place:]])


def _cut_out(data: bytes, rng: random.Random) -> bytes:
    begin = rng.randrange(len(data))
    return data[:begin] + data[begin + rng.randint(1, 40) :]


MUTATIONS: list[Callable[[bytes, random.Random], bytes]] = [
    _flip, _swap_lines, _truncate, _replace_token, _replace_token, _insert, _duplicate, _cut_out
]  # fmt: skip


def mutated(data: bytes, rng: random.Random) -> bytes:
    """``data`` after one to three kinds of damage."""
    for _ in range(rng.randint(1, 3)):
        if data:
            data = rng.choice(MUTATIONS)(data, rng)
    return data
