"""Recurrences of flash-linear-attention as small models, and what their layers really do.

A peer is an embedding, one or two blocks (norm, the library's layer, norm, a gated feed-forward part, each with a
residual), a norm and a linear readout.  The layers are the library's own, with its own starts; the width of the
feed-forward part is what brings a peer to a number of parameters.  The library is optional: nothing else needs it.

What the layers really do is measured by :mod:`peer_checks` before anything is trained.
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
    # The mode is that of judging, in float32; the chunked kernels of the delta rule take 16 bits only.
    more: dict[str, Any] = {"mode": "fused_recurrent", "allow_neg_eigval": True}
    if peer == "deltanet":
        return layers.DeltaNet(  # type: ignore[no-any-return]
            **common, **more, expand_k=wide / shape.width, expand_v=wide / shape.width
        )
    if peer == "deltaproduct":
        # Without gates, which is how its authors run it on groups; the gated form has no gradient here, as below.
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
        self.hands_on = peer == "rwkv7"

    def forward(self, stream: Tensor, first_values: Tensor | None) -> tuple[Tensor, Tensor | None]:
        normed = self.before_mixer(stream)
        mixed = self.mixer(normed, v_first=first_values) if self.hands_on else self.mixer(normed)
        if self.hands_on:
            first_values = mixed[3]
        stream = stream + (mixed[0] if isinstance(mixed, tuple) else mixed)
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


def one_chunk(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, g: Tensor | None, scale: float | None = None) -> Tensor:
    """The gated delta rule on ``(B, T, H, …)`` for short T, as one triangular system in plain torch.

    With c the running sum of the gates' logarithms and Cᵢⱼ = exp(cᵢ − cⱼ), what each position writes is the solution u
    of ``(I + tril(diag(beta) (k kᵀ ∘ C), −1)) u = diag(beta) v``; what it reads is ``tril(q kᵀ ∘ C) u``.
    """
    q, k, v, beta = (each.transpose(1, 2) for each in (q, k, v, beta))
    length = q.shape[2]
    products, reads = k @ k.mT, q @ k.mT
    if g is not None:
        total = g.transpose(1, 2).cumsum(-1)
        earlier = torch.ones(length, length, dtype=torch.bool, device=q.device).tril()
        since = (total[..., :, None] - total[..., None, :]).masked_fill(~earlier, 0.0).exp()
        products, reads = products * since, reads * since
    system = (beta[..., None] * products).tril(-1) + torch.eye(length, device=q.device)
    written = torch.linalg.solve_triangular(system, beta[..., None] * v, upper=False, unitriangular=True)
    return ((reads.tril() @ written) * (q.shape[-1] ** -0.5 if scale is None else scale)).transpose(1, 2)


def one_chunk_ssd(layer: Any, stream: Tensor) -> Tensor:
    """Mamba-2's layer on short inputs: what its ``torch_forward`` computes, by products of matrices."""
    length, inner, state = stream.shape[1], layer.intermediate_size, layer.ssm_state_size
    gate, mixed, step = layer.in_proj(stream).split([inner, layer.conv_dim, layer.num_heads], -1)
    mixed = layer.act(layer.conv1d(mixed.mT)[..., :length].mT)
    values, keys, queries = mixed.split([inner, state, state], -1)
    step = functional.softplus(step + layer.dt_bias)
    total = (-layer.A_log.exp() * step).mT.cumsum(-1)  # (B, H, T)
    earlier = torch.ones(length, length, dtype=torch.bool, device=stream.device).tril()
    since = (total[..., :, None] - total[..., None, :]).masked_fill(~earlier, -torch.inf).exp()
    heads = values.unflatten(-1, (layer.num_heads, -1)).transpose(1, 2)  # (B, H, T, P)
    read = ((queries @ keys.mT)[:, None] * since) @ (heads * step.mT[..., None]) + layer.D[:, None, None] * heads
    return layer.out_proj(layer.norm(read.transpose(1, 2).flatten(2), gate))  # type: ignore[no-any-return]


@cache
def use_gradients_that_are_right() -> None:
    """Give layers whose own gradient is refused, or takes 16 bits only, the same operation in float32.

    *Gated DeltaNet*: on Hopper GPUs with Triton 3.4 to 3.7.0, which miscompiles it, the library refuses the gated
    rule's gradient; training goes by :func:`one_chunk`.  *DeltaProduct* trains with the library's recurrent kernel of
    the delta rule in place of its chunked one, which takes no float32: n tokens for one, of which the last is read.
    *Mamba-2* without its own package falls back to a form that writes out every product; :func:`one_chunk_ssd` is the
    same.  Judging runs what the library runs, in all of them.
    """
    gated, product, mamba2 = (library(f"layers.{name}") for name in ("gated_deltanet", "gated_deltaproduct", "mamba2"))
    own_gated, slow = gated.chunk_gated_delta_rule, mamba2.Mamba2.torch_forward
    recurrent = library("ops.delta_rule").fused_recurrent_delta_rule

    def gated_rule(**given: Any) -> tuple[Tensor, None]:
        if not torch.is_grad_enabled():
            return own_gated(**given)  # type: ignore[no-any-return]
        q, k = (functional.normalize(given[name], dim=-1, eps=1e-6) for name in ("q", "k"))
        beta = given["beta"].sigmoid() * (2.0 if given["allow_neg_eigval"] else 1.0)
        gate = -given["A_log"].exp() * functional.softplus(given["g"] + given["dt_bias"])
        return one_chunk(q, k, given["v"], beta, gate), None

    def delta_product(**given: Any) -> tuple[Tensor, None]:
        q, count = given["q"], given["num_householder"]
        spread = functional.pad(q[:, :, None], (0, 0, 0, 0, count - 1, 0)).flatten(1, 2)
        answer, _ = recurrent(spread, given["k"], given["v"], given["beta"], use_qk_l2norm_in_kernel=True)
        return answer.unflatten(1, (-1, count))[:, :, -1], None

    def forward(layer: Any, stream: Tensor, *rest: Any) -> tuple[Tensor, None, None]:
        if not torch.is_grad_enabled():
            return slow(layer, stream, *rest)  # type: ignore[no-any-return]
        return one_chunk_ssd(layer, stream), None, None

    gated.chunk_gated_delta_rule, product.chunk_gated_delta_product = gated_rule, delta_product
    mamba2.Mamba2.torch_forward, mamba2.Mamba2.slow_forward = forward, slow
