"""Where the tokens of a batch stand: their positions, their documents, which of them are real."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from transductor.recurrence import Layout, Shards, past_along_time


@dataclass(frozen=True)
class TokenPositions:
    """``positions (B, T)``, ``documents (B, T)`` numbers of documents, ``real (B, T)``; B may be 1.

    ``earlier`` describes the tokens before our shard, where the time axis lies in shards on several ranks.
    """

    positions: Tensor
    documents: Tensor | None = None
    real: Tensor | None = None
    earlier: EarlierTokens | None = None

    @classmethod
    def of(cls, tokens: Tensor, layout: Layout) -> TokenPositions:
        """Count the positions of tokens ``(B, T)`` from the beginning of each row or document."""
        mask, offsets, shards = layout.mask, layout.offsets, layout.shards
        begin = 0 if shards is None else shards.begin
        index = torch.arange(begin + tokens.shape[1], device=tokens.device).unsqueeze(0)
        if mask is not None and shards is not None:
            mask = torch.cat((past_along_time(mask.to(torch.uint8), 1, shards).bool(), mask), 1)
        documents, positions = None, index
        if offsets is not None:
            documents = torch.bucketize(index, offsets[1:], right=True)
            positions = index - offsets[documents]
        elif mask is not None:
            # A padded token shares the position of the real one before it; no token attends to it.
            positions = (mask.long().cumsum(1) - 1).clamp_min(0)
        all_tokens = cls(positions, documents, mask)
        if shards is None:
            return all_tokens
        earlier = EarlierTokens(shards, all_tokens.between(0, begin))
        return replace(all_tokens.between(begin, None), earlier=earlier)

    def followed_by(self, later: TokenPositions) -> TokenPositions:
        """Return these positions and later ones in one row."""
        return TokenPositions(
            torch.cat((self.positions, later.positions), 1),
            _joined(self.documents, later.documents),
            _joined(self.real, later.real),
        )

    def last(self, count: int) -> TokenPositions:
        """Return the last ``count`` positions."""
        return self.between(max(0, self.positions.shape[1] - count), None)

    def between(self, begin: int, end: int | None) -> TokenPositions:
        """Return the positions from ``begin`` to ``end``."""
        keep = slice(begin, end)
        return TokenPositions(
            self.positions[:, keep],
            None if self.documents is None else self.documents[:, keep],
            None if self.real is None else self.real[:, keep],
        )

    def rows(self, index: Tensor) -> TokenPositions:
        """Return the positions of these rows of the batch."""
        picked = [
            value if value is None or len(value) == 1 else value.index_select(0, index)
            for value in (self.positions, self.documents, self.real)
        ]
        assert picked[0] is not None
        return TokenPositions(picked[0], picked[1], picked[2])


@dataclass(frozen=True)
class EarlierTokens:
    """The tokens before our shard, which other ranks hold."""

    shards: Shards
    positions: TokenPositions


def _joined(earlier: Tensor | None, later: Tensor | None) -> Tensor | None:
    if earlier is None or later is None:
        return None
    return torch.cat((earlier, later), 1)
