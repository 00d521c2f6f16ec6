"""What a fit records, field by field: ``learning`` writes it and reads it again, and ``report`` draws it without torch.

Standard library only.  Files from strangers are compared with these fields before anything is computed from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

from transductor.json_reading import read_json
from transductor.typed_values import check_kind


class BandFacts(TypedDict):
    """How right a model is on the sequences of one band of lengths."""

    count: int
    right: int
    sequences: int
    low: float
    high: float
    error: float


class OutcomeFacts(TypedDict):
    """What became of one recipe: ``outcome.json`` in its folder."""

    name: str
    summary: str
    peer: bool
    parameters: int
    steps: int
    seconds: float
    failed: str | None
    bands: list[BandFacts]
    curve: list[tuple[int, float]]


class MachineFacts(TypedDict):
    """A machine as plain numbers."""

    transitions: list[list[int]]
    outputs: list[int]
    start: int


class LearnedFacts(TypedDict):
    """The machine that the labels alone give: ``machine_from_labels.json``."""

    machine: MachineFacts
    errors: int
    labels: int
    noise: float
    bits: float
    bits_alone: float
    supported: bool
    reasons: list[str]


class CandidateFacts(TypedDict):
    """A machine and how it was judged."""

    way: str
    how: str
    recipe: str
    states: int
    shorter: BandFacts
    kept_back: BandFacts
    noise: float
    bits: float
    bits_alone: float
    refusals: list[str]
    reasons: list[str]
    agreement: BandFacts | None


class AnswerMachineFacts(CandidateFacts, MachineFacts):
    """The machine of the answer; ``walked`` holds the steps that the data take, each a state and a letter."""

    walked: NotRequired[list[tuple[int, int]]]


class DataFacts(TypedDict):
    """The data that were fitted."""

    path: str
    goal: str
    sequences: int
    letters: list[str]
    classes: list[str]
    counts: dict[str, int]
    shortest: int
    longest: int
    conflicts: int


class DivisionFacts(TypedDict):
    """How the data were divided."""

    training: int
    validation: int
    longer: int
    trained_length: int
    note: str


class BaselineFacts(TypedDict):
    """What a constant answer achieves."""

    name: str
    bands: list[BandFacts]


class ChoiceFacts(TypedDict):
    """Which model was chosen."""

    name: str | None
    sentence: str


class StatesFacts(TypedDict):
    """The weighted automaton."""

    states: int


class ProofFacts(TypedDict):
    """What the certificate says."""

    verdict: str
    claim: str
    method: str
    covers: list[str]
    assumptions: list[str]


class AnswerFacts(TypedDict):
    """The answer, in sentences."""

    proved: bool
    made_by: Literal["compiled", "hardened", "trained", ""]
    sentence: str
    sureness: list[str]
    advice: list[str]


class FitFacts(TypedDict):
    """The measurements in ``record.json``."""

    data: DataFacts
    division: DivisionFacts
    bands: list[str]
    baseline: BaselineFacts
    recipes: list[OutcomeFacts]
    left_out: dict[str, str]
    chosen: ChoiceFacts
    candidates: list[CandidateFacts]
    notes: list[str]
    machine: AnswerMachineFacts | None
    contradicted: list[tuple[str, str, str]]
    automaton: StatesFacts | None
    certificate: ProofFacts | None
    answer: AnswerFacts


def check_fit(facts: Mapping[str, Any]) -> None:
    """Refuse measurements that are not those of a fit; the message names the part that is wrong."""
    check_kind("", facts, FitFacts)
    count, machine = len(facts["bands"]), facts["machine"]
    judged = [facts["baseline"]["bands"], *(each["bands"] for each in facts["recipes"] if each["failed"] is None)]
    if any(len(bands) != count for bands in judged):
        raise ValueError(f"every model must have {count} bands, as many as are named")
    if machine is not None:
        check_machine(machine, len(facts["data"]["letters"]), len(facts["data"]["classes"]))
        if machine["states"] != len(machine["transitions"]):
            raise ValueError("machine.states must be the number of rows of its transitions")
        letters = len(facts["data"]["letters"])
        if any(not (0 <= state < machine["states"] and 0 <= read < letters) for state, read in walked_steps(machine)):
            raise ValueError("machine.walked must hold steps of the machine, each a state and a letter")


def check_machine(machine: Mapping[str, Any], letters: int, classes: int) -> None:
    """Refuse tables that are no machine over so many letters, with so many classes; −100 marks a state without one."""
    states = len(machine["transitions"])
    if len(machine["outputs"]) != states or any(not -100 <= label < classes for label in machine["outputs"]):
        raise ValueError(f"machine.outputs must be a label below {classes} for each of the {states} states")
    rows: Sequence[Sequence[int]] = [*machine["transitions"], [machine["start"]] * letters]
    if any(len(row) != letters or any(not 0 <= to < states for to in row) for row in rows):
        raise ValueError(f"machine.transitions must lead from each state, by each of {letters} letters, to a state")
    if not 0 <= machine["start"] < states:
        raise ValueError("machine.start must be a state")


def walked_steps(machine: Mapping[str, Any]) -> set[tuple[int, int]]:
    """Return the steps of a machine that the data take; all of them where an older record does not say."""
    if "walked" in machine:
        return {(state, letter) for state, letter in machine["walked"]}
    return {(state, letter) for state, row in enumerate(machine["transitions"]) for letter in range(len(row))}


def read_outcome(path: Path) -> dict[str, Any]:
    """Return what became of a recipe, as it was recorded."""
    return _read(path, OutcomeFacts)


def read_learned(path: Path, letters: int, classes: int) -> dict[str, Any]:
    """Return the machine that was learned from labels, as it was recorded."""
    plain = _read(path, LearnedFacts)
    try:
        check_machine(plain["machine"], letters, classes)
    except ValueError as error:
        raise ValueError(f"{path} is no part of a fit: {error}") from None
    return plain


def _read(path: Path, kind: Any) -> dict[str, Any]:
    try:
        plain: dict[str, Any] = read_json(path)
        check_kind("", plain, kind)
    except ValueError as error:
        raise ValueError(f"{path} is no part of a fit: {error}") from None
    return plain
