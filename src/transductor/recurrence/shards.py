"""A time axis in stretches, one per rank of a process group: who holds what, and what came before.

Rank order is time order.  Autograd through ``all_gather`` lets a rank whose part nobody uses skip the backward
collective, and the others wait for it; here every rank takes part, both ways.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from transductor.recurrence.arguments import mask_from_lengths

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


@dataclass(frozen=True)
class Stretches:
    """The lengths of all ranks' stretches, and which is ours."""

    group: ProcessGroup
    rank: int
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, group: ProcessGroup | None, time: int, device: torch.device) -> Stretches:
        """Ask every rank of ``group`` (the default group if None) how many steps it holds."""
        group = _known(group)
        sizes = gathered(torch.tensor([time], device=device), group).flatten().tolist()
        return cls(group, dist.get_rank(group), tuple(sizes))

    @property
    def begin(self) -> int:
        """Where ours begins on the whole axis."""
        return sum(self.sizes[: self.rank])

    @property
    def end(self) -> int:
        """Where ours ends."""
        return self.begin + self.sizes[self.rank]

    @property
    def total(self) -> int:
        """Steps of all ranks."""
        return sum(self.sizes)

    def mask_from_lengths(self, lengths: Tensor, batch: int, device: torch.device) -> Tensor:
        """Our part ``(B, T)`` of the mask that is true below the length of each row on the whole axis."""
        return mask_from_lengths(lengths, batch, self.total, device)[:, self.begin : self.end]


def _known(group: ProcessGroup | None) -> ProcessGroup:
    if not dist.is_available() or not dist.is_initialized():
        raise ValueError("group must be a process group: start with torchrun and call init_process_group first")
    return cast("ProcessGroup", dist.group.WORLD if group is None else group)


def gathered(values: Tensor, group: ProcessGroup) -> Tensor:
    """``(R, ...)``: the tensor of every rank, all of one shape; no gradient."""
    every = values.new_empty(dist.get_world_size(group), *values.shape)
    dist.all_gather(list(every), values.detach().contiguous(), group=group)
    return every


def past_along_time(values: Tensor, dim: int, stretches: Stretches, count: int | None = None) -> Tensor:
    """What earlier ranks hold along ``dim``, the last ``count`` of it (all if None); differentiable.

    Every rank calls it, and every rank's result must reach what it calls ``backward`` on: the gradients of what was
    lent come back from all of them.
    """
    if count == 0 or stretches.total == 0:
        return values.narrow(dim, 0, 0)
    return cast(Tensor, _Past.apply(values.movedim(dim, 0), stretches, count)).movedim(0, dim)  # type: ignore[no-untyped-call]


class _Past(torch.autograd.Function):
    """Time first: ``(T, ...)`` to ``(n, ...)``."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, stretches: Stretches, count: int | None) -> Tensor:
        lent = [size if count is None else min(size, count) for size in stretches.sizes]
        mine = values.new_zeros(max(lent), *values.shape[1:])
        mine[: lent[stretches.rank]] = values[len(values) - lent[stretches.rank] :]
        every = gathered(mine, stretches.group)
        past = torch.cat([values[:0], *(every[rank, : lent[rank]] for rank in range(stretches.rank))])
        ctx.forgotten = 0 if count is None else max(0, len(past) - count)
        ctx.stretches, ctx.lent, ctx.shape = stretches, lent, values.shape
        return past[ctx.forgotten :]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        rank, lent = ctx.stretches.rank, ctx.lent
        returned = grad.new_zeros(len(lent), max(lent), *ctx.shape[1:])
        whole = torch.cat((grad.new_zeros(ctx.forgotten, *ctx.shape[1:]), grad))
        for each, part in zip(returned[:rank], whole.split(lent[:rank]) if rank else (), strict=True):
            each[: len(part)] = part
        dist.all_reduce(returned, group=ctx.stretches.group)
        to_values = grad.new_zeros(ctx.shape)
        to_values[len(to_values) - lent[rank] :] = returned[rank, : lent[rank]]
        return to_values, None, None
