"""Running one arm of a study: from a seed to a trained model and its record."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import torch

from transductor.configuration import to_plain
from transductor.model import CheckpointError, LSTMConfig, SequenceModel, build, load, save
from transductor.model.backbone import Backbone
from transductor.model.base import BackboneModel
from transductor.results import Record, environment, read_record
from transductor.studies.code_judging import costs, judge_code
from transductor.studies.hardened_column import hardened_column, write_portrait, writing
from transductor.studies.judging import judge_arm
from transductor.studies.rate_search import FAILED, rate_search
from transductor.studies.study import Arm, Study
from transductor.tasks import SourceCode
from transductor.training import (
    Trainer,
    TrainingError,
    TrainingPoint,
    fit_least_squares,
    train_together,
)
from transductor.transitions import TransitionFamily
from transductor.typed_values import check_kind

_CURVE_POINTS: Final = 100
_CHECKPOINT_EVERY: Final = 500
_SINGULAR: Final[type[Exception]] = torch.linalg.LinAlgError  # type: ignore[attr-defined]
# Called with the number of steps done and the number of all steps.
OnStep = Callable[[int, int], None]


class DamagedRecordWarning(UserWarning):
    """A record or a state cannot be read; its run is done again."""


def record_path(folder: Path, study: str, arm: str, seed: int) -> Path:
    """Return where the record of one run lies."""
    return folder / study / arm / f"seed{seed}.json"


def model_path(folder: Path, study: str, arm: str, seed: int) -> Path:
    """Return where the trained model of one run lies."""
    return folder / "models" / study / arm / f"seed{seed}"


def certificate_path(folder: Path, study: str, arm: str, seed: int) -> Path:
    """Return where the certificate of one run's hardened model lies, compressed."""
    return folder / "certificates" / study / arm / f"seed{seed}.json.gz"


def hardened_path(folder: Path, study: str, arm: str, seed: int) -> Path:
    """Return where the hardened model of one run lies."""
    return folder / "hardened" / study / arm / f"seed{seed}"


def portrait_path(folder: Path, study: str, arm: str) -> Path:
    """Return where the portrait of an arm's first model lies."""
    return folder / "portraits" / study / f"{arm}.json"


def run_settings(study: Study, arm: Arm, seed: int) -> dict[str, Any]:
    """Return the settings that a record is about: where they are equal, a run need not be done again."""
    return {"study": study.name, "question": study.question, "arm": to_plain(arm), "seed": seed}


def training_settings(arm: Arm, seed: int) -> dict[str, Any]:
    """Return what determines a trained model: where this is equal, it can be judged again without training."""
    parts = {"task": arm.task, "model": arm.model, "training": arm.training, "fit": arm.fit}
    return {**{name: to_plain(part) for name, part in parts.items()}, "seed": seed}


def run_arm(
    study: Study,
    arm: Arm,
    seeds: Sequence[int],
    folder: str | Path,
    *,
    device: str = "cpu",
    on_step: OnStep | None = None,
) -> list[Path]:
    """Train and judge one arm for each seed, and write model and record of each; return where the records are.

    A single seed keeps its state beside the records and, when it was interrupted, continues from it bit for bit.
    Several seeds are trained as one job.  A model that exists already with the same settings is only judged.  A run
    that diverges leaves a record that says so.  Where the arm has rates, the one that is used is sought first.
    """
    search = searched(study, arm, Path(folder), device) if arm.rates else None
    trained = arm if search is None else arm.at_rate(search["chosen"])
    runs = [_Run(study, arm, seed, Path(folder), device, trained, search) for seed in seeds]
    kept = {run.seed: outcome for run in runs if (outcome := _kept(run)) is not None}
    outcomes = kept | _trained(trained, [run for run in runs if run.seed not in kept], on_step)
    return [_judged(run, *outcomes[run.seed]) for run in runs]


def is_done(study: Study, arm: Arm, seed: int, folder: Path) -> bool:
    """Say whether a run has a record with the same settings; a damaged one is named, and is none."""
    path = record_path(folder, study.name, arm.name, seed)
    if not path.exists():
        return False
    try:
        return read_record(path).settings == run_settings(study, arm, seed)
    except ValueError as error:
        warnings.warn(f"{error}; the run is done again", DamagedRecordWarning, stacklevel=3)
        return False


def stacks(arm: Arm) -> bool:
    """Say whether several seeds of an arm can be trained as one job."""
    # A model of source code fills a GPU by itself; cuDNN's LSTM cannot be vmapped.
    return not isinstance(arm.task, SourceCode) and not isinstance(arm.model, LSTMConfig)


