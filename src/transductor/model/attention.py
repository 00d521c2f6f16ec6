"""Causal attention, full or in a sliding window, with padding, packed documents and a cache."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor, nn

from transductor.checks import check_positive
from transductor.configuration import configuration
from transductor.kernels.cpu.attention import attention
from transductor.kernels.windowed_attention import Blocks, windowed_attention
from transductor.model.positions import Positions
from transductor.model.token_positions import EarlierTokens, TokenPositions
from transductor.recurrence import past_along_time


class AttentionKind:
    """Which earlier positions a position may look at."""


@configuration
@dataclass(frozen=True)
class FullAttention(AttentionKind):
    """A position looks at all positions up to itself."""


@configuration
@dataclass(frozen=True)
class SlidingWindow(AttentionKind):
    """A position looks at the last ``window``, itself included: time and memory linear in T, a cache of fixed size."""

    window: int = 128

    def __post_init__(self) -> None:
        check_positive("window", self.window)


@configuration
@dataclass(frozen=True)
class NoAttention(AttentionKind):
    """A position looks at no other: the layer is its feed-forward part."""


@dataclass(frozen=True)
class KeyValueCache:
    """Keys and values ``(B, H, t, E)`` of the past, and where their tokens stand."""

    keys: Tensor
    values: Tensor
    positions: TokenPositions

    def reordered(self, rows: Tensor) -> KeyValueCache:
        """Return the cache of these rows of the batch, as beam search needs it."""
        return replace(
            self,
            keys=self.keys.index_select(0, rows),
            values=self.values.index_select(0, rows),
            positions=self.positions.rows(rows),
        )


# Attention of another library, with its own cache and kernel: from queries, keys and values to a mixture, (B, H, T, E).
Attend = Callable[["CausalAttention", Tensor, Tensor, Tensor], Tensor]


@final
class CausalAttention(nn.Module):
    """The multi-head self-attention of one layer.

    Args:
        width: Width of the stream, a multiple of ``attention_heads``.
        attention_heads: How many heads share the width.
        kind: Full attention or a sliding window.
    """

    def __init__(self, width: int, attention_heads: int, kind: FullAttention | SlidingWindow) -> None:
        super().__init__()
        self.attention_heads, self.kind = attention_heads, kind
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)

    def heads(self, values: Tensor) -> Tensor:
        """Split ``(B, T, W)`` into heads, ``(B, H, T, E)``."""
        return values.unflatten(-1, (self.attention_heads, -1)).transpose(1, 2)  # type: ignore[no-any-return]

    def empty_cache(self, batch_size: int) -> KeyValueCache:
        """Return the cache before the first token."""
        weight = self.query.weight
        nothing = weight.new_empty(batch_size, self.attention_heads, 0, weight.shape[0] // self.attention_heads)
        none = torch.empty(batch_size, 0, dtype=torch.long, device=weight.device)
        return KeyValueCache(nothing, nothing, TokenPositions(none, none, none.bool()))

    def forward(
        self,
        stream: Tensor,
        token_positions: TokenPositions,
        scheme: Positions,
        cache: KeyValueCache | None = None,
        attend: Attend | None = None,
    ) -> tuple[Tensor, KeyValueCache | None]:
        """Mix the stream ``(B, T, W)``; also return the cache with these tokens added (None without a cache).

        With ``attend``, that function mixes the values, and ``cache`` is not used.
        """
        queries = scheme.turned(self.heads(self.query(stream)), token_positions.positions)
        keys = scheme.turned(self.heads(self.key(stream)), token_positions.positions)
        values = self.heads(self.value(stream))
        if attend is not None:
            return self.output(attend(self, queries, keys, values).transpose(1, 2).flatten(-2)), None
        if token_positions.earlier is not None:
            cache = _borrowed(token_positions.earlier, keys, values, self.kind)
        seen = token_positions
        plain = cache is None and token_positions.documents is None and token_positions.real is None
        if cache is not None:
            keys = torch.cat((cache.keys.to(keys.dtype), keys), 2)
            values = torch.cat((cache.values.to(values.dtype), values), 2)
            seen = cache.positions.followed_by(token_positions)
            if isinstance(self.kind, SlidingWindow):
                past = self.kind.window - 1
                keep = slice(max(0, keys.shape[2] - past), None)
                cache = KeyValueCache(keys[:, :, keep], values[:, :, keep], seen.last(past))
            else:
                cache = KeyValueCache(keys, values, seen)
        # A rank without tokens must still take part in the backward pass, where others wait for its gradients.
        empty = token_positions.earlier is not None and stream.shape[1] == 0
        if isinstance(self.kind, SlidingWindow) and not empty:
            # A program holds for all lengths, also those below the window, and the quick way compares them.
            exporting = torch.compiler.is_exporting() and not torch.compiler.is_dynamo_compiling()
            if plain and not scheme.biases_scores and not exporting:
                mixed = windowed_attention(queries, keys, values, self.kind.window)
            else:
                mixed = self._windowed(queries, keys, values, token_positions, seen, scheme, self.kind.window)
        elif plain and not scheme.biases_scores:
            mixed = attention(queries, keys, values)
        else:
            mixed = self._masked(queries, keys, values, token_positions, seen, scheme)
        return self.output(mixed.transpose(1, 2).flatten(-2)), cache if token_positions.earlier is None else None

    def _masked(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        token_positions: TokenPositions,
        seen: TokenPositions,
        scheme: Positions,
    ) -> Tensor:
        """Attend with an explicit mask, as padding, documents, caches and relative positions need it."""
        time, total = queries.shape[2], keys.shape[2]
        index = torch.arange(total, device=queries.device)
        allowed = index <= index[total - time :, None]
        bias = _scores_to_add(allowed, token_positions, seen, scheme, queries.dtype)
        return attention(queries, keys, values, bias)

    def _windowed(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        token_positions: TokenPositions,
        seen: TokenPositions,
        scheme: Positions,
        window: int,
    ) -> Tensor:
        """Attend in blocks of ``window`` queries, each to its own block of keys and the one before."""
        time, past = queries.shape[2], keys.shape[2] - queries.shape[2]
        if time == 0:
            return queries
        blocks = Blocks(window, time, past)
        present = torch.ones(keys.shape[2], dtype=torch.bool, device=keys.device)  # what is missing is hidden
        allowed = blocks.allowed(keys.device) & blocks.of_keys(present, 0).unsqueeze(-2)

        def cut(places: TokenPositions, along: Callable[[Tensor, int], Tensor]) -> TokenPositions:
            documents, real = (None if each is None else along(each, 1) for each in (places.documents, places.real))
            return TokenPositions(along(places.positions, 1), documents, real)

        block_positions = replace(cut(token_positions, blocks.of_queries), real=None)
        added = _scores_to_add(allowed, block_positions, cut(seen, blocks.of_keys), scheme, queries.dtype)
        # (B or 1, H or 1, blocks, window, 2 window): blocks become rows.
        rows = added.expand(queries.shape[0], -1, -1, -1, -1).transpose(1, 2).flatten(0, 1)
        return blocks.attended(queries, keys, values, rows)

    def scale(self) -> float:
        """Return the factor of the scores, 1 / √E."""
        return 1 / math.sqrt(self.query.weight.shape[0] // self.attention_heads)


def _borrowed(
    earlier: EarlierTokens, keys: Tensor, values: Tensor, kind: FullAttention | SlidingWindow
) -> KeyValueCache:
    """Return keys and values ``(B, H, t, E)`` of earlier ranks, as far as ours ``(B, H, T, E)`` may look back."""
    count = kind.window - 1 if isinstance(kind, SlidingWindow) else None
    past = past_along_time(torch.stack((keys, values)), 3, earlier.shards, count)
    return KeyValueCache(past[0], past[1], earlier.positions.last(past.shape[3]))


def _scores_to_add(
    allowed: Tensor, queries: TokenPositions, keys: TokenPositions, scheme: Positions, dtype: torch.dtype
) -> Tensor:
    """Return the additive mask ``(B, H or 1, ..., Q, K)``: hidden keys, and the bias of relative positions.

    ``allowed`` is ``(..., Q, K)``; positions are ``(B, ..., Q)`` and ``(B, ..., K)``.
    """
    allowed = allowed.unsqueeze(0)
    if queries.documents is not None and keys.documents is not None:
        allowed = allowed & (queries.documents.unsqueeze(-1) == keys.documents.unsqueeze(-2))
    if keys.real is not None:
        allowed = allowed & keys.real.unsqueeze(-2)
    # Finite, so that a padded query without any key gives numbers and not NaN.
    hidden = torch.finfo(dtype).min / 2
    added = torch.zeros(allowed.shape, dtype=dtype, device=allowed.device).masked_fill(~allowed, hidden)
    bias = scheme.score_bias(queries.positions, keys.positions)
    if bias is None:
        return added.unsqueeze(1)
    # The bias has heads third from the end; they belong right after the batch.
    return added.unsqueeze(1) + bias.movedim(-3, 1).to(dtype)
