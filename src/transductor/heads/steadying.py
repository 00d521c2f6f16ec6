"""Heads whose states keep their norm in float32, over tens of millions of steps."""

from __future__ import annotations

import copy
from typing import TypeVar

import torch
from torch import nn

from transductor.heads.lookback import LookbackHead
from transductor.heads.rational import RationalHead
from transductor.transitions.steadying import is_orthogonal, steadied_family

ModuleT = TypeVar("ModuleT", bound=nn.Module)


@torch.no_grad()
def steadied(module: ModuleT) -> ModuleT:
    """Return a copy of a model whose orthogonal heads keep the norm of their states over long inputs.

    A trained orthogonal head computes its matrices in float32, and what rounding took from their orthogonality adds up:
    after 10⁷ steps a state has lost or gained up to a fifth of its norm.  The new heads hold a frozen table, computed
    in float64 and rounded so that the norm lasts (:func:`~transductor.transitions.steadied_table`).  It is a table like
    any other: all at once or step by step, in a stream, saved or certified, every form multiplies by the same numbers.

    Args:
        module: A head, or a model that holds heads, in float32 and driven by tokens.  A ``RationalHead`` or
            ``LookbackHead`` takes the place of an orthogonal head; other heads are copied as they are.
    """
    heads = [head for head in module.modules() if isinstance(head, RationalHead)]
    orthogonal = [head for head in heads if is_orthogonal(head.transitions)]
    if not orthogonal:
        names = ", ".join(sorted({head.transitions.name for head in heads})) or "no head"
        raise ValueError(f"module must have a head with orthogonal transitions; got {names}")
    for head in orthogonal:
        if head.transitions.vocab_size is None:
            raise ValueError("module must be driven by tokens: matrices computed from features have no table to round")
        if head.raw_initial_state.dtype != torch.float32:
            raise ValueError(f"module must be in float32; got {head.raw_initial_state.dtype}, which keeps the norm")
    if isinstance(module, RationalHead):
        return _steadied_head(module)  # type: ignore[return-value]
    copied = copy.deepcopy(module)
    for parent in list(copied.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, RationalHead) and is_orthogonal(child.transitions):
                setattr(parent, name, _steadied_head(child))
    return copied


def _steadied_head(head: RationalHead) -> RationalHead:
    kind = LookbackHead if head.shows_previous else RationalHead
    steady = kind(steadied_family(head.transitions), backend=head.backend).to(head.raw_initial_state)
    steady.raw_initial_state.copy_(head.raw_initial_state)
    return steady.train(head.training).requires_grad_(False)