def searched(study: Study, arm: Arm, folder: Path, device: str) -> dict[str, Any]:
    """Try every rate of an arm on other seeds; return the excess of each on new inputs of the trained length.

    What is tried is a study of its own below ``FOLDER/searches``, so that an interrupted search goes on.
    """
    search, place = rate_search(study, arm), folder / "searches"
    tried: list[tuple[float, list[float]]] = []
    for rate, candidate in zip(arm.rates, search.arms, strict=True):
        todo = [seed for seed in search.seeds if not is_done(search, candidate, seed, place)]
        run_arm(search, candidate, todo, place, device=device)
        records = [read_record(record_path(place, search.name, candidate.name, seed)) for seed in search.seeds]
        judged = [record.measurements["learned"] for record in records]
        tried.append((rate, [entries[0]["excess"] if entries else FAILED for entries in judged]))
    chosen, _ = min(tried, key=lambda one: sum(one[1]))
    shown = [{"rate": rate, "excess": excess} for rate, excess in tried]
    return {"seeds": list(search.seeds), "tried": shown, "chosen": chosen}


class _Run(NamedTuple):
    """One seed of one arm."""

    study: Study
    arm: Arm
    seed: int
    folder: Path
    device: str
    trained: Arm  # the arm at the learning rate that was chosen
    search: dict[str, Any] | None

    def path(self, place: Callable[[Path, str, str, int], Path]) -> Path:
        """Return where one of this run's files lies, such as ``path(record_path)``."""
        return place(self.folder, self.study.name, self.arm.name, self.seed)


# A model, and the measurements of its training.
_Outcome: TypeAlias = tuple[SequenceModel[Any], dict[str, Any]]


def _trained(arm: Arm, runs: Sequence[_Run], on_step: OnStep | None) -> dict[int, _Outcome]:
    if len(runs) > 1 and stacks(arm):
        seeds, device = [run.seed for run in runs], runs[0].device
        models = [seeded_model(arm, seed, device) for seed in seeds]
        progress = None if on_step is None else lambda step: on_step(step, arm.training.steps)
        began = time.perf_counter()
        try:
            histories = train_together(models, arm.task, arm.training, seeds, progress)
        except TrainingError:  # one seed failed; trained alone, the others are not affected
            pass
        else:
            seconds = time.perf_counter() - began
            how = {"seconds": seconds, "together": len(seeds), "device": device_name(device)}
            return {
                run.seed: _finished(run, model, points, how)
                for run, model, points in zip(runs, models, histories, strict=True)
            }
    return {run.seed: _trained_alone(run, on_step) for run in runs}


def device_name(device: str) -> str:
    """Return the name of the GPU, or ``cpu``."""
    return torch.cuda.get_device_name() if device.startswith("cuda") else "cpu"


def build_model(arm: Arm) -> SequenceModel[Any]:
    """Build the model of an arm with torch's current random numbers."""
    model = build(arm.model)
    assert isinstance(model, SequenceModel)
    return model


def seeded_model(arm: Arm, seed: int, device: str) -> SequenceModel[Any]:
    """Build the model of an arm as every run with this seed begins.

    Of source code all arms with one backbone begin with the same weights in it, so that their differences are smaller
    than those between seeds.
    """
    torch.manual_seed(seed)
    model = build_model(arm)
    if isinstance(arm.task, SourceCode) and isinstance(model, BackboneModel):
        torch.manual_seed(seed)
        model.backbone.load_state_dict(Backbone(model.backbone.config).state_dict())
    return model.to(device)


def _trained_alone(run: _Run, on_step: OnStep | None) -> _Outcome:
    state = _state_folder(run)
    trainer = _trainer(run, state)
    began, before = time.perf_counter(), trainer.step
    progress = None if on_step is None else lambda point: on_step(point.step, run.trained.training.steps)
    failure = None
    try:
        trainer.run(progress, folder=state, checkpoint_every=_CHECKPOINT_EVERY)
    except TrainingError as error:
        if isinstance(error.__cause__, OSError):  # a full disk is not the model's failure
            raise
        failure = str(error)
    except (ValueError, _SINGULAR) as error:
        if not _overflowed(trainer.model):
            raise
        failure = f"{error} at step {trainer.step + 1}; try a smaller learning_rate"
    seconds = time.perf_counter() - began
    how: dict[str, Any] = {"seconds": seconds, "together": 1, "device": device_name(run.device)}
    if before:
        how["resumed_at"] = before
    outcome = _finished(run, trainer.model, trainer.points, how, failure)
    shutil.rmtree(state, ignore_errors=True)
    return outcome


def _finished(
    run: _Run,
    model: SequenceModel[Any],
    points: Sequence[TrainingPoint],
    how: dict[str, Any],
    failure: str | None = None,
) -> _Outcome:
    """Fit by least squares where the arm asks for it, then write the model and its history."""
    measured: dict[str, Any] = {"training": {**how, "failure": failure, "curve": _thinned(points)}}
    if failure is None:
        try:
            measured |= _fitted(run.trained, run.seed, model)
        except TrainingError as error:
            measured["training"]["failure"] = str(error)
            return model, measured
        path = run.path(model_path)
        with writing(path):
            _history_path(path).unlink(missing_ok=True)  # from here on it describes another model
            try:
                save(model, path)
            except CheckpointError:  # what lies there is damaged; it is to be replaced anyway
                shutil.rmtree(path)
                save(model, path)
            Record("training", training_settings(run.trained, run.seed), measured).write(_history_path(path))
    return model, measured


