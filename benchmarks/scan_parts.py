"""Time the scan on a GPU and each of its kernels by itself: where do the microseconds go?

    python benchmarks/scan_parts.py

Forward, and forward with backward, by replays of a captured graph; the kernels of one call by torch's profiler.  ``one
token`` is a case in which a single token of the vocabulary is everywhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from transductor.bench.timing import captured, run_environment
from transductor.bench.workloads import Case, draw
from transductor.recurrence import scan
from transductor.results import Record

RESULTS = Path(__file__).parent / "results"
CASES = {
    "V=50257": Case(64, 8192, 16, 50_257),
    "V=50257, one token": Case(64, 8192, 16, 50_257),
    "a million steps": Case(1, 1 << 20, 16),
}
REPLAYS = 10


def microseconds(call: Callable[[], object]) -> float:
    """Return the time of one call, averaged over replays of a captured graph."""
    graph, _ = captured([call])
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(REPLAYS):
        graph.replay()
    end.record()
    end.synchronize()
    return float(round(begin.elapsed_time(end) / REPLAYS * 1e3))


def kernels(call: Callable[[], object]) -> list[list[str | float]]:
    """Return name and microseconds of every kernel of a call, in order; those under 1.5 µs are left out."""
    call()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as recorded:
        call()
        torch.cuda.synchronize()
    on_device = (event for event in recorded.events() if event.device_type == torch.autograd.DeviceType.CUDA)
    timed = sorted(on_device, key=lambda event: event.time_range.start)
    return [[event.name[:24], round(event.device_time)] for event in timed if event.device_time >= 1.5]


def main() -> None:
    """Measure, and write the record."""
    began, measurements = time.perf_counter(), {}
    for name, case in CASES.items():
        operands = draw(case, "cuda", 1)
        tokens = torch.full_like(operands.tokens, 77) if "one token" in name else operands.tokens
        leaves = operands.matrices.requires_grad_(), operands.start.requires_grad_()

        def forward(leaves=leaves, tokens=tokens) -> torch.Tensor:
            with torch.no_grad():
                return scan(leaves[0], tokens, initial_state=leaves[1], backend="triton")

        def both(leaves=leaves, tokens=tokens, cotangent=operands.cotangent) -> tuple[torch.Tensor, ...]:
            states = scan(leaves[0], tokens, initial_state=leaves[1], backend="triton")
            return states.detach(), *torch.autograd.grad(states, leaves, cotangent)

        measurements[name] = {
            "forward": microseconds(forward),
            "forward_backward": microseconds(both),
            "kernels": kernels(both),
        }
    settings = {"cases": {name: str(case) for name, case in CASES.items()}, "replays": REPLAYS}
    here = run_environment("cuda", began)
    Record("scan_parts_cuda", settings, measurements, here).write(RESULTS / "scan_parts_cuda.json")


if __name__ == "__main__":
    main()
