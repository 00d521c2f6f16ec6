"""Launches Triton kernels with little time in Python, which a scan of microseconds would have to wait for.

Triton looks at every argument of every launch (type, alignment, divisibility) to find the compiled kernel.  Here
all that is one dictionary key; the first launch goes the usual way, and its compiled kernel is kept.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

# What a launch is made again with: a function, and the arguments that come before those of the kernel.
Launcher = tuple[Callable[..., Any], tuple[Any, ...]]

STREAM = 3  # the place, among a launcher's first arguments, of the stream that the kernel runs on

_COMPILED: dict[Any, Any] = {}


class Listening(threading.local):
    """Who is told of the launches of this thread: ``heard(launcher, args)``; None where no one is."""

    heard: Callable[[Launcher, tuple[Any, ...]], None] | None = None


LISTENING = Listening()


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
    options = {"num_warps": warps, "num_stages": stages, "maxnreg": registers}
    if device.type != "cuda":  # Triton's interpreter
        interpreted = partial(kernel[grid], **constants, **options)
        with _disable_current_modes():  # it moves tensors about
            interpreted(*args)
        if LISTENING.heard is not None:
            LISTENING.heard((interpreted, ()), args)
        return
    index = device.index
    kinds = [(arg.dtype, arg.data_ptr() % 16) if isinstance(arg, Tensor) else arg for arg in args]
    key = kernel, index, warps, stages, registers, *kinds, *constants.values()
    elsewhere = torch.cuda.current_device() != index
    with torch.cuda.device(device) if elsewhere else nullcontext():
        compiled = _COMPILED.get(key)
        if compiled is None:
            compiled = kernel[grid](*args, **constants, **options)
            if len(_COMPILED) >= 4096:  # lengths that never come back
                _COMPILED.clear()
            if compiled is not None:
                _COMPILED[key] = compiled
        else:
            run, first = _launcher(compiled, grid, index)
            run(*first, *args, *constants.values())
    if LISTENING.heard is not None and compiled is not None:
        LISTENING.heard(_launcher(compiled, grid, index), (*args, *constants.values()))


def _launcher(compiled: Any, grid: tuple[int, ...], device: int) -> Launcher:
    """Return what launches a compiled kernel on the current stream, without the profilers' hooks."""
    x, y, z = (*grid, 1, 1)[:3]
    stream = torch._C._cuda_getCurrentRawStream(device)
    return compiled.run, (x, y, z, stream, compiled.function, compiled.packed_metadata, None, None, None)
