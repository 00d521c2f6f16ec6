"""The verb ``scan``: all states of a linear recurrence, over tokens or matrices.  Knows no family."""

from transductor.recurrence.semirings import SEMIRINGS, Semiring
from transductor.recurrence.verb import BACKENDS, check_offsets, mask_from_lengths, scan

__all__ = ["BACKENDS", "SEMIRINGS", "Semiring", "check_offsets", "mask_from_lengths", "scan"]
