"""Studies as frozen values, and their runner."""

from transductor.experiments.correctness import WrongResult
from transductor.experiments.demo import DemoStudy, run_demo
from transductor.experiments.latency import LatencyStudy, run_latency
from transductor.experiments.model_cost import ModelCostStudy, run_model_cost

__all__ = [
    "DemoStudy",
    "LatencyStudy",
    "ModelCostStudy",
    "WrongResult",
    "run_demo",
    "run_latency",
    "run_model_cost",
]
