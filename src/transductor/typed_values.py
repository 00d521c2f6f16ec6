"""Plain values against type hints: a file must say values of the kinds that its reader declares.

Readers declare what they read as dataclasses or ``TypedDict``; what a stranger wrote is compared with the hints before
anything is computed from it, so that a wrong kind is refused by the name of its field.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, Final, Literal, NotRequired, TypeVar, Union, get_args, get_origin

_Value = TypeVar("_Value")

_WORDS: Final[dict[Any, str]] = {
    int: "an integer", float: "a finite number", bool: "true or false", str: "a text", type(None): "nothing",
}  # fmt: skip


class KindError(ValueError):
    """A value that is not of the kind that its reader declares; the message names it and what is allowed."""


def check_kind(name: str, value: object, hint: Any) -> None:
    """Refuse a value that is not of the kind that a type hint says.

    Tuples and lists are the same, as JSON has one of them; truth values are no numbers; an integer may stand for a
    number, if it is not too large for one.

    Raises:
        KindError: The message names the part that is wrong, such as ``bands[2].count``.
    """
    wrong = _wrong(value, hint)
    if wrong is not None:
        place, reason = wrong
        raise KindError(f"{(name + place).removeprefix('.') or 'it'} {reason}")


# Where the wrong part stands, such as ``[2].count``, and what is wrong with it.
_Wrong = tuple[str, str]


def _wrong(value: object, hint: Any) -> _Wrong | None:
    """Return what is wrong, if anything is; names are put together only then, because most values are right."""
    kind, parts = _parsed_hint(hint)
    match kind:
        case "any":
            return None
        case "plain":
            return None if _is_of(value, hint) else _refused(value, hint)
        case "union":
            return _wrong_in_union(value, hint, parts)
        case "literal":
            right = any(value == each and type(value) is type(each) for each in parts)
            return None if right else _refused(value, hint)
        case "fields":
            return _wrong_in_fields(value, hint)
        case "list" | "tuple":
            if not isinstance(value, list | tuple) or (kind == "tuple" and len(value) != len(parts)):
                return _refused(value, hint)
            kinds = parts if kind == "tuple" else [parts[0]] * len(value)
            for place, (item, part) in enumerate(zip(value, kinds, strict=True)):
                if (wrong := _wrong(item, part)) is not None:
                    return f"[{place}]{wrong[0]}", wrong[1]
            return None
        case _:
            if not isinstance(value, Mapping):
                return _refused(value, hint)
            for key, item in value.items():
                if (wrong := _wrong(key, parts[0])) is not None:
                    return "", f"has a name that {wrong[1]}"
                if (wrong := _wrong(item, parts[1])) is not None:
                    return f".{key!s:.40}{wrong[0]}", wrong[1]
            return None


@lru_cache(maxsize=4096)
def _parsed_hint(hint: Any) -> tuple[str, tuple[Any, ...]]:
    """Return what sort of hint this is, and its parts."""
    origin, parts = get_origin(hint), get_args(hint)
    if hint is Any or hint is object:
        return "any", ()
    if origin in (Union, types.UnionType):
        return "union", parts
    if origin is Literal:
        return "literal", parts
    if typing.is_typeddict(hint):
        return "fields", ()
    if origin in (list, Sequence) or (origin is tuple and parts[-1] is Ellipsis):
        return "list", parts
    if origin is tuple:
        return "tuple", parts
    return ("mapping", parts) if origin in (dict, Mapping) else ("plain", ())


def _is_of(value: object, hint: type) -> bool:
    if hint is float:
        if type(value) is int:
            return abs(value) < 2**1023
        return type(value) is float and value - value == 0
    return type(value) is int if hint is int else isinstance(value, hint)


def _wrong_in_union(value: object, hint: Any, parts: Sequence[Any]) -> _Wrong | None:
    """Return None if some alternative fits; what is wrong inside where the value has the shape of one of them."""
    inside = []
    for part in parts:
        wrong = _wrong(value, part)
        if wrong is None:
            return None
        if wrong[0]:
            inside.append(wrong)
    return inside[0] if len(inside) == 1 else _refused(value, hint)


def _wrong_in_fields(value: object, hint: Any) -> _Wrong | None:
    if not isinstance(value, Mapping):
        return _refused(value, hint)
    fields = hints_of(hint)
    for field in value:
        if field not in fields:
            return f".{field!s:.40}", f"is not known; the fields are {', '.join(fields)}"
    for field, part in fields.items():
        optional = get_origin(part) is NotRequired
        if field in value:
            if (wrong := _wrong(value[field], get_args(part)[0] if optional else part)) is not None:
                return f".{field}{wrong[0]}", wrong[1]
        elif not optional:
            return f".{field}", "is missing"
    return None


@cache
def hints_of(kind: type) -> dict[str, Any]:
    """Return the type hints of a class, resolved."""
    return typing.get_type_hints(kind, include_extras=True)


def from_fields(kind: type[_Value], plain: object, name: str = "") -> _Value:
    """Return the dataclass that the fields of a JSON object describe, and so for dataclasses and lists of them inside.

    Raises:
        KindError: A field is not known, missing, or of the wrong kind.
    """
    return _built(kind, plain, name)  # type: ignore[no-any-return]


def _built(hint: Any, plain: Any, name: str) -> Any:
    parts = get_args(hint) if get_origin(hint) is list else ()
    if parts and dataclasses.is_dataclass(parts[0]):
        check_kind(name, plain, list)
        return [_built(parts[0], part, f"{name}[{place}]") for place, part in enumerate(plain)]
    kind = _dataclass_in(hint)
    if kind is None or (plain is None and type(None) in get_args(hint)):
        check_kind(name, plain, hint)
        return plain
    if not isinstance(plain, dict):
        raise KindError(f"{name or 'it'} must be an object; got {_shown(plain)}")
    where, fields, hints = f"{name}." if name else "", dataclasses.fields(kind), hints_of(kind)
    for key in plain:
        if key not in (field.name for field in fields):
            raise KindError(
                f"{where}{key:.40} is not known; the fields are {', '.join(field.name for field in fields)}"
            )
    values = {}
    for field in fields:
        if field.name in plain:
            values[field.name] = _built(hints[field.name], plain[field.name], f"{where}{field.name}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise KindError(f"{where}{field.name} is missing")
    return kind(**values)


def _dataclass_in(hint: Any) -> Any:
    """Return the dataclass that a hint is, or is besides None."""
    kinds = [each for each in (get_args(hint) or (hint,)) if each is not type(None)]
    whole = get_origin(hint) in (None, Union, types.UnionType)
    return kinds[0] if whole and len(kinds) == 1 and dataclasses.is_dataclass(kinds[0]) else None


def _refused(value: object, hint: Any) -> _Wrong:
    return "", f"must be {_described(hint)}; got {_shown(value)}"


def _shown(value: object) -> str:
    """Write a value in a few characters; integers of any size."""
    if isinstance(value, int) and value.bit_length() > 256:
        return "an integer of more than 256 bits"
    text = repr(value) if not isinstance(value, dict | list | tuple) else f"{type(value).__name__} of {len(value)}"
    return text if len(text) <= 40 else f"{text[:39]}…"


def _described(hint: Any) -> str:
    origin, parts = get_origin(hint), get_args(hint)
    if hint in _WORDS:
        return _WORDS[hint]
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_described(part) for part in parts))
    if origin is Literal:
        return f"one of {', '.join(map(repr, parts))}"
    if origin is tuple and parts[-1] is not Ellipsis:
        return f"a list of {len(parts)}: {', '.join(map(_described, parts))}"
    if origin in (tuple, list, Sequence):
        return "a list" if parts[0] is Any else f"a list, each {_described(parts[0])}"
    if origin in (dict, Mapping) or typing.is_typeddict(hint):
        return "an object"
    return f"a {getattr(hint, '__name__', hint)}"
