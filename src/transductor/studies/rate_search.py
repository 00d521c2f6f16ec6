"""The search for an arm's learning rate: a small study of its own, which sees the trained length only."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from transductor.studies.study import Arm, Probe, Study

# Far from the seeds that are judged.
SEEDS: Final = (100, 101)
# The excess of a run that failed: more than any other, and a number that a record can hold.
FAILED: Final = 1e308
_SEQUENCES: Final = 512


def rate_search(study: Study, arm: Arm) -> Study:
    """Return the study that has one arm for each rate, judged on new inputs of the trained length."""
    sequences = 8 if arm.quick else _SEQUENCES
    asked = replace(arm, probes=(Probe(arm.training.length, sequences),), harden=False, fit=None)
    arms = [replace(asked.at_rate(rate), name=f"{arm.name}_rate_{place}") for place, rate in enumerate(arm.rates)]
    return Study(study.name, study.question, tuple(arms), SEEDS[:1] if arm.quick else SEEDS)
