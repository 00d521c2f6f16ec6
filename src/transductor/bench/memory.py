"""Peak memory of one call is measured by the operating system, or by the device's allocator."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path

import torch

from transductor.recurrence import scan

STATUS = Path("/proc/self/status")


class PeakMemory:
    """After ``with PeakMemory() as peak: …``, ``peak.grown`` is how far the high-water mark rose, in bytes.

    On Linux the mark is reset first, so that an earlier peak (of imports, say) does not hide this one.
    """

    grown: int

    def __enter__(self) -> PeakMemory:
        if STATUS.exists():
            Path("/proc/self/clear_refs").write_text("5")
        self._before = self._kilobytes("VmRSS")
        return self

    def __exit__(self, *_: object) -> None:
        self.grown = 1024 * (self._kilobytes("VmHWM") - self._before)

    @staticmethod
    def _kilobytes(field: str) -> int:
        if not STATUS.exists():
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        line = next(line for line in STATUS.read_text().splitlines() if line.startswith(field))
        return int(line.split()[1])


def device_peak(call: Callable[[], object]) -> int:
    """Return the bytes of device memory that one call allocates at most, its results included."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    return int(torch.cuda.max_memory_allocated() - before)


def available_bytes(device: str) -> int:
    """Return the bytes of memory that a call may still take."""
    if device == "cuda":
        reusable = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        return int(torch.cuda.mem_get_info()[0] + reusable)
    meminfo = Path("/proc/meminfo")
    if not meminfo.exists():
        return 1 << 33
    line = next(line for line in meminfo.read_text().splitlines() if line.startswith("MemAvailable"))
    return 1024 * int(line.split()[1])


def scan_memory(batch: int, time: int, dim: int, symbols: int, backend: str = "auto", device: str = "cpu") -> int:
    """Return the bytes that forward and backward of the scan need, from inputs to the gradient of the states.

    The gradient of the states is a dense tensor, as the next layer would pass it down.
    """
    torch.manual_seed(0)
    table = torch.linalg.qr(torch.randn(symbols, dim, dim))[0].to(device).requires_grad_()
    tokens = torch.randint(0, symbols, (batch, time), device=device)
    start = torch.ones(dim, device=device)

    def call(tokens: torch.Tensor) -> None:
        states = scan(table, tokens, initial_state=start, backend=backend)
        torch.autograd.grad(states, table, torch.randn(*tokens.shape, dim, device=device))

    call(tokens[:, :64])
    if device == "cuda":
        return tokens.nbytes + device_peak(lambda: call(tokens))
    with PeakMemory() as peak:
        call(tokens)
    return tokens.nbytes + peak.grown
