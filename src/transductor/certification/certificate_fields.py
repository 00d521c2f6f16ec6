"""What a certificate file holds, field by field, so that a wrong kind is refused by its name."""

from __future__ import annotations

from typing import Any, TypedDict


class MachineFields(TypedDict):
    """A machine: the tables of :func:`~transductor.certification.encoding.encoded_machine`."""

    transitions: list[Any]
    outputs: list[Any]
    start: int
    sha256: str


class SeriesFields(TypedDict):
    """A weighted automaton, its weights fractions in text."""

    initial: list[str]
    matrices: list[list[list[str]]]
    final: list[str]
    sha256: str


class ArrayFields(TypedDict):
    """An array: its bytes in base64."""

    dtype: str
    shape: list[int]
    data: str
    sha256: str


class AttentionFields(TypedDict):
    """How layers attend."""

    heads: int
    window: int | None


class SubjectFields(TypedDict):
    """The numbers that a certificate is about."""

    streamed: bool
    attention: AttentionFields | None
    precision: str
    lookback: bool
    tensors: dict[str, ArrayFields]


class PlacementFields(TypedDict):
    """Points near the states of a machine, and their norm."""

    norm: str
    places: ArrayFields | None
    form: ArrayFields | None
    extra: ArrayFields | None
    targets: ArrayFields | None


class IdentityFields(TypedDict):
    """The checkpoint that a certificate is about."""

    sha256: str
    config: dict[str, Any]


class CertificateFields(TypedDict):
    """A certificate of version 2, less its format, its version and its digest."""

    verdict: str
    claim: str
    about: str
    outcome: str
    holds_up_to: int | None
    method: str
    margin: float | None
    numbers: dict[str, Any]
    assumptions: list[str]
    covers: list[str]
    horizon: int | None
    tolerance: float
    word: list[tuple[list[int], int]] | None
    letters: list[str]
    classes: list[str] | None
    model: IdentityFields | None
    subject: SubjectFields
    machine: MachineFields | None
    series: SeriesFields | None
    domain: MachineFields | None
    placement: PlacementFields | None
    invariant: dict[str, Any] | None
