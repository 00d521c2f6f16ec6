"""Heads, which turn tokens into states: a family of transitions, an initial state and a scan."""

from __future__ import annotations

from typing import Final

from transductor.checks import one_of
from transductor.heads.factored_filter import FactoredFilterHead
from transductor.heads.filter import FilterHead
from transductor.heads.lookback import LookbackHead
from transductor.heads.random_features import RandomFeatureHead
from transductor.heads.rational import HeadConfig, HeadState, RationalHead
from transductor.heads.steadying import steadied
from transductor.heads.universal import UniversalHead
from transductor.transitions import build_family

__all__ = [
    "HEADS",
    "FactoredFilterHead",
    "FilterHead",
    "HeadConfig",
    "HeadState",
    "LookbackHead",
    "RandomFeatureHead",
    "RationalHead",
    "UniversalHead",
    "build_head",
    "steadied",
]

HEADS: Final[dict[str, type[RationalHead]]] = {
    head.name: head
    for head in (RationalHead, LookbackHead, UniversalHead, RandomFeatureHead, FilterHead, FactoredFilterHead)
}


def build_head(config: HeadConfig) -> RationalHead:
    """Build a fresh head from its configuration."""
    one_of("head", config.head, HEADS)
    return HEADS[config.head].from_family(build_family(config.transitions), config.backend)
