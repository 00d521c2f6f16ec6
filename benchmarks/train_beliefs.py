"""Train the models of ``tracking_inside``, ``hidden_swaps`` and ``repl_traces`` as CUDA graphs; the runner judges them.

All rates and seeds of an arm are one job of :mod:`trained_as_one`; models and histories are left where and as the
study's own runner leaves them, which then finds, judges and records them.  What cannot be captured, or diverges, is
left to the runner, which trains it by itself.

Usage: ``python benchmarks/train_beliefs.py STUDY --draw --batches FOLDER`` once, then for each arm ``python
benchmarks/train_beliefs.py STUDY --arm NAME --batches FOLDER [--folder FOLDER] [--device D]``; ``--steps`` is for a
quick check and writes nothing.
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import replace
from pathlib import Path

import torch
from joblib import Parallel, delayed
from torch import Tensor, nn

from trained_as_one import Fleet, Member
from transductor.model import save
from transductor.results import Record, read_record
from transductor.studies import STUDIES, Arm, Study, run_arm
from transductor.studies.rate_search import FAILED, SEEDS, rate_search
from transductor.studies.running import model_path, record_path, seeded_model, training_settings
from transductor.training.steps import draw_batch


class HeadFleet(Fleet):
    """Members whose heads have a rate of their own, as ``head_learning_rate`` gives it."""

    def __init__(self, members: list[Member], arm: Arm, device: str) -> None:
        super().__init__(members, arm.training, device)
        self.factors = torch.ones_like(self.values)
        if (rate := arm.training.head_learning_rate) is not None:
            for place, member in enumerate(members):
                heads = {id(weight) for weight in _head_weights(member.model)}
                for weight in member.model.parameters():
                    if id(weight) in heads:
                        at = weight.storage_offset() - self.values[place].storage_offset()
                        self.factors[place, at : at + weight.numel()] = rate / member.rate

    def _update(self, accuracies: Tensor) -> None:
        before = self.values.clone()
        super()._update(accuracies)
        self.values.sub_(before).mul_(self.factors).add_(before)


def _head_weights(model: nn.Module) -> list[nn.Parameter]:
    return [weight for name, weight in model.named_parameters() if name.startswith("rational_head.")]


def drawn(arm: Arm, seed: int) -> tuple[Tensor, Tensor]:
    """What the runner draws for this seed, step by step."""
    torch.set_num_threads(1)
    settings, generator = arm.training, torch.Generator().manual_seed(seed)
    pairs = [draw_batch(arm.task, settings, settings.length, generator) for _ in range(settings.steps)]
    tokens, labels = (torch.stack(each) for each in zip(*pairs, strict=True))
    return tokens.to(torch.uint8), labels.to(torch.uint8)


def group_of(arm: Arm) -> str:
    """Return what the data of an arm depend on: its task, the last part of its name."""
    return arm.name.partition("_on_")[2]


def draw(study: Study, folder: Path) -> None:
    """Write the batches of every seed, those of the search included."""
    folder.mkdir(parents=True, exist_ok=True)
    groups = {group_of(arm): arm for arm in study.arms}
    jobs = [(arm, seed) for arm in groups.values() for seed in (*(SEEDS if arm.rates else ()), *study.seeds)]
    made = Parallel(len(jobs), backend="multiprocessing")(delayed(drawn)(*job) for job in jobs)
    for (arm, seed), batches in zip(jobs, made, strict=True):
        torch.save(batches, folder / f"{study.name}_{group_of(arm)}_{seed}.pt")


def one_job(study: Study, group: str, runs: list[tuple[Arm, int]], options: argparse.Namespace, folder: Path) -> None:
    """Train runs of one configuration, and write model and history of each."""
    settings, began = runs[0][0].training, time.perf_counter()
    seeds = dict.fromkeys(seed for _, seed in runs)
    loaded = {seed: torch.load(options.batches / f"{study.name}_{group}_{seed}.pt") for seed in seeds}
    batches = {seed: [each.to(options.device) for each in pair] for seed, pair in loaded.items()}
    models = [seeded_model(arm, seed, options.device) for arm, seed in runs]
    members = [
        Member(model, *batches[seed], arm.training.learning_rate)
        for (arm, seed), model in zip(runs, models, strict=True)
    ]
    fleet = HeadFleet(members, runs[0][0], options.device)
    fleet.train()
    outcomes, seconds = fleet.outcomes(), time.perf_counter() - began
    print(runs[0][0].name, len(runs), "models", round(seconds, 1), "s", outcomes, flush=True)
    for (arm, seed), model, outcome in zip(runs, models, outcomes, strict=True):
        if outcome["failure"] is None and not options.steps:
            path = model_path(folder, study.name, arm.name, seed)
            path.parent.mkdir(parents=True, exist_ok=True)
            save(model.eval(), path)
            name = torch.cuda.get_device_name() if options.device != "cpu" else "cpu"
            how = {"seconds": seconds, "together": len(runs), "device": name}
            measured = {"training": {**how, "failure": None, "curve": [[settings.steps, outcome["last loss"], None]]}}
            Record("training", training_settings(arm, seed), measured).write(path.with_name(f"{path.name}.json"))


def attempt(study: Study, group: str, runs: list[tuple[Arm, int]], options: argparse.Namespace, folder: Path) -> None:
    """Train as one job; say why where that cannot be done."""
    try:
        one_job(study, group, runs, options, folder)
    except Exception as error:
        print(f"{runs[0][0].name}: left to the runner: {type(error).__name__}: {str(error)[:300]}", flush=True)
        if options.device != "cpu":
            torch.cuda.synchronize()


def main() -> None:
    """Draw, or train and judge one arm."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study")
    parser.add_argument("--draw", action="store_true")
    parser.add_argument("--arm")
    parser.add_argument("--batches", type=Path, required=True)
    parser.add_argument("--folder", type=Path, default=Path("results"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int)
    options = parser.parse_args()
    study, began = STUDIES[options.study], time.perf_counter()
    if options.steps:
        shorter = [replace(arm, training=replace(arm.training, steps=options.steps, warmup=1)) for arm in study.arms]
        study = replace(study, arms=tuple(shorter))
    if options.draw:
        draw(study, options.batches)
        print(study.name, "drawn", round(time.perf_counter() - began, 1), "s", flush=True)
        return
    arm = next(arm for arm in study.arms if arm.name == options.arm)
    group, best = group_of(arm), arm.training.learning_rate
    if arm.rates:
        search, places = rate_search(study, arm), options.folder / "searches"
        attempt(search, group, [(one, seed) for one in search.arms for seed in search.seeds], options, places)
        if options.steps:
            return
        sums = []
        for one in search.arms:
            run_arm(search, one, search.seeds, places, device=options.device)
            records = [read_record(record_path(places, search.name, one.name, seed)) for seed in search.seeds]
            judged = [record.measurements["learned"] for record in records]
            sums.append(math.fsum(entries[0]["excess"] if entries else FAILED for entries in judged))
        best = arm.rates[sums.index(min(sums))]
        print(arm.name, "searched", round(time.perf_counter() - began), "s", best, sums, flush=True)
    attempt(study, group, [(arm.at_rate(best), seed) for seed in study.seeds], options, options.folder)
    if not options.steps:
        for path in run_arm(study, arm, study.seeds, options.folder, device=options.device):
            learned = read_record(path).measurements["learned"] or []
            shown = {one["length"]: one.get("excess", one["positions"]) for one in learned if one["input"] == "random"}
            print(path, shown, round(time.perf_counter() - began), "s", flush=True)


if __name__ == "__main__":
    main()
