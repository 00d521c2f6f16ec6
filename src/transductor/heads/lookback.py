"""A head that also says where it was one token ago."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from transductor.heads.rational import HeadState, RationalHead

__all__ = ["LookbackHead"]


class LookbackHead(RationalHead):
    """``[h_t ; h_{t−1}]`` in place of ``h_t``; before the first token, ``h_0``.

    What a token does often depends on the state it met: the digit of a sum on the carry that came in.  A head that may
    only show the state after the token needs a state for every pair; this one does not.
    """

    name = "lookback"

    @property
    def output_dim(self) -> int:
        """Twice D."""
        return 2 * self.state_dim

    def forward(  # type: ignore[override]
        self, drive: Tensor, *, return_final: bool = False, **options: Any
    ) -> Tensor | tuple[Tensor, Tensor]:
        """All states and the states before them ``(B, T, 2D)``; see :class:`RationalHead`."""
        states, final = super().forward(drive, return_final=True, **options)
        start = options.get("initial_state")
        start = self.initial_state() if start is None else start
        both = torch.cat((states, _before(states, start.to(states.dtype), options.get("cu_seqlens"))), -1)
        return (both, final) if return_final else both

    def advance(self, drive: Tensor, stream: HeadState, **options: Any) -> tuple[Tensor, HeadState]:
        """The next n states, each beside the one before it, ``(B, n, 2D)``."""
        states, after = super().advance(drive, stream, **options)
        start = stream.state.to(states.dtype)
        return torch.cat((states, _before(states, start, None)), -1), after


def _before(states: Tensor, start: Tensor, cu_seqlens: Tensor | None) -> Tensor:
    """``h_{t−1}`` for every ``h_t`` of ``(B, T, D)`` or ``(T, D)``; each packed document begins at ``start``."""
    time = states.ndim - 2
    if states.shape[time] == 0:
        return states
    if cu_seqlens is None:
        first = start.unsqueeze(-2) if start.ndim == states.ndim - 1 else start.expand(states.select(time, 0).shape)
        if first.ndim < states.ndim:
            first = first.unsqueeze(time)
        return torch.cat((first, states.narrow(time, 0, states.shape[time] - 1)), time)
    shifted = states.roll(1, time)
    index = torch.arange(states.shape[time], device=states.device)
    offsets = cu_seqlens.to(states.device)
    documents = torch.bucketize(index, offsets[1:], right=True)
    begins = (index == offsets[documents]).unsqueeze(-1)
    return torch.where(begins, start[documents] if start.ndim == 2 else start, shifted)
