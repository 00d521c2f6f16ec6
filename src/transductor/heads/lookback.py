"""A head that also shows the state it had one token ago."""

from __future__ import annotations

import torch
from torch import Tensor

from transductor.heads.rational import RationalHead
from transductor.recurrence import Layout, past_along_time


class LookbackHead(RationalHead):
    """Shows ``[h_t ; h_{t−1}]`` in place of ``h_t``; before the first token, ``h_0``.

    What a token does often depends on the state before it: the digit of a sum on the carry that came in.  A head that
    shows only the state after the token needs a state for every such pair; this one does not.
    """

    name = "lookback"
    shows_previous = True

    def _shown(self, states: Tensor, start: Tensor, layout: Layout) -> Tensor:
        return torch.cat((states, _previous(states, start.to(states.dtype), layout)), -1)


def _previous(states: Tensor, start: Tensor, layout: Layout) -> Tensor:
    """Return ``h_{t−1}`` for every ``h_t`` of ``(B, T, D)`` or ``(T, D)``; each packed document begins at ``start``.

    If the time axis lies in shards, the first one comes from the rank before.
    """
    time, begin = states.ndim - 2, 0
    first = states.narrow(time, 0, 0)
    if layout.shards is not None:
        first, begin = past_along_time(states, time, layout.shards, 1), layout.shards.begin
    if first.shape[time] == 0:
        begun = start[0] if layout.offsets is not None and start.ndim == 2 else start
        one = *states.shape[:time], 1, states.shape[-1]
        first = torch.cat((first, begun.unsqueeze(-2).expand(one)), time)
    previous = torch.cat((first, states), time).narrow(time, 0, states.shape[time])
    if layout.offsets is None:
        return previous
    index = torch.arange(begin, begin + states.shape[time], device=states.device)
    documents = torch.bucketize(index, layout.offsets[1:], right=True)
    begins = (index == layout.offsets[documents]).unsqueeze(-1)
    return torch.where(begins, start[documents] if start.ndim == 2 else start, previous)
