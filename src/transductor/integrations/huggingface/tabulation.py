"""Turns a head that reads embeddings into one that reads tokens, which decodes faster."""

from __future__ import annotations

from typing import Any

import torch

from transductor.heads import RationalHead
from transductor.integrations.huggingface.host_models import host_of
from transductor.integrations.huggingface.sidecar import Sidecar, attach, detach, sidecar_of
from transductor.transitions import DenseTransitions

# How many entries of matrices are computed at once: 64 MB of float32.
_ENTRIES_AT_ONCE = 1 << 24


@torch.no_grad()
def tabulate(model: Any) -> Sidecar:
    """Replace the head that computes matrices from embeddings by the table of the matrices of all tokens.

    The states stay the same up to rounding, and the matrix of a decoded token is looked up instead of computed.  The
    table is frozen and has V·d² entries (206 MB for 50 257 tokens and 32 states): tabulate when training is over, and
    save the sidecar before.  The projections are the same module as before and can still be trained.

    Args:
        model: A host model with a sidecar whose head reads embeddings (:func:`head_for`).

    Returns:
        The new sidecar.
    """
    host, sidecar = host_of(model), sidecar_of(model)
    head = sidecar.rational_head
    if not sidecar.reads_features:
        raise ValueError("model must have a sidecar whose head reads embeddings; this one reads tokens already")
    if type(head) is not RationalHead:
        raise TypeError(f"the head of the sidecar must be a RationalHead to be tabulated; got {type(head).__name__}")
    family = DenseTransitions(vocab_size=host.vocab_size, state_dim=head.state_dim, init_scale=0.0)
    table = RationalHead(family, backend=head.backend).requires_grad_(False).to(head.raw_initial_state)
    table.raw_initial_state.copy_(head.initial_state())
    tokens = torch.arange(host.vocab_size, device=head.raw_initial_state.device)
    entries = family.source.get_parameter("raw")
    for some in tokens.split(max(1, _ENTRIES_AT_ONCE // head.state_dim**2)):
        entries[some] = head.transitions.matrices(host.embeddings(some)).flatten(1)
    detach(model)
    tabulated = attach(model, table, sidecar.layers)
    tabulated.injection = sidecar.injection
    return tabulated
