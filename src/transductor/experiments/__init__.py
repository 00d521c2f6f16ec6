"""Studies as frozen values, and their runner."""

from typing import Final

from transductor.experiments.ablations import ablations
from transductor.experiments.base_two_value import base_two_value
from transductor.experiments.correctness import WrongResult
from transductor.experiments.counting_studies import length_generalization, regular_gap
from transductor.experiments.demo import DemoStudy, run_demo
from transductor.experiments.latency import LatencyStudy, run_latency
from transductor.experiments.long_addition import long_addition
from transductor.experiments.model_cost import ModelCostStudy, run_model_cost
from transductor.experiments.reproduction import reproduce
from transductor.experiments.running import run_arm
from transductor.experiments.state_tracking import state_tracking
from transductor.experiments.study import Arm, Probe, Study

__all__ = [
    "STUDIES",
    "Arm",
    "DemoStudy",
    "LatencyStudy",
    "ModelCostStudy",
    "Probe",
    "Study",
    "WrongResult",
    "ablations",
    "base_two_value",
    "length_generalization",
    "long_addition",
    "regular_gap",
    "reproduce",
    "run_arm",
    "run_demo",
    "run_latency",
    "run_model_cost",
    "state_tracking",
]

# The studies that train; the latency of the scan is a study too, timed and not trained.
STUDIES: Final[dict[str, Study]] = {
    study.name: study
    for study in (regular_gap, length_generalization, long_addition, base_two_value, state_tracking, ablations)
}
