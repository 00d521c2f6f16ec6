"""Launches Triton kernels with little time in Python, which a scan of microseconds would have to wait for.

Triton looks at every argument of every launch (type, alignment, divisibility) to find the compiled kernel.  Here
all that is one dictionary key; the first launch goes the usual way, and its compiled kernel is kept.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

_COMPILED: dict[Any, Any] = {}


def launch(
    kernel: Any,
    grid: tuple[int, ...],
    *args: Any,
    warps: int,
    stages: int = 1,
    registers: int | None = None,
    **constants: Any,
) -> None:
    """Run ``kernel[grid](*args, **constants)``; ``constants`` are the kernel's last parameters, in order.

    ``registers`` is the most a thread may use: fewer let more programs share a multiprocessor.
    """
    device = next(arg.device for arg in args if isinstance(arg, Tensor))
    key = (
        kernel,
        device.index,
        (warps, stages, registers),
        tuple((a.dtype, a.data_ptr() % 16) if isinstance(a, Tensor) else a for a in args),
        tuple(constants.values()),
    )
    if device.type != "cuda":  # Triton's interpreter
        kernel[grid](*args, **constants, num_warps=warps, num_stages=stages, maxnreg=registers)
        return
    elsewhere = torch.cuda.current_device() != device.index
    with torch.cuda.device(device) if elsewhere else nullcontext():
        compiled = _COMPILED.get(key)
        if compiled is not None:
            compiled[(*grid, 1, 1)[:3]](*args, *constants.values())
            return
        compiled = kernel[grid](*args, **constants, num_warps=warps, num_stages=stages, maxnreg=registers)
    if len(_COMPILED) >= 4096:  # lengths that never come back
        _COMPILED.clear()
    if compiled is not None:
        _COMPILED[key] = compiled
