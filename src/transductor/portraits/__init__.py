"""What a head does, measured into plain numbers that a report can draw.

Measuring needs torch, drawing does not: ``report`` draws what is stored here, so torch is imported only with
``portrait``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from transductor.portraits.values import Portrait, read_portrait

if TYPE_CHECKING:
    from transductor.portraits.measurement import portrait

__all__ = ["Portrait", "portrait", "read_portrait"]


def __getattr__(name: str) -> Any:
    if name != "portrait":
        raise AttributeError(f"module 'transductor.portraits' has no attribute {name!r}")
    return import_module("transductor.portraits.measurement").portrait
