"""Train the models of ``tracking_wide`` as CUDA graphs, where ``transductor reproduce`` then finds and judges them.

The study's own runner trains an arm's seeds as one stacked job, which for filters, whose scan cannot be stacked, costs
fifty milliseconds a step.  Here all rates and seeds of an arm are one job of :mod:`trained_as_one`; models and
histories are left as the runner leaves them.  What diverges is left to the runner, which tries it again by
itself and says so.

Usage: ``python benchmarks/train_study_as_one.py --only TEXT [--trackers A,B] [--folder FOLDER] [--device D]
[--steps N]``; ``--steps`` is for a quick check and writes nothing.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

import torch
from joblib import Parallel, delayed
from torch import Tensor

from trained_as_one import Fleet, Member
from transductor.model import save
from transductor.results import Record
from transductor.studies import STUDIES, Arm, Study, run_arm
from transductor.studies.rate_search import rate_search
from transductor.studies.running import device_name, model_path, searched, seeded_model, training_settings
from transductor.training import train_together
from transductor.training.steps import draw_batch

# Their matrices need a solver, and their gradients a count of the tokens, that a graph cannot hold.
STACKED = ("orthogonal", "dense")
Batches = dict[int, tuple[Tensor, Tensor]]


def drawn(arm: Arm, seed: int) -> tuple[Tensor, Tensor]:
    """What the runner draws for this seed, step by step."""
    torch.set_num_threads(1)
    settings, generator = arm.training, torch.Generator().manual_seed(seed)
    pairs = [draw_batch(arm.task, settings, settings.length, generator) for _ in range(settings.steps)]
    tokens, labels = (torch.stack(each) for each in zip(*pairs, strict=True))
    return tokens.to(torch.uint8), labels.to(torch.uint8)


def trained(
    study: Study, runs: list[tuple[Arm, int]], batches: Batches, folder: Path, device: str, write: bool
) -> None:
    """Train runs of one configuration and write model and history of each."""
    models = [seeded_model(arm, seed, device) for arm, seed in runs]
    settings = runs[0][0].training
    began = time.perf_counter()
    if runs[0][0].name.startswith(STACKED):
        for rate in dict.fromkeys(arm.training.learning_rate for arm, _ in runs):
            some = [place for place, (arm, _) in enumerate(runs) if arm.training.learning_rate == rate]
            at_rate = replace(settings, learning_rate=rate)
            train_together([models[i] for i in some], runs[0][0].task, at_rate, [runs[i][1] for i in some])
        outcomes = [{"last loss": 0.0, "failure": None} for _ in runs]
    else:
        members = [
            Member(model, *batches[seed], arm.training.learning_rate)
            for (arm, seed), model in zip(runs, models, strict=True)
        ]
        fleet = Fleet(members, settings, device, stacked="lstm" not in runs[0][0].name)
        fleet.train()
        outcomes = fleet.outcomes()
    seconds = time.perf_counter() - began
    print(
        runs[0][0].name, len(runs), "models", round(seconds, 1), "s", [one["failure"] for one in outcomes], flush=True
    )
    for (arm, seed), model, outcome in zip(runs, models, outcomes, strict=True):
        if outcome["failure"] is None and write:
            path = model_path(folder, study.name, arm.name, seed)
            path.parent.mkdir(parents=True, exist_ok=True)
            save(model.eval(), path)
            how = {"seconds": seconds, "together": len(runs), "device": device_name(device)}
            curve = [[settings.steps, outcome["last loss"], None]]
            measured = {"training": {**how, "failure": None, "curve": curve}}
            Record("training", training_settings(arm, seed), measured).write(path.with_name(f"{path.name}.json"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", default="tracking_wide")
    parser.add_argument("--only", required=True, help="the automaton, such as 16_slow")
    parser.add_argument("--trackers", default="")
    parser.add_argument("--folder", type=Path, default=Path("results"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int)
    arguments = parser.parse_args()
    study, folder, device = STUDIES[arguments.study], arguments.folder, arguments.device
    arms = {arm.name.partition("_on_")[0]: arm for arm in study.arms if arm.name.endswith(f"_on_{arguments.only}")}
    names = arguments.trackers.split(",") if arguments.trackers else list(arms)
    seeds = (*rate_search(study, arms[names[0]]).seeds, *study.seeds)
    if arguments.steps:
        arms = {
            name: replace(arm, training=replace(arm.training, steps=arguments.steps, warmup=0))
            for name, arm in arms.items()
        }
    began = time.perf_counter()
    pairs = Parallel(len(seeds), backend="multiprocessing")(delayed(drawn)(arms[names[0]], seed) for seed in seeds)
    batches = {seed: (a.to(device), b.to(device)) for seed, (a, b) in zip(seeds, pairs, strict=True)}
    print(arguments.only, "drawn", round(time.perf_counter() - began, 1), "s", flush=True)
    for name in names:
        arm = arms[name]
        search = rate_search(study, arm)
        places = folder / "searches"
        runs = [(one, seed) for one in search.arms for seed in search.seeds]
        trained(search, runs, batches, places, device, write=not arguments.steps)
        if arguments.steps:
            continue
        best = searched(study, arm, folder, device)["chosen"]
        trained(study, [(arm.at_rate(best), seed) for seed in study.seeds], batches, folder, device, write=True)
        run_arm(study, arm, study.seeds, folder, device=device)
        print(arm.name, "judged", round(time.perf_counter() - began), "s so far", flush=True)


if __name__ == "__main__":
    main()
