"""What tables and figures rely on in the record of a study, field by field; a record may hold more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NotRequired, TypedDict, get_origin

from transductor.results import Record
from transductor.typed_values import check_kind, hints_of


class TrainedTo(TypedDict):
    """Settings of the training."""

    length: int


class ArmFields(TypedDict):
    """Settings of an arm."""

    name: str
    column: Literal["paper", "ours", "baseline"]
    quick: NotRequired[bool]
    training: dict[str, Any]


class SettingsFields(TypedDict):
    """What was asked."""

    study: str
    question: str
    arm: dict[str, Any]
    seed: int


class TrainingFields(TypedDict):
    """How the training went."""

    seconds: float
    together: int
    failure: str | None


class HardeningFields(TypedDict):
    """How the exact machine was looked for."""

    refused: str | None
    states: NotRequired[int]
    states_of_the_task: NotRequired[int]
    agreement: NotRequired[float]
    farthest_from_an_integer: NotRequired[float]


class EntryFields(TypedDict):
    """How one form was judged on inputs of one kind and length."""

    input: str
    task: str
    length: int
    sequences: int
    labels: NotRequired[int]
    positions: NotRequired[float]
    beyond: NotRequired[float]
    last: NotRequired[float]
    exact: NotRequired[float]
    mistakes: NotRequired[int]
    first_mistake: NotRequired[int | None]
    mse: NotRequired[float]
    mse_every_position: NotRequired[float]
    relative_error: NotRequired[float | None]
    excess: NotRequired[float]
    least_loss: NotRequired[float]
    curve: NotRequired[list[tuple[int, float]]]
    bits: NotRequired[float]
    files: NotRequired[list[tuple[int, float]]]
    choices: NotRequired[dict[str, list[tuple[int, int]]]]
    replaced: NotRequired[dict[str, float]]


class CostFields(TypedDict):
    """What a step and a byte cost."""

    step_seconds: float
    tokens_per_second: float
    memory_bytes: int | None
    decode_seconds: float


class TriedFields(TypedDict):
    """How far from Bayes a learning rate led, for each seed that it was tried on."""

    rate: float
    excess: list[float]


class SearchFields(TypedDict):
    """How the learning rate was sought."""

    tried: list[dict[str, Any]]
    chosen: float


class MeasuredFields(TypedDict):
    """What was measured."""

    parameters: int
    chance: float
    training: dict[str, Any]
    search: NotRequired[dict[str, Any]]
    learned: list[dict[str, Any]] | None
    hardened: NotRequired[list[dict[str, Any]] | None]
    hardening: NotRequired[dict[str, Any] | None]
    costs: NotRequired[dict[str, Any]]


_JUDGED_BY = (("mse",), ("bits", "files"), ("labels", "positions", "beyond", "exact", "mistakes"), ("exact",))


def check_study_record(record: Record, study: str, arm: str, seed: int) -> None:
    """Refuse a record that tables and figures could not rely on, or that is another run's than its place says."""
    settings, measured = record.settings, record.measurements
    _check("settings", settings, SettingsFields)
    _check("settings.arm", settings["arm"], ArmFields)
    _check("settings.arm.training", settings["arm"]["training"], TrainedTo)
    place = (settings["study"], settings["arm"]["name"], settings["seed"])
    if place != (study, arm, seed):
        raise ValueError("it is that of {!s:.40}/{!s:.40}, seed {!s:.40}".format(*place))
    _check("measurements", measured, MeasuredFields)
    training = measured["training"]
    _check("training", training, TrainingFields)
    if training["seconds"] < 0 or training["together"] < 1 or settings["arm"]["training"]["length"] < 1:
        raise ValueError("seconds must not be negative, nor together or the trained length less than one")
    if training["failure"] is None and not measured["learned"]:
        raise ValueError("its training did not fail, but nothing was judged")
    if (hardening := measured.get("hardening")) is not None:
        _check("hardening", hardening, HardeningFields)
        if hardening["refused"] is None and "states" not in hardening:
            raise ValueError("hardening.states is missing")
    if (search := measured.get("search")) is not None:
        _check("search", search, SearchFields)
        for number, tried in enumerate(search["tried"]):
            _check(f"search.tried[{number}]", tried, TriedFields)
    if (costs := measured.get("costs")) is not None:
        _check("costs", costs, CostFields)
    for form in ("learned", "hardened"):
        for number, entry in enumerate(measured.get(form) or ()):
            _check_entry(f"{form}[{number}]", entry)


def _check_entry(name: str, entry: Mapping[str, Any]) -> None:
    _check(name, entry, EntryFields)
    judged_by = next(keys for keys in _JUDGED_BY if keys[0] in entry or keys == _JUDGED_BY[-1])
    if missing := [key for key in judged_by if key not in entry]:
        raise ValueError(f"{name}.{missing[0]} is missing")
    if entry["length"] < 1 or entry["sequences"] < 1:
        raise ValueError(f"{name} must be of at least one sequence of at least one token")
    if any(not 0 <= entry[key] <= 1 for key in ("positions", "beyond", "last", "exact") if key in entry):
        raise ValueError(f"{name}: shares must lie in [0, 1]")
    keys = ("mse", "mse_every_position", "relative_error", "excess", "least_loss", "bits")
    errors = [entry[key] for key in keys if entry.get(key) is not None]
    counts = [entry[key] for key in ("labels", "mistakes") if key in entry]
    if any(value < 0 for value in (*errors, *counts, *(end for end, _ in entry.get("curve", ())))):
        raise ValueError(f"{name}: errors and counts must not be negative")


def _check(name: str, plain: Mapping[str, Any], kind: Any) -> None:
    """Check those fields that are relied on."""
    known = hints_of(kind)
    for field, hint in known.items():
        if field not in plain and get_origin(hint) is not NotRequired:
            raise ValueError(f"{name}.{field} is missing")
    check_kind(name, {field: plain[field] for field in known if field in plain}, kind)
