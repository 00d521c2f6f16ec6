"""Studies: experiments as frozen values, and the runner that trains and judges their arms."""

from typing import Final

from transductor.studies.ablations import ablations
from transductor.studies.base_two_value import base_two_value
from transductor.studies.counting import length_generalization, regular_gap
from transductor.studies.deep_injection import deep_injection
from transductor.studies.demo import DemoStudy, certified_demo, run_demo
from transductor.studies.long_addition import long_addition
from transductor.studies.reproduction import reproduce
from transductor.studies.running import run_arm
from transductor.studies.state_tracking import state_tracking
from transductor.studies.study import Arm, Probe, Study
from transductor.studies.tracking import tracking, tracking_wide

__all__ = [
    "STUDIES",
    "Arm",
    "DemoStudy",
    "Probe",
    "Study",
    "ablations",
    "base_two_value",
    "certified_demo",
    "deep_injection",
    "length_generalization",
    "long_addition",
    "regular_gap",
    "reproduce",
    "run_arm",
    "run_demo",
    "state_tracking",
    "tracking",
    "tracking_wide",
]

STUDIES: Final[dict[str, Study]] = {
    study.name: study
    for study in (
        regular_gap,
        length_generalization,
        long_addition,
        base_two_value,
        state_tracking,
        ablations,
        deep_injection,
        tracking,
        tracking_wide,
    )
}
