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
    from transductor.learning import TransductorClassifier, TransductorRegressor
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

__version__ = "0.2.0"

# The room of a public name, where it is not ``model``.
_ROOM = {
    "scan": "recurrence",
    "RandomFeatureHead": "heads",
    "RationalHead": "heads",
    "UniversalHead": "heads",
    "compile_head": "compilation",
    "compile_model": "compilation",
    "extract": "extraction",
    "harden": "extraction",
    "certify": "certification",
    "TransductorClassifier": "learning",
    "TransductorRegressor": "learning",
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
    "TransductorClassifier",
    "TransductorRegressor",
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
    if name not in __all__:
        raise AttributeError(f"module 'transductor' has no attribute {name!r}")
    value = getattr(import_module(f"transductor.{_ROOM.get(name, 'model')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
