"""A head that also says where it was one token ago."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from transductor.heads.rational import HeadState, RationalHead
from transductor.recurrence import Stretches, past_along_time

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


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
        before = _before(states, start.to(states.dtype), options.get("cu_seqlens"), options.get("time_group"))
        both = torch.cat((states, before), -1)
        return (both, final) if return_final else both

    def advance(self, drive: Tensor, stream: HeadState, **options: Any) -> tuple[Tensor, HeadState]:
        """The next n states, each beside the one before it, ``(B, n, 2D)``."""
        states, after = super().advance(drive, stream, **options)
        start = stream.state.to(states.dtype)
        return torch.cat((states, _before(states, start, None)), -1), after


def _before(states: Tensor, start: Tensor, cu_seqlens: Tensor | None, time_group: ProcessGroup | None = None) -> Tensor:
    """``h_{t−1}`` for every ``h_t`` of ``(B, T, D)`` or ``(T, D)``; each packed document begins at ``start``.

    With a ``time_group`` the first comes from the rank before.
    """
    time, begin = states.ndim - 2, 0
    first = states.narrow(time, 0, 0)
    if time_group is not None:
        stretches = Stretches.of(time_group, states.shape[time], states.device)
        first, begin = past_along_time(states, time, stretches, 1), stretches.begin
    if first.shape[time] == 0:
        begun = start[0] if cu_seqlens is not None and start.ndim == 2 else start
        one = *states.shape[:time], 1, states.shape[-1]
        first = torch.cat((first, begun.unsqueeze(-2).expand(one)), time)
    before = torch.cat((first, states), time).narrow(time, 0, states.shape[time])
    if cu_seqlens is None:
        return before
    index = torch.arange(begin, begin + states.shape[time], device=states.device)
    offsets = cu_seqlens.to(states.device)
    documents = torch.bucketize(index, offsets[1:], right=True)
    begins = (index == offsets[documents]).unsqueeze(-1)
    return torch.where(begins, start[documents] if start.ndim == 2 else start, before)
