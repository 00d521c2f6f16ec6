"""Recurrences of flash-linear-attention as small models, and what their layers really do.

A peer is an embedding, one or two blocks (norm, the library's layer, norm, a gated feed-forward part, each with a
residual), a norm and a linear readout.  The layers are the library's own, with their parameters and starts, and run in
float32 by the operations of :mod:`plain_recurrences`, which :mod:`peer_checks` compares with the library's kernels; the
width of the feed-forward part is what brings a peer to a number of parameters.  The library is optional: nothing else
needs it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from plain_recurrences import PLAIN

PEERS = ("deltanet", "deltaproduct", "gated_deltanet", "mamba2", "rwkv7")
HOUSEHOLDERS = 4  # what the group of five things needs in one layer


def _first_alone(tuner: Any, function: Any, names: Any, configs: Any, *rest: Any, **more: Any) -> None:
    tuner.among_all(function, names, configs[:1], *rest, **more)


@cache
def library(name: str) -> Any:
    """A module of the library, with exact products of float32 and without a search for the fastest kernel.

    Each search would compile dozens of variants of every kernel; models as small as these do not repay it.
    """
    os.environ.setdefault("TRITON_F32_DEFAULT", "ieee")
    os.environ.setdefault("FLA_USE_COMPILE", "0")
    tuner: Any = import_module("triton.runtime.autotuner").Autotuner
    if not hasattr(tuner, "among_all"):
        tuner.among_all = tuner.__init__
        tuner.__init__ = _first_alone
    return import_module(f"fla.{name}")


@dataclass(frozen=True)
class Shape:
    """Sizes of a peer: blocks, width of the stream, heads of ``head_dim``, and the numbers it is to have."""

    layers: int
    width: int
    heads: int
    head_dim: int
    parameters: int
    low_rank: int = 4  # of RWKV-7's small projections


def mixer(peer: str, shape: Shape, place: int) -> nn.Module:
    """The library's layer."""
    common = {"hidden_size": shape.width, "num_heads": shape.heads, "layer_idx": place}
    wide = shape.heads * shape.head_dim
    layers = library("layers")
    more: dict[str, Any] = {"mode": "fused_recurrent", "allow_neg_eigval": True}
    if peer == "deltanet":
        return layers.DeltaNet(  # type: ignore[no-any-return]
            **common, **more, expand_k=wide / shape.width, expand_v=wide / shape.width
        )
    if peer == "deltaproduct":
        # Without gates, which is how its authors run it on groups.
        more |= {"use_forget_gate": False, "use_output_gate": False, "num_householder": HOUSEHOLDERS}
        return layers.GatedDeltaProduct(  # type: ignore[no-any-return]
            **common, **more, head_dim=shape.head_dim, expand_v=1
        )
    if peer == "gated_deltanet":
        return layers.GatedDeltaNet(  # type: ignore[no-any-return]
            **common, **more, head_dim=shape.head_dim, expand_v=1
        )
    if peer == "mamba2":
        return layers.Mamba2(  # type: ignore[no-any-return]
            hidden_size=shape.width, head_dim=shape.head_dim, state_size=16, expand=2, chunk_size=40, layer_idx=place
        )
    ranks = dict.fromkeys(
        ("decay_low_rank_dim", "gate_low_rank_dim", "a_low_rank_dim", "v_low_rank_dim"), shape.low_rank
    )
    return layers.RWKV7Attention(  # type: ignore[no-any-return]
        hidden_size=shape.width,
        head_dim=shape.head_dim,
        layer_idx=place,
        num_hidden_layers=max(2, shape.layers),  # its start divides by one less
        **ranks,
    )


class Block(nn.Module):
    def __init__(self, peer: str, shape: Shape, place: int, feedforward: int) -> None:
        super().__init__()
        self.before_mixer = nn.RMSNorm(shape.width)
        self.mixer = mixer(peer, shape, place)
        self.before_feedforward = nn.RMSNorm(shape.width)
        self.enter = nn.Linear(shape.width, 2 * feedforward, bias=False)
        self.leave = nn.Linear(feedforward, shape.width, bias=False)
        self.plain = PLAIN[peer]

    def forward(self, stream: Tensor, first_values: Tensor | None) -> tuple[Tensor, Tensor | None]:
        mixed, first_values = self.plain(self.mixer, self.before_mixer(stream), first_values)
        stream = stream + mixed
        gate, value = self.enter(self.before_feedforward(stream)).chunk(2, -1)
        return stream + self.leave(functional.silu(gate) * value), first_values


class Peer(nn.Module):
    """Tokens ``(B, T)`` to logits ``(B, T, outputs)``."""

    def __init__(self, peer: str, shape: Shape, vocab_size: int, output_size: int, feedforward: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, shape.width)
        self.blocks = nn.ModuleList(Block(peer, shape, place, feedforward) for place in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width)
        self.readout = nn.Linear(shape.width, output_size)

    def forward(self, tokens: Tensor) -> Tensor:
        stream, first_values = self.embedding(tokens), None
        for block in self.blocks:
            stream, first_values = block(stream, first_values)
        return self.readout(self.norm(stream))  # type: ignore[no-any-return]


def parameter_count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@cache
def feedforward_width(peer: str, shape: Shape, vocab_size: int, output_size: int) -> int:
    """The width of the feed-forward part that brings a peer nearest to its number of parameters."""
    least = parameter_count(Peer(peer, shape, vocab_size, output_size, 1))
    return max(1, 1 + round((shape.parameters - least) / (3 * shape.layers * shape.width)))


def build_peer(peer: str, shape: Shape, vocab_size: int, output_size: int, seed: int) -> Peer:
    """A peer as every run with this seed begins."""
    width = feedforward_width(peer, shape, vocab_size, output_size)
    torch.manual_seed(seed)
    return Peer(peer, shape, vocab_size, output_size, width)
