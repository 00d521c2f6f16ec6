"""How a batch lies along time: which steps are real, where documents begin, which rank holds which shard."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from transductor.checks import check_tensor, described, readable, vmapped
from transductor.recurrence.shards import Shards


@dataclass(frozen=True)
class Layout:
    """What a caller says about time, checked once; it is passed on from the model to its heads and to the scan.

    Args:
        mask: ``(B, T)`` bool, true where a step is real; None where all are.
        offsets: ``(N + 1)`` boundaries of the documents packed into one row; None without packing.
        shards: The shards of the time axis on a process group; None where one process holds all of it.  With shards,
            ``mask`` belongs to our shard and ``offsets`` to the complete axis.
    """

    mask: Tensor | None = None
    offsets: Tensor | None = None
    shards: Shards | None = None

    @classmethod
    def of(
        cls,
        shape: torch.Size,
        device: torch.device,
        *,
        mask: Tensor | None = None,
        lengths: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        shards: Shards | None = None,
    ) -> Layout:
        """Check the public keywords against tokens (or features) of shape ``(B, T)`` or ``(T)`` in our shard."""
        if len(shape) not in (1, 2):
            raise ValueError(f"tokens must have shape (B, T) or (T); got {tuple(shape)}")
        batch, time = shape if len(shape) == 2 else (1, shape[0])
        total = time if shards is None else shards.total
        if mask is not None and lengths is not None:
            raise ValueError("mask and lengths say the same thing: give one of them")
        if lengths is not None and cu_seqlens is not None:
            raise ValueError("cu_seqlens already says where documents end: give no lengths")
        offsets = None if cu_seqlens is None else check_offsets(cu_seqlens, batch, total, device)
        if lengths is not None:
            mask = mask_from_lengths(lengths, batch, total, device)
            mask = mask if shards is None else mask[:, shards.begin : shards.end]
        elif mask is not None:
            check_mask(mask, shape)
            if mask.device != device:
                raise ValueError(f"mask must be on {device} like tokens and transitions; got {mask.device}")
            mask = mask.view(batch, time)
        return cls(mask, offsets, shards)

    @property
    def local_offsets(self) -> Tensor | None:
        """The boundaries ``(N + 1)`` counted from the beginning of our shard and cut to it."""
        if self.offsets is None or self.shards is None:
            return self.offsets
        return (self.offsets - self.shards.begin).clamp(0, self.shards.time)

    def to(self, device: torch.device | str | int, non_blocking: bool = False) -> Layout:
        """Move the tensors to a device; Accelerate asks for it before it calls a module that lives elsewhere."""
        mask, offsets = (
            None if value is None else value.to(device, non_blocking=non_blocking)
            for value in (self.mask, self.offsets)
        )
        return Layout(mask, offsets, self.shards)


def check_mask(mask: object, shape: torch.Size) -> None:
    """Refuse a mask that is not a bool tensor of this shape."""
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.shape != shape:
        raise ValueError(f"mask must be a bool tensor of shape {tuple(shape)}; got {described(mask)}")


def check_offsets(cu_seqlens: Tensor, batch: int, time: int, device: torch.device) -> Tensor:
    """Return the boundaries of packed documents as int64 on ``device``; refuse those that do not fit."""
    check_tensor("cu_seqlens", cu_seqlens)
    if vmapped(cu_seqlens):
        raise NotImplementedError("vmap over packed documents: cu_seqlens must be the same for all of them")
    if batch != 1:
        raise ValueError(f"cu_seqlens packs documents into one row: the batch must be 1; got {batch}")
    if cu_seqlens.ndim != 1 or cu_seqlens.numel() < 2 or cu_seqlens.dtype not in (torch.int32, torch.int64):
        raise ValueError(f"cu_seqlens must be int32 or int64 of shape (N + 1,), N ≥ 1; got {described(cu_seqlens)}")
    if readable(cu_seqlens):
        bounds = cu_seqlens.tolist()
        if bounds[0] != 0 or bounds[-1] != time or bounds != sorted(bounds):
            first = f"{bounds[:8]}{'…' if len(bounds) > 8 else ''}"
            raise ValueError(f"cu_seqlens must rise from 0 to T = {time}; got {first}")
    return cu_seqlens.to(device=device, dtype=torch.int64)


def mask_from_lengths(lengths: Tensor, batch: int, time: int, device: torch.device) -> Tensor:
    """Return the mask ``(B, T)`` that is true below the length of each row."""
    check_tensor("lengths", lengths)
    if lengths.dtype not in (torch.int32, torch.int64) or tuple(lengths.shape) != (batch,):
        raise ValueError(f"lengths must be int32 or int64 of shape ({batch},); got {described(lengths)}")
    if lengths.numel() and readable(lengths) and not 0 <= int(lengths.min()) <= int(lengths.max()) <= time:
        raise ValueError(f"lengths must lie in [0, {time}]; got {lengths.tolist()[:8]}")
    return torch.arange(time, device=device) < lengths.to(device).unsqueeze(1)
