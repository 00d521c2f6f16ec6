"""Benchmarks: speed and memory of the scan and of complete models, measured in one run beside what others ship."""

from transductor.bench.correctness import WrongResult
from transductor.bench.latency import LatencyStudy, run_latency
from transductor.bench.model_cost import ModelCostStudy, run_model_cost

__all__ = ["LatencyStudy", "ModelCostStudy", "WrongResult", "run_latency", "run_model_cost"]
