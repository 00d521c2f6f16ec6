"""Values against type hints: what is wrong is named, by its place and by what is allowed there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NotRequired, TypedDict

import pytest

from transductor.typed_values import KindError, check_kind, from_fields


class Fields(TypedDict):
    count: int
    share: NotRequired[float]


@dataclass(frozen=True)
class Inner:
    size: int


@dataclass(frozen=True)
class Outer:
    inner: Inner | None
    names: tuple[str, ...] = ()


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (1, int), (1, float), (1.5, float), (None, int | None), ([1, 2], tuple[int, ...]), ((1, "a"), tuple[int, str]),
        ({"a": [1]}, dict[str, list[int]]), ("x", Literal["x", "y"]), ({"count": 1}, Fields), (object(), Any),
        (2**1000, float), ({"count": 1, "share": 0.5}, Fields),
    ],
)  # fmt: skip
def test_what_fits(value, hint):
    check_kind("it", value, hint)


@pytest.mark.parametrize(
    ("value", "hint", "words"),
    [
        (True, int, "it must be an integer; got True"), (True, float, "a finite number"), (1.0, int, "an integer"),
        (float("nan"), float, "a finite number; got nan"), (float("inf"), float, "a finite number"),
        (10**400, float, "an integer of more than 256 bits"), ("1", int | None, "an integer or nothing"),
        ([1, "2"], list[int], r"it\[1\] must be an integer"), ([1], tuple[int, int], "a list of 2"),
        ({"a": [1.5]}, dict[str, list[int]], r"it\.a\[0\] must be an integer"), ({1: 1}, dict[str, int], "has a name"),
        (1, Literal[True], "one of True"), ({}, Fields, r"it\.count is missing"), ("x" * 99, int, "x…"),
        ({"count": 1, "other": 2}, Fields, r"it\.other is not known; the fields are count, share"),
        ([[1], 5], list[list[int]], r"it\[1\] must be a list, each an integer"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(value, hint, words):
    with pytest.raises(KindError, match=words):
        check_kind("it", value, hint)


def test_dataclasses_are_built_from_the_inside():
    assert from_fields(Outer, {"inner": {"size": 2}, "names": ["a"]}) == Outer(Inner(2), ["a"])
    assert from_fields(Outer, {"inner": None}) == Outer(None)
    for plain, words in (
        ({"inner": {"size": "2"}}, "inner.size must be an integer"),
        ({"inner": {}}, "inner.size is missing"),
        ({"inner": None, "more": 1}, "more is not known"),
        ({}, "inner is missing"),
        ([], "it must be an object"),
    ):
        with pytest.raises(KindError, match=words):
            from_fields(Outer, plain)
