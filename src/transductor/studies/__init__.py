"""Studies: experiments as frozen values, and the runner that trains and judges their arms."""

from typing import Final

from transductor.studies.ablations import ablations
from transductor.studies.base_two_value import base_two_value
from transductor.studies.code_models import code_models, code_models_c, quick_code
from transductor.studies.counting import length_generalization, regular_gap
from transductor.studies.deep_injection import deep_injection
from transductor.studies.demo import DemoStudy, certified_demo, run_demo
from transductor.studies.hidden_swaps import hidden_swaps
from transductor.studies.long_addition import long_addition
from transductor.studies.repl_traces import repl_traces
from transductor.studies.reproduction import reproduce
from transductor.studies.running import run_arm
from transductor.studies.state_tracking import state_tracking
from transductor.studies.stream_defaults import stream_defaults
from transductor.studies.study import Arm, Probe, Study
from transductor.studies.tracking import tracking, tracking_more, tracking_wide
from transductor.studies.tracking_inside import tracking_inside

__all__ = [
    "OF_CODE",
    "STUDIES",
    "Arm",
    "DemoStudy",
    "Probe",
    "Study",
    "ablations",
    "base_two_value",
    "certified_demo",
    "code_models",
    "code_models_c",
    "deep_injection",
    "hidden_swaps",
    "length_generalization",
    "long_addition",
    "quick_code",
    "regular_gap",
    "repl_traces",
    "reproduce",
    "run_arm",
    "run_demo",
    "state_tracking",
    "stream_defaults",
    "tracking",
    "tracking_inside",
    "tracking_more",
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
        tracking_more,
        tracking_inside,
        hidden_swaps,
        repl_traces,
    )
}

OF_CODE: Final[dict[str, Study]] = {study.name: study for study in (stream_defaults, code_models, code_models_c)}
"""Studies that need a corpus and, but for their quick forms, a GPU: they are run by name alone."""
