"""The verb ``scan``: all states of a linear recurrence, over tokens or matrices.  Knows no family."""

from transductor.recurrence.arguments import check_offsets, mask_from_lengths
from transductor.recurrence.backends import BACKENDS, Backend
from transductor.recurrence.problem import Problem
from transductor.recurrence.scanning import scan
from transductor.recurrence.semirings import SEMIRINGS, Semiring
from transductor.recurrence.sequence_parallel import sequence_parallel_scan
from transductor.recurrence.shards import Stretches, past_along_time

__all__ = [
    "BACKENDS",
    "SEMIRINGS",
    "Backend",
    "Problem",
    "Semiring",
    "Stretches",
    "check_offsets",
    "mask_from_lengths",
    "past_along_time",
    "scan",
    "sequence_parallel_scan",
]
