"""A model whose time axis lies in stretches on the ranks of a process group.

Every rank has all parameters and its own tokens.  The head's states come from a scan across ranks, and a layer with
attention borrows the keys and values of earlier ranks: all of them, or the last of a window.  Positions, documents and
lengths are counted on the whole axis.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from transductor.model.attention import FullAttention, KeyValueCache, Places, SlidingWindow
from transductor.recurrence import Stretches, past_along_time


@dataclass(frozen=True)
class EarlierRanks:
    """What stands before our stretch, and who holds it."""

    stretches: Stretches
    places: Places

    def cache(self, keys: Tensor, values: Tensor, kind: FullAttention | SlidingWindow) -> KeyValueCache:
        """Keys and values ``(B, H, t, E)`` of earlier ranks, as far as ours ``(B, H, T, E)`` may look back."""
        count = kind.window - 1 if isinstance(kind, SlidingWindow) else None
        past = past_along_time(torch.stack((keys, values)), 3, self.stretches, count)
        return KeyValueCache(past[0], past[1], self.places.last(past.shape[3]))


def past_mask(mask: Tensor, stretches: Stretches) -> Tensor:
    """The mask ``(B, t)`` of all earlier ranks followed by ours ``(B, T)``."""
    return torch.cat((past_along_time(mask.to(torch.uint8), 1, stretches).bool(), mask), 1)
