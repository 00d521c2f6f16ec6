"""The pre-norm causal Transformer that several models share."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional

from transductor.checks import check_positive
from transductor.configuration import configuration
from transductor.injection import Inject, JoinedInjection, is_bare
from transductor.model.attention import (
    Attend,
    AttentionKind,
    CausalAttention,
    FullAttention,
    KeyValueCache,
    NoAttention,
    SlidingWindow,
)
from transductor.model.positions import (
    NoPositions,
    Positions,
    PositionScheme,
    RelativePositions,
    RotaryPositions,
    build_positions,
)
from transductor.model.token_positions import TokenPositions


@configuration
@dataclass(frozen=True)
class BackboneConfig:
    """The sizes of a Transformer.

    Args:
        vocab_size: How many tokens the model reads.
        output_size: How many logits a position has; ``vocab_size`` when 0.
        width: Width of the stream, a multiple of ``attention_heads``.
        layers: Number of blocks.
        attention_heads: Heads per block.
        feedforward: Width of the hidden layer; four times ``width`` when 0.
        positions: A position scheme of :mod:`transductor.model`.
        attention: ``FullAttention()``, ``SlidingWindow(n)`` or ``NoAttention()``.
        dropout: Probability, while training, of dropping what a block adds.
    """

    vocab_size: int
    output_size: int = 0
    width: int = 32
    layers: int = 2
    attention_heads: int = 4
    feedforward: int = 0
    positions: PositionScheme = field(default_factory=NoPositions)
    attention: AttentionKind = field(default_factory=FullAttention)
    dropout: float = 0.0

    def __post_init__(self) -> None:
        for name in ("vocab_size", "width", "layers", "attention_heads"):
            check_positive(name, getattr(self, name))
        for name in ("output_size", "feedforward"):
            if getattr(self, name) != 0:
                check_positive(name, getattr(self, name))
        if self.width % self.attention_heads:
            raise ValueError(f"width must be a multiple of attention_heads = {self.attention_heads}; got {self.width}")
        if not isinstance(self.positions, PositionScheme):
            raise TypeError(f"positions must be a position scheme, such as RotaryPositions(); got {self.positions!r}")
        if not isinstance(self.attention, (FullAttention, SlidingWindow, NoAttention)):
            raise TypeError(
                f"attention must be FullAttention(), SlidingWindow(n) or NoAttention(); got {self.attention!r}"
            )
        if isinstance(self.attention, NoAttention) and isinstance(self.positions, (RotaryPositions, RelativePositions)):
            raise ValueError("positions that act on attention scores need attention; got NoAttention()")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must lie in [0, 1); got {self.dropout!r}")


@dataclass(frozen=True)
class BackboneState:
    """Where a stream stands: real tokens seen by each row ``(B)``, and a cache per layer with attention."""

    seen: Tensor
    caches: tuple[KeyValueCache | None, ...]

    def next_positions(self, tokens: Tensor, mask: Tensor | None) -> TokenPositions:
        """Return where the next tokens ``(B, n)`` stand."""
        if tokens.shape[0] != self.seen.shape[0]:
            raise ValueError(f"tokens must have {len(self.seen)} rows like the stream; got {len(tokens)}")
        real = torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask
        positions = (self.seen.unsqueeze(1) + real.long().cumsum(1) - 1).clamp_min(0)
        return TokenPositions(positions, torch.zeros_like(tokens), real)

    def reordered(self, rows: Tensor) -> BackboneState:
        """Return the state of these rows of the batch, as beam search needs it."""
        caches = tuple(None if cache is None else cache.reordered(rows) for cache in self.caches)
        return BackboneState(self.seen.index_select(0, rows), caches)


@final
class Block(nn.Module):
    """One layer: ``x + Attn(LN(x))``, then ``x + FFN(LN(x))``."""

    def __init__(self, config: BackboneConfig) -> None:
        super().__init__()
        width, hidden = config.width, config.feedforward or 4 * config.width
        self.attention: CausalAttention | None = None
        if isinstance(config.attention, (FullAttention, SlidingWindow)):
            self.attention_norm = nn.LayerNorm(width)
            self.attention = CausalAttention(width, config.attention_heads, config.attention)
        else:
            assert isinstance(config.attention, NoAttention)
        self.feedforward_norm = nn.LayerNorm(width)
        self.feedforward = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self,
        stream: Tensor,
        token_positions: TokenPositions,
        scheme: Positions,
        cache: KeyValueCache | None = None,
        attend: Attend | None = None,
        also: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, KeyValueCache | None]:
        """Apply the layer to the stream ``(B, T, W)``; see :class:`CausalAttention` for the cache.

        ``also`` are states ``(B, T, D)`` and a matrix ``(W, D)``, whose product is added to the stream at the end.
        """
        if self.attention is not None:
            mixed, cache = self.attention(self.attention_norm(stream), token_positions, scheme, cache, attend)
            stream = stream + self.dropout(mixed)
        hidden = self.feedforward_norm(stream)
        if also is not None:
            return stream + self._fed_forward_with(hidden, *also), cache
        return stream + self.dropout(self.feedforward(hidden)), cache

    def joins(self) -> bool:
        """Tell whether the last product may add other terms: nothing is dropped, hooked or wrapped."""
        inner, last = self.feedforward[0], self.feedforward[-1]
        plain = type(self.feedforward) is nn.Sequential and is_bare(inner) and is_bare(last)
        return plain and not (self.training and self.dropout.p > 0)

    def _fed_forward_with(self, hidden: Tensor, states: Tensor, weight: Tensor) -> Tensor:
        """Return the feed-forward part plus ``W h_t``, as one product with more columns."""
        inner, activation, last = self.feedforward
        assert isinstance(last, nn.Linear)
        activated = activation(inner(hidden))
        wide = torch.cat((activated, states.to(activated.dtype)), -1)
        return functional.linear(wide, torch.cat((last.weight, weight.to(last.weight.dtype)), -1), last.bias)


@final
class Backbone(nn.Module):
    """An embedding, blocks and a readout; ``inject`` may change the stream before each block."""

    def __init__(self, config: BackboneConfig) -> None:
        super().__init__()
        if not isinstance(config, BackboneConfig):
            raise TypeError(f"config must be a BackboneConfig; got {type(config).__name__}")
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.width)
        self.positions = build_positions(config.positions, config.width, config.attention_heads)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.final_norm = nn.LayerNorm(config.width)
        self.readout = nn.Linear(config.width, config.output_size or config.vocab_size)

    def embedded(self, tokens: Tensor, token_positions: TokenPositions) -> Tensor:
        """Return the stream before the first block, ``(B, T, W)``."""
        stream: Tensor = self.embedding(tokens)
        added = self.positions.embedding(token_positions.positions)
        return stream if added is None else stream + added.to(stream.dtype)

    def forward(
        self,
        tokens: Tensor,
        token_positions: TokenPositions,
        inject: Inject | None = None,
        state: BackboneState | None = None,
    ) -> tuple[Tensor, BackboneState | None]:
        """Return logits ``(B, T, output_size)`` and the state with these tokens added (None without a state)."""
        stream = self.embedded(tokens, token_positions)
        caches, also = [], None
        for layer, block in enumerate(self.blocks):
            if inject is not None and also is None:
                stream = inject(layer, stream)
            also = None
            assert isinstance(block, Block)
            if isinstance(inject, JoinedInjection) and layer + 1 < len(self.blocks) and block.joins():
                also = inject.factors(layer + 1)
            cached = None if state is None else state.caches[layer]
            stream, cache = block(stream, token_positions, self.positions, cached, also=also)
            caches.append(cache)
        logits: Tensor = self.readout(self.final_norm(stream))
        if state is None:
            return logits, None
        assert token_positions.real is not None
        return logits, replace(state, seen=state.seen + token_positions.real.sum(1), caches=tuple(caches))

    def start(self, batch_size: int) -> BackboneState:
        """Return a stream before its first token."""
        check_positive("batch_size", batch_size)
        seen = torch.zeros(batch_size, dtype=torch.long, device=self.embedding.weight.device)
        caches = []
        for block in self.blocks:
            assert isinstance(block, Block)
            caches.append(None if block.attention is None else block.attention.empty_cache(batch_size))
        return BackboneState(seen, tuple(caches))
