"""The scan: all states of a linear recurrence, by several backends, for padded, packed and sharded batches."""

from transductor.recurrence.backends import BACKENDS, Backend, backend_names
from transductor.recurrence.best_paths import best_paths
from transductor.recurrence.layout import Layout, check_mask, check_offsets, mask_from_lengths
from transductor.recurrence.norms import NORMS, Normalised
from transductor.recurrence.problem import Problem
from transductor.recurrence.scanning import scan
from transductor.recurrence.semirings import SEMIRINGS, Semiring
from transductor.recurrence.sequence_parallel import sequence_parallel_scan
from transductor.recurrence.shards import Shards, past_along_time

Stretches = Shards  # the former name, which callers may still import

__all__ = [
    "BACKENDS",
    "NORMS",
    "SEMIRINGS",
    "Backend",
    "Layout",
    "Normalised",
    "Problem",
    "Semiring",
    "Shards",
    "Stretches",
    "backend_names",
    "best_paths",
    "check_mask",
    "check_offsets",
    "mask_from_lengths",
    "past_along_time",
    "scan",
    "sequence_parallel_scan",
]
