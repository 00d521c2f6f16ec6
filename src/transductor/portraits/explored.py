"""What a page needs to run a model itself: its numbers as they are, its machine, and what is proved of it."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from transductor.json_reading import read_json
from transductor.results import write_atomically
from transductor.typed_values import from_fields

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Numbers:
    """An array as text: its numbers as little-endian bytes, in base64."""

    dtype: Literal["float32", "float64"]
    shape: list[int]
    data: str

    @classmethod
    def of(cls, values: np.ndarray[Any, Any]) -> Numbers:
        """Return an array of float32 or float64 as text."""
        name: Literal["float32", "float64"] = "float32" if values.dtype.name == "float32" else "float64"
        data = base64.b64encode(values.astype(f"<{values.dtype.kind}{values.itemsize}").tobytes()).decode()
        return cls(name, list(values.shape), data)


@dataclass(frozen=True)
class Head:
    """A head over letters alone, and the linear map that reads it.

    Attributes:
        table: ``(V, D, D)``, one matrix for each letter, as the scan multiplies them.
        start: ``(D)``: the state before the first letter.
        before: ``(D)``: the state one token earlier, which a head that looks back shows at the empty word.
        shows_previous: Whether ``[h_t ; h_{t−1}]`` is read.
        weight: ``(K, D)`` or ``(K, 2D)``; None where no linear map alone turns states into labels.
        bias: ``(K)``.
    """

    table: Numbers
    start: Numbers
    before: Numbers
    shows_previous: bool
    weight: Numbers | None
    bias: Numbers | None


@dataclass(frozen=True)
class View:
    """The coordinates in which states are drawn and compared.

    Attributes:
        root: ``(D, R)``: two states are ``|(h − h')ᵀ root|`` apart, as far as they are read now or later.
        plane: ``(D, 2)``: the principal plane of a random word.
        offset: What is subtracted there.
        share: The share of the variance that the plane shows.
    """

    root: Numbers
    plane: Numbers
    offset: list[float]
    share: float


@dataclass(frozen=True)
class Machine:
    """A machine over the letters.

    Attributes:
        transitions: ``[state][letter]`` is the next state.
        labels: The label of each state; None where it has none.
        start: The state before the first letter.
        sink: The state that stands for what never occurs, which is not drawn.
    """

    transitions: list[list[int]]
    labels: list[int | None]
    start: int
    sink: int | None = None


@dataclass(frozen=True)
class Proof:
    """What a certificate says.

    Attributes:
        of: What it is about, in a few words.
        verdict: Proved, refuted, or up to which length.
        claim: The statement.
        method: How it is known.
        margin: The least distance of the right answer to its rivals.
        assumptions: The premises.
        covers: The ways to run the model of which it is said.
        numbers: What the answer rests on, as text.
        file: The name of the file that holds it; empty where it was made for the page.
        sha256: The digest of its content.
    """

    of: str
    verdict: str
    claim: str
    method: str
    margin: float | None
    assumptions: list[str]
    covers: list[str]
    numbers: dict[str, str]
    file: str
    sha256: str


@dataclass(frozen=True)
class Shares:
    """How right a model is in each band of lengths, with 95 % intervals."""

    name: str
    kind: str
    shares: list[float]
    low: list[float]
    high: list[float]


@dataclass(frozen=True)
class Accuracy:
    """How right models are by length: the bands with their numbers of labels, and a row for each model."""

    bands: list[str]
    counts: list[int]
    rows: list[Shares]


@dataclass(frozen=True)
class Explored:
    """A model that a page can run.

    Attributes:
        name: What it is called.
        title: What kind of head it is.
        letters: Names of the letters.
        classes: Names of the labels; None where they are numbers.
        empty_word: Whether the label of the empty word means anything.
        follows: ``[letter][letter]``: which letter may come next, the last row at the beginning; None for any.
        head: The head and its readout.
        view: How its states are drawn.
        twin: The machine that its hardened twin is.
        representatives: ``(n, D)``: the head's states that stand for those of ``twin``, or else of ``target``.
        up_to_scale: Whether only directions of states count.
        summary: How near the machine is, in words.
        refusal: Why there is no hardened twin.
        target: The machine that the head should be.
        target_name: What that is called.
        separating_word: A shortest word on which twin and target differ.
        trained_length: How long the sequences were that the head was trained on.
        certificates: What is proved.
        accuracy: How right it and other models are by length, as measured.
        notes: What else a reader should know.
    """

    name: str
    title: str
    letters: list[str]
    classes: list[str] | None
    empty_word: bool
    follows: list[list[int]] | None
    head: Head
    view: View
    twin: Machine | None
    representatives: Numbers | None
    up_to_scale: bool
    summary: str
    refusal: str
    target: Machine | None
    target_name: str
    separating_word: list[int] | None
    trained_length: int | None = None
    certificates: list[Proof] = field(default_factory=list)
    accuracy: Accuracy | None = None
    notes: list[str] = field(default_factory=list)


def write_explored(models: Sequence[Explored], path: str | Path) -> Path:
    """Write models as JSON, atomically."""
    plain = {"models": [asdict(model) for model in models]}
    return write_atomically(path, (json.dumps(plain, allow_nan=False, ensure_ascii=False) + "\n").encode())


@dataclass(frozen=True)
class _File:
    models: list[Explored]


def read_explored(path: str | Path) -> list[Explored]:
    """Read what :func:`write_explored` wrote; an error names a file that holds something else."""
    try:
        return from_fields(_File, read_json(path)).models
    except ValueError as error:
        raise ValueError(f"{path} does not hold models for a page: {error}") from error
