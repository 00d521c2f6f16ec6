"""Rational Transductors: a Transformer with a weighted automaton as its second stream.

Names are imported when first used, so that ``transductor --help`` does not wait for torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transductor.certification import certify
    from transductor.compilation import compile_head, compile_model
    from transductor.extraction import extract, harden
    from transductor.heads import RandomFeatureHead, RationalHead, UniversalHead
    from transductor.model import (
        LSTM,
        BackboneConfig,
        LinearRNN,
        RationalReadout,
        RationalTransductor,
        StackedTransductor,
        Transformer,
        load,
        save,
    )
    from transductor.recurrence import scan

__version__ = "0.1.0"

_HOME = {
    "scan": "transductor.recurrence",
    "RationalHead": "transductor.heads",
    "UniversalHead": "transductor.heads",
    "RandomFeatureHead": "transductor.heads",
    "BackboneConfig": "transductor.model",
    "RationalReadout": "transductor.model",
    "RationalTransductor": "transductor.model",
    "StackedTransductor": "transductor.model",
    "Transformer": "transductor.model",
    "LSTM": "transductor.model",
    "LinearRNN": "transductor.model",
    "save": "transductor.model",
    "load": "transductor.model",
    "compile_head": "transductor.compilation",
    "compile_model": "transductor.compilation",
    "extract": "transductor.extraction",
    "harden": "transductor.extraction",
    "certify": "transductor.certification",
}

__all__ = [
    "LSTM",
    "BackboneConfig",
    "LinearRNN",
    "RandomFeatureHead",
    "RationalHead",
    "RationalReadout",
    "RationalTransductor",
    "StackedTransductor",
    "Transformer",
    "UniversalHead",
    "certify",
    "compile_head",
    "compile_model",
    "extract",
    "harden",
    "load",
    "save",
    "scan",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'transductor' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
