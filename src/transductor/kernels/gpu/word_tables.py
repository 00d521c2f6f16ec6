"""The table of all words of k tokens, built from pairs of shorter words."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

import torch
import triton.language as tl
from torch import Tensor

from transductor.kernels.gpu.launch import launch
from transductor.kernels.gpu.words import joined_words

Order = Literal["rows", "columns", "fragments"]

TORCH_DTYPE = {tl.float32: torch.float32, tl.float64: torch.float64}


def word_table(
    matrices: Tensor, letters: int, order: Order, *, identity: bool, block: int, work: torch.dtype
) -> Tensor:
    """Return ``(words + 1, block, block)``: all words of 1 to 4 ``letters``, then NaN, in the dtype ``work``.

    Word ``Σ x_l base^l`` has token ``x_0`` first, where ``base`` is V, or V + 1 with the ``identity`` as letter V.
    Products are formed in float64 where that is fast, and rounded once.
    """
    base = len(matrices) + identity

    def joined(later: Tensor, later_count: int, earlier: Tensor, earlier_count: int, *, last: bool) -> Tensor:
        acc = product_dtype(matrices.device, work)
        count = max(later_count, 1) * earlier_count + 1
        out = torch.empty(count, block, block, dtype=work if last else TORCH_DTYPE[acc], device=matrices.device)
        columns = min(block, 64)
        launch(
            joined_words, (count, block // columns), later, earlier, out, later_count, earlier_count, len(matrices),
            D=matrices.shape[-1], BLOCK=block, SLAB=min(block, 32), COLUMNS=columns, ROUGH_LATER=later is matrices,
            ROUGH_EARLIER=earlier is matrices, ORDER=order if last else "rows", ACC=acc,
            warps=1 if block <= 32 else 4 if block == 64 else 8,
        )  # fmt: skip
        return out

    if letters == 1:
        return joined(matrices, 0, matrices, base, last=True)
    pairs = joined(matrices, base, matrices, base, last=letters == 2)
    if letters == 2:
        return pairs
    later, count = (matrices, base) if letters == 3 else (pairs, base**2)
    return joined(later, count, pairs, base**2, last=True)


@lru_cache(maxsize=64)
def product_dtype(device: torch.device, work: torch.dtype) -> Any:
    """Return float64 where the matrix units are as fast in it as in float32 (A100, H100, H200), else the work dtype."""
    if work == torch.float64 or device.type != "cuda":
        return tl.float64
    return tl.float64 if torch.cuda.get_device_capability(device) in ((8, 0), (9, 0)) else tl.float32
