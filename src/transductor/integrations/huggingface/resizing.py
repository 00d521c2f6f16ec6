"""Gives a head a larger or smaller vocabulary."""

from __future__ import annotations

from dataclasses import replace

import torch

from transductor.heads import HeadConfig, RationalHead, build_head
from transductor.transitions import FamilySpec


@torch.no_grad()
def with_vocabulary(head: RationalHead, vocab_size: int) -> RationalHead:
    """Return the same head for ``vocab_size`` tokens: old tokens keep their transitions, new ones get initial ones."""
    resized = build_head(resized_config(head, vocab_size))
    resized = resized.to(head.raw_initial_state.device, head.raw_initial_state.dtype)
    before = head.state_dict()
    for name, value in resized.state_dict().items():
        old = before[name]
        if value.shape == old.shape:
            value.copy_(old)
        else:  # a row per token
            rows = min(len(value), len(old))
            value[:rows].copy_(old[:rows])
    for name, parameter in resized.named_parameters():
        parameter.requires_grad_(head.get_parameter(name).requires_grad)
    return resized.train(head.training)


def resized_config(head: RationalHead, vocab_size: int) -> HeadConfig:
    """Return the configuration for ``vocab_size`` tokens; refuse transitions that are listed token by token."""
    return replace(head.config, transitions=_resized(head.config.transitions, vocab_size))


def _resized(spec: FamilySpec, vocab_size: int) -> FamilySpec:
    if not spec.parts and "vocab_size" not in spec.arguments:
        raise ValueError(f"the vocabulary cannot change: {spec.family} transitions are written down token by token")
    arguments = {name: vocab_size if name == "vocab_size" else value for name, value in spec.arguments.items()}
    return replace(spec, arguments=arguments, parts=tuple(_resized(part, vocab_size) for part in spec.parts))