def _fitted(arm: Arm, seed: int, model: SequenceModel[Any]) -> dict[str, Any]:
    """Fit by least squares, where the arm asks for it; raise TrainingError if the model is not finite."""
    if _overflowed(model):
        raise TrainingError("the last step left weights or matrices that are not finite; try a smaller learning_rate")
    if (fit := arm.fit) is None:
        return {}
    try:
        result = fit_least_squares(
            model, arm.task, length=fit.length, batch_size=fit.batch_size, steps=fit.steps, seed=seed
        )
    except (ValueError, _SINGULAR) as error:
        raise TrainingError(f"least squares failed: {error}") from error
    if not math.isfinite(result.before + result.after):
        raise TrainingError(f"least squares failed: the error is {result.after} at length {fit.length}")
    return {"fit": asdict(result)}


@torch.no_grad()
def _overflowed(model: SequenceModel[Any]) -> bool:
    """Say whether weights, or the matrices made of them, are not finite."""
    families = [module for module in model.modules() if isinstance(module, TransitionFamily) and module.vocab_size]
    return not (
        all(bool(weight.isfinite().all()) for weight in model.parameters())
        and all(bool(family.table().isfinite().all()) for family in families)
    )


def _history_path(model: Path) -> Path:
    return model.with_name(f"{model.name}.json")


def _kept(run: _Run) -> _Outcome | None:
    """Return the model of this run and its history, if it was trained already and can be read."""
    path = run.path(model_path)
    if not _history_path(path).exists():
        return None
    try:
        history = read_record(_history_path(path))
        if history.settings != training_settings(run.trained, run.seed):
            return None
        training: Any = history.measurements.get("training")
        check_kind(f"{_history_path(path)}: training", training, dict[str, Any])
        check_kind(f"{_history_path(path)}: training.failure", training.get("failure", 0), str | None)
        model = load(path, device=run.device)
    except (ValueError, CheckpointError) as error:
        warnings.warn(f"{error}; the model is trained again", DamagedRecordWarning, stacklevel=4)
        return None
    shutil.rmtree(_state_folder(run), ignore_errors=True)  # left where the run was killed before it removed it
    return model, dict(history.measurements)


def _state_folder(run: _Run) -> Path:
    """Return where an unfinished run keeps its state; runs that differ in any setting have different folders."""
    settings = json.dumps(run_settings(run.study, run.arm, run.seed), sort_keys=True)
    digest = hashlib.sha256(settings.encode()).hexdigest()[:12]
    return run.folder / ".state" / run.study.name / run.arm.name / f"seed{run.seed}-{digest}"


def _trainer(run: _Run, state: Path) -> Trainer:
    """Return the interrupted run, if its state can be read; else a new one."""
    if (state / "training.json").exists():  # the last file that is written: without it there is no state yet
        try:
            return Trainer.resumed(state, device=run.device)
        except CheckpointError as error:
            warnings.warn(f"{error}; the run starts again", DamagedRecordWarning, stacklevel=4)
            shutil.rmtree(state, ignore_errors=True)
    settings = replace(run.trained.training, seed=run.seed)
    return Trainer(seeded_model(run.arm, run.seed, run.device), run.arm.task, settings)


def _judged(run: _Run, model: SequenceModel[Any], measured: dict[str, Any]) -> Path:
    """Judge a trained model, harden it where the arm asks for it, and write its record."""
    study, arm, seed, folder, device = run[:5]
    began = time.perf_counter()
    measurements: dict[str, Any] = {
        "parameters": model.parameter_count(),
        "chance": arm.task.chance,
        **measured,
        **({} if run.search is None else {"search": run.search}),
        "learned": None,
        "hardened": None,
    }
    trained = measured["training"]["failure"] is None
    if trained and isinstance(arm.task, SourceCode):
        measurements |= {"learned": judge_code(model, arm), "costs": costs(model, arm)}
        measurements["corpus"] = arm.task.opened().sha256
    elif trained:
        measurements["learned"] = judge_arm(model, arm, seed)
        if arm.harden:
            hardened, certificate = run.path(hardened_path), run.path(certificate_path)
            measurements |= hardened_column(model, arm, seed, folder=hardened, certificate=certificate)
            portrait = portrait_path(folder, study.name, arm.name)
            if seed == study.seeds[0] and arm.task.output_kind == "class":
                with writing(portrait):
                    write_portrait(model, arm, seed, portrait)
    measurements["judging_seconds"] = round(time.perf_counter() - began, 2)
    machine = {**environment(), "device": device_name(device)}
    path = run.path(record_path)
    record = Record(f"{study.name}/{arm.name}", run_settings(study, arm, seed), measurements, machine)
    with writing(path):
        return record.write(path)


def _thinned(points: Sequence[TrainingPoint]) -> list[list[float | None]]:
    """Return step, loss and accuracy at evenly spaced steps, the last included."""
    every = max(1, len(points) // _CURVE_POINTS)
    kept = [point for point in points if point.step % every == 0 or point is points[-1]]
    return [[point.step, point.loss, None if point.accuracy != point.accuracy else point.accuracy] for point in kept]
