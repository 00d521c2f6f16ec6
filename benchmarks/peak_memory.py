"""Peak memory of one forward and backward scan, as the operating system sees it."""

from __future__ import annotations

import argparse
import resource
from pathlib import Path

import torch

from transductor.recurrence import scan

STATUS = Path("/proc/self/status")


class PeakMemory:
    """``with PeakMemory() as peak: …``, then ``peak.grown`` is how far the high-water mark rose, in bytes.

    On Linux the mark is reset first, so that what a process needed earlier (imports, say) hides nothing.
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


def scan_memory(batch: int, time: int, dim: int, symbols: int) -> int:
    """Bytes needed by forward and backward beyond the inputs."""
    torch.manual_seed(0)
    table = torch.linalg.qr(torch.randn(symbols, dim, dim))[0].requires_grad_()
    tokens = torch.randint(0, symbols, (batch, time))
    start = torch.ones(dim)
    scan(table, tokens[:, :64], initial_state=start).square().sum().backward()
    with PeakMemory() as peak:
        scan(table, tokens, initial_state=start).square().sum().backward()
    return peak.grown


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in (("batch", 8), ("time", 16_384), ("dim", 16), ("symbols", 8)):
        parser.add_argument(f"--{name}", type=int, default=value)
    print(scan_memory(**vars(parser.parse_args())))
