"""Trains the recipes of one fit: a plan of steps, then one run after another, each of which can be interrupted."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch

from transductor.configuration import configuration, from_plain, to_json
from transductor.fit_facts import read_outcome
from transductor.json_reading import read_json
from transductor.learning.divided_data import DividedData
from transductor.learning.recipes import Recipe
from transductor.learning.selection import measured
from transductor.model import CheckpointError, SequenceModel, load, save
from transductor.results import write_atomically
from transductor.training import FileData, Trainer, TrainingError, TrainingPoint

# Called with what is being done, how much of it is done, how much there is, and a few words on how it goes.
OnProgress = Callable[[str, int, int, str], None]

_FEWEST_STEPS: Final = 20
_TIMED_STEPS: Final = 3
_LONGEST_ATTENDED: Final = 4096  # tokens; a batch of attention scores of longer sequences needs gigabytes


@configuration
@dataclass(frozen=True)
class FitPlan:
    """What a fit does, written before it begins, so that a fit which was interrupted ends as it would have ended.

    Args:
        source: The data, with their vocabulary and their hash.
        budget: Seconds that everything may take, about.
        seed: Seed of the division, the models and their batches.
        steps: Steps of every recipe that is trained.
        left_out: Why recipes that were asked for are not trained, by name.
    """

    source: FileData
    budget: float
    seed: int
    steps: Mapping[str, int]
    left_out: Mapping[str, str]

    def write(self, folder: Path) -> None:
        """Write the plan to the folder of the fit."""
        write_atomically(folder / "plan.json", to_json(self).encode())

    @classmethod
    def read(cls, folder: Path) -> FitPlan | None:
        """Return the plan in this folder; None where there is none."""
        file = folder / "plan.json"
        if not file.exists():
            return None
        try:
            plan = from_plain(read_json(file))
        except ValueError as error:
            raise ValueError(f"{file} is not the plan of a fit: {error}") from None
        if not isinstance(plan, cls):
            raise ValueError(f"{file} is not the plan of a fit")
        return plan


def planned(
    data: DividedData, recipes: Sequence[Recipe], *, budget: float, seconds: float, seed: int, on_progress: OnProgress
) -> FitPlan:
    """Measure a few steps of every recipe, and plan as many as ``seconds`` allow, shared out evenly."""
    costs: dict[str, float] = {}
    left_out: dict[str, str] = {}
    for place, recipe in enumerate(recipes):
        on_progress("plan", place, len(recipes), recipe.name)
        if recipe.attends and data.training.longest > _LONGEST_ATTENDED:
            left_out[recipe.name] = f"sequences of {data.training.longest:,} tokens are too long for attention"
        else:
            costs[recipe.name] = _seconds_of_a_step(recipe, data.source, seed)
    on_progress("plan", len(recipes), len(recipes), "")
    most = {recipe.name: recipe.settings.steps for recipe in recipes if recipe.name in costs}
    return FitPlan(data.source, budget, seed, shared_steps(costs, most, seconds), left_out)


def shared_steps(costs: Mapping[str, float], most: Mapping[str, int], seconds: float) -> dict[str, int]:
    """Return the steps of every recipe: equal times, and what one that is done sooner leaves goes to the others.

    Args:
        costs: Seconds of one step.
        most: The most steps that each is given.
        seconds: Seconds for all of them.
    """
    steps: dict[str, int] = {}
    left = seconds
    for place, name in enumerate(sorted(costs, key=lambda each: costs[each] * most[each])):
        share = max(0.0, left) / (len(costs) - place)
        steps[name] = max(min(_FEWEST_STEPS, most[name]), min(most[name], int(share / costs[name])))
        left -= steps[name] * costs[name]
    return {name: steps[name] for name in costs}


def _seconds_of_a_step(recipe: Recipe, source: FileData, seed: int) -> float:
    trainer = fresh_trainer(recipe, source, recipe.settings.steps, seed)
    trainer.advance()  # the first step also compiles
    began = time.perf_counter()
    for _ in range(_TIMED_STEPS):
        trainer.advance()
    return max(1e-6, (time.perf_counter() - began) / _TIMED_STEPS)


def fresh_trainer(recipe: Recipe, source: FileData, steps: int, seed: int) -> Trainer:
    """Return a trainer of a recipe that has taken no step."""
    torch.manual_seed(seed)
    model = recipe.build(source.vocab_size, source.output_size)
    return Trainer(model, source, replace(recipe.settings, steps=steps, seed=seed))


def run_recipe(
    recipe: Recipe, data: DividedData, steps: int, seed: int, folder: Path, on_progress: OnProgress
) -> dict[str, Any]:
    """Train a recipe and measure it; return its outcome, which is read where it was recorded already.

    The folder then holds the outcome, the model, and until both are written the state of the training.
    """
    recorded = folder / "outcome.json"
    if recorded.exists():
        outcome: dict[str, Any] = read_outcome(recorded)
        on_progress(recipe.name, steps, steps, "trained before")
        return outcome
    trainer = _resumed(recipe, data.source, steps, seed, folder / "state")
    began, first = time.perf_counter(), trainer.step
    failed = None

    def on_step(point: TrainingPoint) -> None:
        on_progress(recipe.name, point.step, steps, said(point))

    try:
        trainer.run(on_step, folder=folder / "state", checkpoint_every=max(50, steps // 8))
    except TrainingError as error:
        if isinstance(error.__cause__, OSError):  # a full disk says nothing about the recipe
            raise
        failed = str(error)
    seconds = (time.perf_counter() - began) * steps / max(1, trainer.step - first)
    model = trainer.model.eval()
    outcome = {
        "name": recipe.name,
        "summary": recipe.summary,
        "peer": recipe.peer,
        "parameters": model.parameter_count(),
        "steps": steps,
        "seconds": round(seconds, 2),
        "failed": failed,
        "bands": [] if failed else [each.plain() for each in measured(model, data)],
        "curve": _thinned(trainer.points),
    }
    if failed is None:
        write_model(model, data.source, folder / "model")
    write_atomically(recorded, json.dumps(outcome, allow_nan=False).encode())
    shutil.rmtree(folder / "state", ignore_errors=True)
    return outcome


def said(point: TrainingPoint) -> str:
    """Return how a training goes, in a few words; where labels are numbers there is no accuracy."""
    accuracy = "" if point.accuracy != point.accuracy else f"  accuracy {point.accuracy:.0%}"
    return f"loss {point.loss:.3g}{accuracy}"


def _resumed(recipe: Recipe, source: FileData, steps: int, seed: int, folder: Path) -> Trainer:
    if (folder / "training.json").exists():
        try:
            return Trainer.resumed(folder)
        except CheckpointError:  # a state that cannot be read is as good as none: the same steps are done again
            shutil.rmtree(folder)
    return fresh_trainer(recipe, source, steps, seed)


def _thinned(points: Sequence[TrainingPoint], most: int = 60) -> list[list[float]]:
    """Return steps and losses of some points, for a curve."""
    every = max(1, len(points) // most)
    return [[point.step, round(point.loss, 6)] for point in points if point.step % every == 0]


def write_model(model: SequenceModel[Any], source: FileData, folder: Path) -> None:
    """Write a model with the names of its tokens and the description of its data, as ``transductor train`` does."""
    assert source.vocabulary is not None
    save(model, folder, letters=source.vocabulary.tokens, classes=source.vocabulary.classes)
    whole = replace(source, held_out=0.0, held_out_longest=0.0, part="training")
    write_atomically(folder / "data.json", to_json(whole).encode())


def read_model(folder: Path) -> SequenceModel[Any]:
    """Return the trained model of a recipe."""
    model: SequenceModel[Any] = load(folder / "model")
    return model
