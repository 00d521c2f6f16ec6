"""The premises of a certificate: what it takes for granted about the arithmetic of the model.

A certificate file lists these sentences word for word, and a check compares them: changing one needs a new version.
"""

from __future__ import annotations

from typing import Final

from transductor.certification.exactness import Exactness
from transductor.certification.subjects import Subject

_TABLE: Final = "the scan multiplies the table whose digest is given, in {dtype}"
_ANY_ORDER: Final = (
    "its products are associated and summed in any order, fused or not, each operation rounding to nearest (no TF32)"
)
_EXACT: Final = "its products are associated and summed in any order; no operation rounds (no TF32)"
_READOUT: Final = "logits are sums of products in {precision}, in any order; equal logits count for no label"
_STREAM: Final = (
    "linear maps of the stream are sums of products in any order, fused or not, in the precision stated (no TF32)",
    "layer norms compute mean and variance to the rounding of sums of absolute values and of squares; GELU is within 8 "
    "units of its argument",
    "the model is in evaluation mode and its modules are not wrapped",
)


def assumptions_about(subject: Subject, exact: Exactness | None) -> tuple[str, ...]:
    """Return what a statement about this subject takes for granted."""
    scan = (_TABLE.format(dtype=subject.table.dtype.name), _ANY_ORDER if exact is None else _EXACT)
    if subject.stream:
        return (*scan, *_STREAM)
    return scan if subject.weight is None else (*scan, _READOUT.format(precision=subject.precision))
