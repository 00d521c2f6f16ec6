"""The model card: a description of a model in plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from transductor.heads import RationalHead
from transductor.model.base import SequenceModel
from transductor.results import Certificate
from transductor.transitions import FamilySpec, TransitionFamily, certify_laws


@dataclass(frozen=True)
class HeadCard:
    """The description of one rational head: where it is, what drives it, its family, its measured laws, its cost."""

    place: str
    family: str
    state_dim: int
    drive: str
    parameters: int
    step_cost: int
    laws: tuple[Certificate, ...]


@dataclass(frozen=True)
class ModelCard:
    """The description of a model: its kind, parameters by part, heads and configuration."""

    kind: str
    parameters: int
    frozen: int
    dtype: str
    parts: Mapping[str, int]
    heads: tuple[HeadCard, ...]
    config: Any


def family_name(spec: FamilySpec) -> str:
    """Return the name of a family with its parts, such as ``direct_sum(squared_cayley, stochastic)``."""
    return f"{spec.family}({', '.join(family_name(part) for part in spec.parts)})" if spec.parts else spec.family


def _measured(family: TransitionFamily) -> tuple[Certificate, ...]:
    if family.feature_dim is None:
        return certify_laws(family)
    # A family driven by features has no table: its laws are measured on random feature vectors.
    features = torch.randn(256, family.feature_dim, generator=torch.Generator().manual_seed(0))
    parameter = next(family.parameters())
    return certify_laws(family, family.matrices(features.to(parameter.device, parameter.dtype)))


@torch.no_grad()
def model_card(model: SequenceModel[Any] | RationalHead) -> ModelCard:
    """Describe a model or a head; laws are measured now, on the weights it has."""
    heads = []
    for place, module in model.named_modules():
        if isinstance(module, RationalHead):
            family = module.transitions
            drive = f"{family.vocab_size} tokens" if family.feature_dim is None else f"{family.feature_dim} features"
            heads.append(
                HeadCard(
                    place or "(the head itself)",
                    family_name(family.spec()),
                    family.state_dim,
                    drive,
                    sum(p.numel() for p in module.parameters()),
                    family.step_cost(),
                    _measured(family),
                )
            )
    parameters = list(model.parameters())
    return ModelCard(
        kind=type(model).__name__,
        parameters=sum(p.numel() for p in parameters if p.requires_grad),
        frozen=sum(p.numel() for p in parameters if not p.requires_grad),
        dtype=str(parameters[0].dtype).removeprefix("torch."),
        parts={name: sum(p.numel() for p in child.parameters()) for name, child in model.named_children()},
        heads=tuple(heads),
        config=model.config,
    )
