"""The test files that take longest."""

from __future__ import annotations

# They begin first, so that no worker is left alone with one of them at the end.
LONGEST = (
    "training/test_distributed.py",
    "integrations/test_export.py",
    "certification/test_rocq.py",
    "integrations/test_every_host.py",
    "kernels/test_triton.py",
    "integrations/test_distributed_accelerate.py",
    "recurrence/test_operator.py",
    "cli/test_app.py",
    "test_surface.py",
    "test_committed_results.py",
    "bench/test_latency.py",
    "studies/test_reproduction.py",
    "test_contributing.py",
    "test_examples.py",
    "kernels/test_compile.py",
    "model/test_time_parallel.py",
    "recurrence/test_sequence_parallel.py",
)
