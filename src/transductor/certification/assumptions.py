"""The premises of a certificate: what it takes for granted about the arithmetic, and which ways to run it covers.

A certificate file lists these sentences word for word, and a check compares them: changing one needs a new version.
The theorem that they are premises of is stated in docs/certify.md.
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
_UNDERFLOW: Final = (
    "numbers below the smallest normal one are kept or flushed to zero; no number leaves the range of its format, "
    "which was checked; no autocast"
)
_READOUT: Final = "logits are sums of products in {precision}, in any order; equal logits count for no label"
_STREAM: Final = (
    "linear maps of the stream are sums of products in any order, fused or not, each operation in {precision} or wider "
    "(no TF32); equal logits count for no label",
    "layer norms compute mean and variance in {statistics} to the rounding of sums of absolute values and of squares; "
    "GELU is within 8 units of its argument",
    "the model is in evaluation mode",
)
_ATTENTION: Final = (
    "attention divides a sum of weighted values by the sum of the same computed weights, in any order of blocks, each "
    "operation in {precision} or wider; how the weights themselves round does not matter"
)
_PARALLEL: Final = "parallel passes on every backend, with padding, packed documents and ranks along time"
_STREAMING: Final = "streaming in any split (start, advance)"
_LONG_STREAMING: Final = (
    "streaming in pieces of more than four tokens; single steps multiply factors of the table instead"
)
_EXPORTED: Final = "the exported graph, and compiled code, in the same precision"


def assumptions_about(subject: Subject, exact: Exactness | None) -> tuple[str, ...]:
    """Return what a statement about this subject takes for granted."""
    scan = (_TABLE.format(dtype=subject.table.dtype.name), _ANY_ORDER if exact is None else _EXACT, _UNDERFLOW)
    named = {"precision": subject.precision, "statistics": subject.read.statistics.name}
    if subject.stream:
        attended = () if subject.attention is None else (_ATTENTION,)
        return (*scan, *(sentence.format(**named) for sentence in (*_STREAM, *attended)))
    return scan if subject.weight is None else (*scan, _READOUT.format(**named))


def covered_by(subject: Subject) -> tuple[str, ...]:
    """Return the ways to run a model for which a statement holds."""
    return (_PARALLEL, _STREAMING if subject.streamed else _LONG_STREAMING, _EXPORTED)
