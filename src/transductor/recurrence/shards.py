"""A time axis in shards, one per rank of a process group: how long each is, and what earlier ranks hold.

The order of ranks is the order of time.  Autograd through ``all_gather`` lets a rank whose part is not used skip the
backward collective, and the others would wait for it; here every rank takes part in both directions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


@dataclass(frozen=True)
class Shards:
    """The lengths of the shards of all ranks, and the number of our rank."""

    group: ProcessGroup
    rank: int
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, group: ProcessGroup | None, time: int, device: torch.device) -> Shards:
        """Ask every rank of ``group`` (the default group if None) how many steps it holds."""
        group = _initialised(group)
        sizes = gathered(torch.tensor([time], device=device), group).flatten().tolist()
        return cls(group, dist.get_rank(group), tuple(sizes))

    @property
    def time(self) -> int:
        """How many steps our shard has."""
        return self.sizes[self.rank]

    @property
    def begin(self) -> int:
        """Where our shard begins on the complete axis."""
        return sum(self.sizes[: self.rank])

    @property
    def end(self) -> int:
        """Where our shard ends on the complete axis."""
        return self.begin + self.time

    @property
    def total(self) -> int:
        """How many steps all ranks have together."""
        return sum(self.sizes)


def _initialised(group: ProcessGroup | None) -> ProcessGroup:
    if not dist.is_available() or not dist.is_initialized():
        raise ValueError("group must be a process group: start with torchrun and call init_process_group first")
    return cast("ProcessGroup", dist.group.WORLD if group is None else group)


def gathered(values: Tensor, group: ProcessGroup) -> Tensor:
    """Return the tensors of all ranks, which have one shape, as ``(R, ...)``; no gradient."""
    every = values.new_empty(dist.get_world_size(group), *values.shape)
    dist.all_gather(list(every), values.detach().contiguous(), group=group)
    return every


def past_along_time(values: Tensor, dim: int, shards: Shards, count: int | None = None) -> Tensor:
    """Return what earlier ranks hold along ``dim``, the last ``count`` steps of it (all if None); differentiable.

    Every rank must call it, and every rank's result must reach what that rank calls ``backward`` on: the gradients of
    what was lent come back from all of them.
    """
    if count == 0 or shards.total == 0:
        return values.narrow(dim, 0, 0)
    return cast(Tensor, _Past.apply(values.movedim(dim, 0), shards, count)).movedim(0, dim)  # type: ignore[no-untyped-call]


class _Past(torch.autograd.Function):
    """Borrow from earlier ranks, with time as the first axis: ``(T, ...)`` to ``(n, ...)``."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, shards: Shards, count: int | None) -> Tensor:
        lent = [size if count is None else min(size, count) for size in shards.sizes]
        mine = values.new_zeros(max(lent), *values.shape[1:])
        mine[: lent[shards.rank]] = values[len(values) - lent[shards.rank] :]
        every = gathered(mine, shards.group)
        past = torch.cat([values[:0], *(every[rank, : lent[rank]] for rank in range(shards.rank))])
        ctx.forgotten = 0 if count is None else max(0, len(past) - count)
        ctx.shards, ctx.lent, ctx.shape = shards, lent, values.shape
        return past[ctx.forgotten :]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        rank, lent = ctx.shards.rank, ctx.lent
        returned = grad.new_zeros(len(lent), max(lent), *ctx.shape[1:])
        all_lent = torch.cat((grad.new_zeros(ctx.forgotten, *ctx.shape[1:]), grad))
        for each, part in zip(returned[:rank], all_lent.split(lent[:rank]) if rank else (), strict=True):
            each[: len(part)] = part
        dist.all_reduce(returned, group=ctx.shards.group)
        to_values = grad.new_zeros(ctx.shape)
        to_values[len(to_values) - lent[rank] :] = returned[rank, : lent[rank]]
        return to_values, None, None
