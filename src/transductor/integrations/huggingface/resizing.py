"""A head with a larger or smaller vocabulary."""

from __future__ import annotations

from dataclasses import replace

import torch

from transductor.heads import RationalHead, build_head
from transductor.transitions import FamilySpec


@torch.no_grad()
def with_vocabulary(head: RationalHead, vocab_size: int) -> RationalHead:
    """A head of the same family for ``vocab_size`` tokens: old ones keep their transitions, new ones start fresh."""
    check_resizable(head)
    config = head.config
    fresh = build_head(replace(config, transitions=_resized(config.transitions, vocab_size)))
    fresh = fresh.to(head.raw_initial_state.device, head.raw_initial_state.dtype)
    before = head.state_dict()
    for name, value in fresh.state_dict().items():
        old = before[name]
        if value.shape == old.shape:
            value.copy_(old)
        else:  # a row per token
            rows = min(len(value), len(old))
            value[:rows].copy_(old[:rows])
    for name, parameter in fresh.named_parameters():
        parameter.requires_grad_(head.get_parameter(name).requires_grad)
    return fresh.train(head.training)


def check_resizable(head: RationalHead) -> None:
    """Refuse a head whose transitions are given as a list, one for each token."""
    _check(head.config.transitions)


def _check(spec: FamilySpec) -> None:
    if not spec.parts and "vocab_size" not in spec.arguments:
        raise ValueError(f"the vocabulary cannot change: {spec.family} transitions are written down token by token")
    for part in spec.parts:
        _check(part)


def _resized(spec: FamilySpec, vocab_size: int) -> FamilySpec:
    arguments = {name: vocab_size if name == "vocab_size" else value for name, value in spec.arguments.items()}
    return replace(spec, arguments=arguments, parts=tuple(_resized(part, vocab_size) for part in spec.parts))
