"""Configurations: frozen values that can be written to JSON and read again.

A configuration is a frozen dataclass decorated with :func:`configuration`.  In JSON it is an object whose
``"kind"`` names the class, so alternatives are two objects and never two flags; unknown kinds, unknown
fields, missing fields and values of another kind than the field's type hint says are refused by name.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Final, TypeVar, cast

from transductor.json_reading import JSONError, brief, parsed_json
from transductor.typed_values import check_kind, hints_of

_T = TypeVar("_T")

# Metadata of a field that a configuration gained later: it is written only where it differs from its default, so that
# files of earlier releases and of this one are the same where they mean the same.
LATER: Final[Mapping[str, bool]] = {"later": True}
_KINDS: dict[str, type] = {}


class ConfigurationError(ValueError):
    """Raised for a configuration that cannot be read; the message names the field and what is allowed."""


def configuration(cls: type[_T]) -> type[_T]:
    """Register a frozen dataclass under its own name."""
    if not dataclasses.is_dataclass(cls):
        raise TypeError(f"{cls.__name__} must be a dataclass")
    if any(field.name == "kind" for field in dataclasses.fields(cls)):
        raise TypeError(f"{cls.__name__} must not have a field named kind: that is where its own name is written")
    if _KINDS.setdefault(cls.__name__, cls) is not cls:
        raise TypeError(f"a configuration named {cls.__name__} exists already")
    return cls


def to_plain(value: Any) -> Any:
    """Turn a configuration into dictionaries, lists and scalars."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        written = [
            f for f in dataclasses.fields(value) if not f.metadata.get("later") or f.default != getattr(value, f.name)
        ]
        fields = {f.name: to_plain(getattr(value, f.name)) for f in written}
        return {"kind": type(value).__name__, **fields}
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ConfigurationError(f"a configuration holds numbers, strings and configurations; got {type(value).__name__}")


def from_plain(value: Any) -> Any:
    """Undo :func:`to_plain`; lists become tuples."""
    if isinstance(value, list):
        return tuple(from_plain(item) for item in value)
    if not isinstance(value, dict):
        return value
    items = {key: from_plain(item) for key, item in value.items() if key != "kind"}
    if "kind" not in value:
        return items
    kind = value["kind"]
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ConfigurationError(f"kind must be one of {', '.join(sorted(_KINDS))}; got {str(kind)[:80]!r}")
    cls = _KINDS[kind]
    fields = {f.name: f for f in dataclasses.fields(cast(Any, cls))}
    unknown = sorted(set(items) - set(fields))
    if unknown:
        raise ConfigurationError(f"{kind} has no field {unknown[0][:40]!r}; its fields are {', '.join(fields)}")
    missing = [
        name
        for name, f in fields.items()
        if name not in items and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise ConfigurationError(f"{kind} needs the field {missing[0]!r}")
    hints = hints_of(cls)
    try:
        for name, item in items.items():
            check_kind(name, item, hints[name])
        return cls(**items)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"{kind}: {brief(error)}") from error


def to_json(value: Any) -> str:
    """Write a configuration as indented JSON text."""
    return json.dumps(to_plain(value), indent=2, allow_nan=False)


def from_json(text: str) -> Any:
    """Read the configuration that :func:`to_json` wrote."""
    try:
        return from_plain(parsed_json(text))
    except JSONError as error:
        raise ConfigurationError(str(error)) from error
    except RecursionError:
        raise ConfigurationError("the configuration is nested too deeply") from None
