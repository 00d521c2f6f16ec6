"""What a head does, measured into plain numbers that a report can draw.

Measuring needs torch, drawing does not: ``report`` draws what is stored here, so torch is imported only with
``portrait``, ``explored_model`` and ``proof_of``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from transductor.portraits.explored import Explored, read_explored, write_explored
from transductor.portraits.values import Portrait, read_portrait

if TYPE_CHECKING:
    from transductor.portraits.exploring import explored_model, proof_of
    from transductor.portraits.measurement import portrait

__all__ = [
    "Explored",
    "Portrait",
    "explored_model",
    "portrait",
    "proof_of",
    "read_explored",
    "read_portrait",
    "write_explored",
]

_WITH_TORCH: Final = {"portrait": "measurement", "explored_model": "exploring", "proof_of": "exploring"}


def __getattr__(name: str) -> Any:
    if name not in _WITH_TORCH:
        raise AttributeError(f"module 'transductor.portraits' has no attribute {name!r}")
    return getattr(import_module(f"transductor.portraits.{_WITH_TORCH[name]}"), name)
