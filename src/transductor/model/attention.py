"""Causal attention: full, sliding window, none; with padding, packed documents and a cache."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transductor.checks import check_positive
from transductor.configuration import configuration
from transductor.kernels.cpu.attention import attention
from transductor.model.positions import Positions

if TYPE_CHECKING:
    from transductor.model.time_parallel import EarlierRanks


class AttentionKind:
    """Which earlier positions a position may look at."""


@configuration
@dataclass(frozen=True)
class FullAttention(AttentionKind):
    """All of them."""


@configuration
@dataclass(frozen=True)
class SlidingWindow(AttentionKind):
    """The last ``window``, itself included: time and memory linear in T, a cache of fixed size."""

    window: int = 128

    def __post_init__(self) -> None:
        check_positive("window", self.window)


@configuration
@dataclass(frozen=True)
class NoAttention(AttentionKind):
    """None: the layer is its feed-forward part."""


@dataclass(frozen=True)
class Places:
    """Where tokens stand: ``positions (B, T)``, ``documents (B, T)`` ids, ``real (B, T)``; B may be 1.

    ``earlier``: the ranks that hold what was before, where the time axis lies on several.
    """

    positions: Tensor
    documents: Tensor | None = None
    real: Tensor | None = None
    earlier: EarlierRanks | None = None

    def joined(self, later: Places) -> Places:
        """These places followed by later ones."""
        return Places(
            torch.cat((self.positions, later.positions), 1),
            _joined(self.documents, later.documents),
            _joined(self.real, later.real),
        )

    def last(self, count: int) -> Places:
        """The last ``count`` places."""
        return self.between(max(0, self.positions.shape[1] - count), None)

    def between(self, begin: int, end: int | None) -> Places:
        """The places from ``begin`` to ``end``."""
        keep = slice(begin, end)
        return Places(
            self.positions[:, keep],
            None if self.documents is None else self.documents[:, keep],
            None if self.real is None else self.real[:, keep],
        )

    def rows(self, index: Tensor) -> Places:
        """Batch rows picked anew."""
        pick = [
            value if value is None or len(value) == 1 else value.index_select(0, index)
            for value in (self.positions, self.documents, self.real)
        ]
        assert pick[0] is not None
        return Places(pick[0], pick[1], pick[2])


def _joined(earlier: Tensor | None, later: Tensor | None) -> Tensor | None:
    if earlier is None or later is None:
        return None
    return torch.cat((earlier, later), 1)


@dataclass(frozen=True)
class KeyValueCache:
    """Keys and values ``(B, H, t, E)`` of the past, and their places."""

    keys: Tensor
    values: Tensor
    places: Places

    def reordered(self, rows: Tensor) -> KeyValueCache:
        """Batch rows picked anew, as beam search does."""
        return replace(
            self,
            keys=self.keys.index_select(0, rows),
            values=self.values.index_select(0, rows),
            places=self.places.rows(rows),
        )


# Somebody else's way from queries, keys and values (B, H, T, E) to what is mixed (B, H, T, E): their cache and kernel.
Attend = Callable[["CausalAttention", Tensor, Tensor, Tensor], Tensor]


@final
class CausalAttention(nn.Module):
    """Multi-head self-attention of one layer.

    Args:
        width: Width of the stream, a multiple of ``attention_heads``.
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
        """``(B, T, W)`` to ``(B, H, T, E)``."""
        return values.unflatten(-1, (self.attention_heads, -1)).transpose(1, 2)  # type: ignore[no-any-return]

    def empty_cache(self, batch_size: int) -> KeyValueCache:
        """A cache before the first token."""
        weight = self.query.weight
        nothing = weight.new_empty(batch_size, self.attention_heads, 0, weight.shape[0] // self.attention_heads)
        none = torch.empty(batch_size, 0, dtype=torch.long, device=weight.device)
        return KeyValueCache(nothing, nothing, Places(none, none, none.bool()))

    def forward(
        self,
        stream: Tensor,
        places: Places,
        positions: Positions,
        cache: KeyValueCache | None = None,
        attend: Attend | None = None,
    ) -> tuple[Tensor, KeyValueCache | None]:
        """``(B, T, W)`` to ``(B, T, W)``, and the cache with these tokens added (None without a cache).

        With ``attend``, queries meet keys there and not here, and ``cache`` is not used.
        """
        queries = positions.turned(self.heads(self.query(stream)), places.positions)
        keys = positions.turned(self.heads(self.key(stream)), places.positions)
        values = self.heads(self.value(stream))
        if attend is not None:
            return self.output(attend(self, queries, keys, values).transpose(1, 2).flatten(-2)), None
        if places.earlier is not None:
            cache = places.earlier.cache(keys, values, self.kind)
        seen, plain = places, cache is None and places.documents is None and places.real is None
        if cache is not None:
            keys = torch.cat((cache.keys.to(keys.dtype), keys), 2)
            values = torch.cat((cache.values.to(values.dtype), values), 2)
            seen = cache.places.joined(places)
            if isinstance(self.kind, SlidingWindow):
                past = self.kind.window - 1
                keep = slice(max(0, keys.shape[2] - past), None)
                cache = KeyValueCache(keys[:, :, keep], values[:, :, keep], seen.last(past))
            else:
                cache = KeyValueCache(keys, values, seen)
        # A rank without tokens lends no keys, but whoever waits for its gradients must get an answer.
        silent = places.earlier is not None and stream.shape[1] == 0
        if isinstance(self.kind, SlidingWindow) and not silent:
            mixed = self._windowed(queries, keys, values, places, seen, positions, self.kind.window)
        elif plain and not positions.biases_scores:
            mixed = attention(queries, keys, values)
        else:
            mixed = self._masked(queries, keys, values, places, seen, positions)
        return self.output(mixed.transpose(1, 2).flatten(-2)), cache if places.earlier is None else None

    def _masked(
        self, queries: Tensor, keys: Tensor, values: Tensor, places: Places, seen: Places, positions: Positions
    ) -> Tensor:
        """Full attention with a written-out mask, for padding, documents, caches and relative positions."""
        time, total = queries.shape[2], keys.shape[2]
        index = torch.arange(total, device=queries.device)
        allowed = index <= index[total - time :, None]
        bias = _scores_to_add(allowed, places, seen, positions, queries.dtype)
        return attention(queries, keys, values, bias)

    def _windowed(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        places: Places,
        seen: Places,
        positions: Positions,
        window: int,
    ) -> Tensor:
        """Blocks of ``window`` queries, each against its own block of keys and the one before."""
        time, past = queries.shape[2], keys.shape[2] - queries.shape[2]
        if time == 0:
            return queries
        # Of positive numbers: ONNX rounds a quotient towards zero, Python down.
        blocks = (time + window - 1) // window
        if torch.compiler.is_exporting():
            blocks += 1  # an empty one: a graph takes a single block for a constant
        # Keys start one full block before the first query; what is missing there is hidden.
        front, back = window - past, blocks * window - time
        present = torch.ones(keys.shape[2], dtype=torch.bool, device=keys.device)

        def cut(value: Tensor, dim: int) -> Tensor:
            """``blocks`` overlapping pieces of 2·window keys, in front of ``dim``."""
            padding = [0, 0] * (value.ndim - dim - 1) + [front, back]
            return F.pad(value, padding).unfold(dim, 2 * window, window).movedim(-1, dim + 1)

        offsets = torch.arange(window, device=keys.device)[:, None] + window
        key_offsets = torch.arange(2 * window, device=keys.device)
        distance = offsets - key_offsets
        allowed = (distance >= 0) & (distance < window) & cut(present, 0).unsqueeze(-2)
        query_blocks = F.pad(queries, (0, 0, 0, back)).unflatten(2, (blocks, window))
        block_places = Places(
            F.pad(places.positions, (0, back)).unflatten(1, (blocks, window)),
            None if places.documents is None else F.pad(places.documents, (0, back)).unflatten(1, (blocks, window)),
        )
        block_seen = Places(
            cut(seen.positions, 1),
            None if seen.documents is None else cut(seen.documents, 1),
            None if seen.real is None else cut(seen.real, 1),
        )
        bias = _scores_to_add(allowed, block_places, block_seen, positions, queries.dtype)
        # (B, H, blocks, ...): heads stand before blocks.
        mixed = F.scaled_dot_product_attention(query_blocks, cut(keys, 2), cut(values, 2), attn_mask=bias)
        return mixed.flatten(2, 3)[:, :, :time]

    def scale(self) -> float:
        """What scores are multiplied with: 1 / √E."""
        return 1 / math.sqrt(self.query.weight.shape[0] // self.attention_heads)


def _scores_to_add(allowed: Tensor, queries: Places, keys: Places, positions: Positions, dtype: torch.dtype) -> Tensor:
    """Additive mask ``(B, H or 1, ..., Q, K)``: hidden keys, and the bias of relative positions.

    ``allowed`` is ``(..., Q, K)``; places are ``(B, ..., Q)`` and ``(B, ..., K)``.
    """
    allowed = allowed.unsqueeze(0)
    if queries.documents is not None and keys.documents is not None:
        allowed = allowed & (queries.documents.unsqueeze(-1) == keys.documents.unsqueeze(-2))
    if keys.real is not None:
        allowed = allowed & keys.real.unsqueeze(-2)
    # Finite, so that a padded query without any key gives numbers and not NaN.
    hidden = torch.finfo(dtype).min / 2
    added = torch.zeros(allowed.shape, dtype=dtype, device=allowed.device).masked_fill(~allowed, hidden)
    bias = positions.score_bias(queries.positions, keys.positions)
    if bias is None:
        return added.unsqueeze(1)
    # The bias has heads third from the end; they belong right after the batch.
    return added.unsqueeze(1) + bias.movedim(-3, 1).to(dtype)
