"""The verb ``scan``: all states of a linear recurrence, over tokens or matrices.  Knows no family."""

from transductor.recurrence.arguments import check_offsets, mask_from_lengths
from transductor.recurrence.semirings import SEMIRINGS, Semiring
from transductor.recurrence.verb import BACKENDS, scan

__all__ = ["BACKENDS", "SEMIRINGS", "Semiring", "check_offsets", "mask_from_lengths", "scan"]
