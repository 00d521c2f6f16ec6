"""One arm of a study, from seed to record."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import torch

from transductor.configuration import to_plain
from transductor.experiments.hardened_column import hardened_column
from transductor.experiments.judging import judge
from transductor.experiments.study import Arm, Study
from transductor.model import CheckpointError, SequenceModel, build, save
from transductor.results import Record, environment
from transductor.training import (
    Trainer,
    TrainingError,
    TrainingPoint,
    TrainingSettings,
    fit_least_squares,
    train_together,
)

__all__ = ["DamagedRecordWarning", "model_path", "record_path", "run_arm", "run_settings"]

_CURVE_POINTS: Final = 100
# Called with the number of steps done and how many there are.
OnStep = Callable[[int, int], None]


class DamagedRecordWarning(UserWarning):
    """A record or a state that cannot be read; its run is done again."""


def record_path(folder: Path, study: str, arm: str, seed: int) -> Path:
    """Where the record of one run lies."""
    return folder / study / arm / f"seed{seed}.json"


def model_path(folder: Path, study: str, arm: str, seed: int) -> Path:
    """Where the trained model of one run lies."""
    return folder / "models" / study / arm / f"seed{seed}"


def run_settings(study: Study, arm: Arm, seed: int) -> dict[str, Any]:
    """What a record is a record of: where this is equal, a run need not be done again."""
    return {"study": study.name, "question": study.question, "arm": to_plain(arm), "seed": seed}


def run_arm(
    study: Study,
    arm: Arm,
    seeds: Sequence[int],
    folder: str | Path,
    *,
    device: str = "cpu",
    on_step: OnStep | None = None,
) -> list[Path]:
    """Train and judge one arm for each seed, and write model and record of each; returns where the records are.

    One seed alone keeps its state beside the records and goes on from it when it was interrupted, bit for bit.  Several
    seeds are trained as one job.  A run that diverges leaves a record that says so.
    """
    folder = Path(folder)
    if len(seeds) == 1:
        return [_run_alone(study, arm, seeds[0], folder, device, on_step)]
    models = [_built(arm, seed, device) for seed in seeds]
    began = time.perf_counter()
    try:
        histories = train_together(
            models,
            arm.task,
            arm.training,
            seeds,
            None if on_step is None else lambda step: on_step(step, arm.training.steps),
        )
    except TrainingError:  # one of them; alone, the others are not harmed
        return [_run_alone(study, arm, seed, folder, device, on_step) for seed in seeds]
    seconds = time.perf_counter() - began
    return [
        _judged(study, arm, seed, model, points, folder, device, {"seconds": seconds, "together": len(seeds)})
        for seed, model, points in zip(seeds, models, histories, strict=True)
    ]


def _built(arm: Arm, seed: int, device: str) -> SequenceModel[Any]:
    torch.manual_seed(seed)
    model = build(arm.model)
    assert isinstance(model, SequenceModel)
    return model.to(device)


def _run_alone(study: Study, arm: Arm, seed: int, folder: Path, device: str, on_step: OnStep | None) -> Path:
    settings = replace(arm.training, seed=seed)
    state = _state_folder(study, arm, seed, folder)
    trainer = _trainer(arm, settings, state, device)
    began, before = time.perf_counter(), trainer.step
    failure = None
    try:
        trainer.run(
            None if on_step is None else lambda point: on_step(point.step, settings.steps),
            folder=state,
            checkpoint_every=500,
        )
    except TrainingError as error:
        failure = str(error)
    how = {"seconds": time.perf_counter() - began, "together": 1}
    if before:
        how["resumed_at"] = before
    path = _judged(study, arm, seed, trainer.model, trainer.points, folder, device, how, failure)
    shutil.rmtree(state, ignore_errors=True)
    return path


def _state_folder(study: Study, arm: Arm, seed: int, folder: Path) -> Path:
    """Where an unfinished run keeps its state; another run, by a single setting, has another place."""
    settings = json.dumps(run_settings(study, arm, seed), sort_keys=True)
    digest = hashlib.sha256(settings.encode()).hexdigest()[:12]
    return folder / ".state" / study.name / arm.name / f"seed{seed}-{digest}"


def _trainer(arm: Arm, settings: TrainingSettings, state: Path, device: str) -> Trainer:
    """Where an interrupted run stands, if its state is whole; else its beginning."""
    if state.exists():
        try:
            return Trainer.resumed(state, device=device)
        except CheckpointError as error:
            warnings.warn(f"{error}; the run begins anew", DamagedRecordWarning, stacklevel=4)
            shutil.rmtree(state, ignore_errors=True)
    return Trainer(_built(arm, settings.seed, device), arm.task, settings)


def _judged(
    study: Study,
    arm: Arm,
    seed: int,
    model: SequenceModel[Any],
    points: Sequence[TrainingPoint],
    folder: Path,
    device: str,
    how: dict[str, Any],
    failure: str | None = None,
) -> Path:
    began = time.perf_counter()
    measurements: dict[str, Any] = {
        "parameters": model.parameter_count(),
        "chance": arm.task.chance,
        "training": {**how, "failure": failure, "curve": _thinned(points)},
        "learned": None,
        "hardened": None,
    }
    if failure is None:
        if arm.fit is not None:
            fit = arm.fit
            found = fit_least_squares(
                model, arm.task, length=fit.length, batch_size=fit.batch_size, steps=fit.steps, seed=seed
            )
            measurements["fit"] = asdict(found)
        save(model, model_path(folder, study.name, arm.name, seed))
        trained = arm.training.length
        measurements["learned"] = [
            entry for probe in arm.probes for entry in judge(model, arm.task, probe, trained_length=trained, seed=seed)
        ]
        if arm.harden:
            measurements |= hardened_column(model, arm, seed)
    measurements["judging_seconds"] = round(time.perf_counter() - began, 2)
    surroundings = {**environment(), "device": torch.cuda.get_device_name() if device.startswith("cuda") else "cpu"}
    path = record_path(folder, study.name, arm.name, seed)
    return Record(f"{study.name}/{arm.name}", run_settings(study, arm, seed), measurements, surroundings).write(path)


def _thinned(points: Sequence[TrainingPoint]) -> list[list[float | None]]:
    """Step, loss, accuracy: evenly spaced, the last included."""
    every = max(1, len(points) // _CURVE_POINTS)
    kept = [point for point in points if point.step % every == 0 or point is points[-1]]
    return [[point.step, point.loss, None if point.accuracy != point.accuracy else point.accuracy] for point in kept]
