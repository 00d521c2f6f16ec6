"""Recurrences of flash-linear-attention, and an LSTM, beside ours on two studies: ``tracking`` and ``state_tracking``.

Peers see the tokens that the study's own models see, as many of them, and take the best of three learning rates: that
of the least loss on new words of the trained length, by seeds that are not judged.  Five seeds are, no checkpoint
chosen.  On ``tracking`` they have the filter's number of parameters within 5 %; on ``state_tracking``, where some of
our heads have fewer than a hundred, about 25 000 each.  All models of one kind and a number of steps are trained as one
job (:mod:`trained_as_one`), each kind in a process of its own; ``report`` gathers what they wrote.

Usage: ``python benchmarks/peers.py {draw,train,report} [--study STUDY] [--peer PEER] [--device D] [--folder FOLDER]
[--steps N] [--only TEXT]``, with flash-linear-attention, fla-core and einops where Python finds them.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import torch
from joblib import Parallel, delayed
from torch import Tensor, nn
from torch.nn import functional

from peer_layers import PEERS, Shape, build_peer, parameter_count
from trained_as_one import Fleet, Member
from transductor.model import LSTMConfig, build
from transductor.results import Record, environment
from transductor.studies import STUDIES, Arm, Probe
from transductor.tasks import IGNORED, HiddenProcess, Task
from transductor.training.steps import draw_batch

FOLDER = Path("runs/peers")
RESULTS = Path("benchmarks/results")
SEEDS = (0, 1, 2, 3, 4)
FARTHEST = 5_120
TOKENS = 1 << 15  # of random inputs at a length, on state_tracking
RATES = {"tracking": (0.003, 0.01, 0.03), "state_tracking": (0.001, 0.003, 0.01)}
SEARCHED = {"tracking": (100, 101), "state_tracking": (100,)}
# On tracking: width and heads of 16 that leave a peer room for its feed-forward part, for 5 and for 8 states.
TRACKING = {
    "deltanet": (Shape(1, 16, 1, 16, 3360), Shape(2, 32, 2, 16, 13_200)),
    "deltaproduct": (Shape(1, 12, 1, 16, 3360), Shape(2, 24, 1, 16, 13_200)),
    "gated_deltanet": (Shape(1, 16, 1, 16, 3360), Shape(2, 28, 2, 16, 13_200)),
    "mamba2": (Shape(1, 16, 2, 16, 3360), Shape(2, 24, 3, 16, 13_200)),
    "rwkv7": (Shape(1, 16, 1, 16, 3360), Shape(2, 32, 2, 16, 13_200)),
}
GROUPS = Shape(2, 32, 2, 16, 25_000, low_rank=8)
GROUPS_BY_PRODUCTS = replace(GROUPS, heads=1)  # each token has four keys and values
LSTM_WIDTH = 48


@dataclass(frozen=True)
class Run:
    """One model: where it is trained, at which rate, from which seed."""

    arm: Arm
    rate: float
    seed: int


def drawn(arm: Arm, seed: int) -> tuple[Tensor, Tensor]:
    """What a run sees: what the study's trainer draws for this seed at the full length."""
    torch.set_num_threads(1)
    settings, generator = arm.training, torch.Generator().manual_seed(seed)
    pairs = [draw_batch(arm.task, settings, settings.length, generator) for _ in range(settings.steps)]
    tokens, labels = (torch.stack(each) for each in zip(*pairs, strict=True))
    return tokens.to(torch.uint8), labels.short()


def draw_to(path: Path, arm: Arm, seed: int) -> None:
    part = path.with_suffix(".part")
    torch.save(drawn(arm, seed), part)
    part.replace(path)


def draw_all(arguments: argparse.Namespace) -> None:
    """Draw every arm's batches once, for the processes of all peers."""
    study, folder = arguments.study, Path(arguments.drawn)
    folder.mkdir(parents=True, exist_ok=True)

    jobs = [
        delayed(draw_to)(folder / f"{study}_{arm.name}_{seed}.pt", arm, seed)
        for arm in arms_of(study, (), arguments.steps)
        for seed in (*SEARCHED[study], *SEEDS)
    ]
    Parallel(16, backend="multiprocessing")(jobs)


# A run, its model, and how it came out.
Trained: TypeAlias = tuple[Run, nn.Module, dict[str, Any]]


class Data:
    """Batches of one study on the device: read where they were drawn before."""

    def __init__(self, study: str, folder: Path, device: str) -> None:
        self.study, self.folder, self.device = study, folder, device
        self.held: dict[tuple[str, int], tuple[Tensor, Tensor]] = {}

    def batches(self, arm: Arm, seed: int) -> tuple[Tensor, Tensor]:
        if (arm.name, seed) not in self.held:
            path = self.folder / f"{self.study}_{arm.name}_{seed}.pt"
            tokens, labels = torch.load(path) if path.exists() else drawn(arm, seed)
            self.held[arm.name, seed] = tokens.to(self.device), labels.to(self.device)
        return self.held[arm.name, seed]


def arms_of(study: str, only: tuple[str, ...], steps: int | None) -> list[Arm]:
    """The study's arms, each automaton or task once, with what peers change of its settings."""
    chosen = []
    for arm in STUDIES[study].arms:
        tracker, _, process = arm.name.partition("_on_")
        if study == "tracking" and tracker != "transformer":  # whose settings warm up
            continue
        name = process or arm.name
        settings = replace(
            arm.training,
            clipping="global",
            annealing=None,
            warmup=min(50, steps or 50),
            steps=steps or arm.training.steps,
        )
        probes = arm.probes if study == "tracking" else tuple(dict.fromkeys(map(lighter, arm.probes)))
        if not only or name in only:
            chosen.append(replace(arm, name=name, training=settings, probes=probes, harden=False, rates=()))
    return chosen


def lighter(probe: Probe) -> Probe:
    length = min(probe.length, FARTHEST)
    return replace(probe, length=length, sequences=max(4, min(256, TOKENS // length)) if probe.family is None else 1)


def build_model(study: str, peer: str, task: Task, seed: int) -> nn.Module:
    if peer == "lstm":
        torch.manual_seed(seed)
        config = LSTMConfig(vocab_size=task.vocab_size, output_size=task.output_size, width=LSTM_WIDTH)
        return build(config)  # type: ignore[no-any-return]
    shapes = shapes_of(study, peer)
    shape = shapes[0] if len(shapes) == 1 or task.output_size == 5 else shapes[1]
    return build_peer(peer, shape, task.vocab_size, task.output_size, seed)


def shapes_of(study: str, peer: str) -> tuple[Shape, ...]:
    if study == "tracking":
        return TRACKING[peer]
    return (GROUPS_BY_PRODUCTS if peer == "deltaproduct" else GROUPS,)


def train(study: str, peer: str, runs: list[Run], data: Data) -> list[Trained]:
    """Train runs that have one length and one number of steps together; return models and how they came out."""
    done = []
    groups: dict[tuple[int, int], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.arm.training.steps, run.arm.training.length), []).append(run)
    for together in groups.values():
        models = [build_model(study, peer, run.arm.task, run.seed).to(data.device) for run in together]
        members = [
            Member(model, *data.batches(run.arm, run.seed), run.rate)
            for run, model in zip(together, models, strict=True)
        ]
        fleet = Fleet(members, together[0].arm.training, data.device, stacked=peer != "lstm")
        took = {key: round(value, 2) for key, value in fleet.train().items()}
        print(study, peer, len(together), "models", took, flush=True)
        shared = {**took, "together": len(together)}
        for run, model, outcome in zip(together, models, fleet.outcomes(), strict=True):
            done.append((run, model.eval(), {"parameters": parameter_count(model), **shared, **outcome}))
        del fleet, members
    return done


@torch.no_grad()
def judged(model: nn.Module, task: Task, probe: Probe, seed: int, device: str) -> list[dict[str, Any]]:
    """Judge as the studies do, at every position: shares of right labels, or the excess over Bayes; and the loss."""
    task = probe.task or task
    if probe.family is None:
        generator = torch.Generator().manual_seed(1_000_003 * (seed + 1))
        inputs = {"random": task.sample(probe.sequences, probe.length, generator)}
    else:
        inputs = task.adversarial(probe.length)
    tokens = torch.cat(list(inputs.values()))
    logits = torch.cat([model(part.to(device)) for part in tokens.split(max(1, (1 << 18) // probe.length))])
    entries = []
    for name, rows in zip(
        inputs, torch.arange(len(tokens)).split([len(each) for each in inputs.values()]), strict=True
    ):
        entry = {"input": name, "task": task.name, "length": probe.length, "sequences": len(rows)}
        entries.append(entry | measured(logits[rows.to(device)], task, tokens[rows]))
    return entries


def measured(logits: Tensor, task: Task, tokens: Tensor) -> dict[str, Any]:
    labels = task.truth(tokens).to(logits.device)
    labelled = labels != IGNORED
    right = (logits.argmax(-1) == labels) & labelled & ~logits.isnan().any(-1)
    loss = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)
    entry = {
        "positions": int(right.sum()) / max(1, int(labelled.sum())),
        "exact": float((right == labelled).all(1).float().mean()),
        "loss": finite(float(loss)),
    }
    if isinstance(task, HiddenProcess):
        more, least = task.divergence(logits.cpu(), tokens)
        entry["excess"] = max(0.0, finite(more / least))
    return entry


def finite(value: float) -> float:
    return min(value, 1e308) if not math.isnan(value) else 1e308


def chosen(study: str, trained: list[Trained], device: str) -> dict[str, dict[str, Any]]:
    """Choose every arm's rate: the least loss on 512 new words of the trained length."""
    measure = "excess" if study == "tracking" else "loss"
    tried: dict[str, dict[float, list[float]]] = {}
    for run, model, outcome in trained:
        probe, value = Probe(run.arm.training.length, 512), 1e308
        if outcome["failure"] is None:
            value = judged(model, run.arm.task, probe, run.seed, device)[0][measure]
        tried.setdefault(run.arm.name, {}).setdefault(run.rate, []).append(value)
    return {
        name: {
            "seeds": list(dict.fromkeys(run.seed for run, _, _ in trained)),
            "measure": measure,
            "tried": [{"rate": rate, measure: values} for rate, values in rates.items()],
            "chosen": min(rates, key=lambda rate: sum(rates[rate])),
        }
        for name, rates in tried.items()
    }


def train_and_judge(arguments: argparse.Namespace) -> None:
    """Choose, train and judge, one part after the other; what is done is written."""
    study, peer, device = arguments.study, arguments.peer, arguments.device
    warnings.simplefilter("ignore")
    path = Path(arguments.folder) / study / f"{peer}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    sizes = [{"width": LSTM_WIDTH}] if peer == "lstm" else [vars(shape) for shape in shapes_of(study, peer)]
    settings = {"peer": peer, "study": study, "shapes": sizes, "steps": arguments.steps}
    found: dict[str, Any] = {"device": device_name(device), "seconds": 0.0, "search": {}, "runs": []}
    began = time.perf_counter()
    for part in arguments.only.split(";"):
        arms = arms_of(study, tuple(filter(None, part.split(","))), arguments.steps)
        data, seeds = Data(study, Path(arguments.drawn), device), SEARCHED[study][: arguments.search_seeds]
        runs = [Run(arm, rate, seed) for arm in arms for rate in RATES[study] for seed in seeds]
        search = chosen(study, train(study, peer, runs, data), device)
        runs = [Run(arm, search[arm.name]["chosen"], seed) for arm in arms for seed in SEEDS]
        for run, model, outcome in train(study, peer, runs, data):
            entries: list[dict[str, Any]] = []
            if outcome["failure"] is None:
                for probe in run.arm.probes:
                    entries += judged(model, run.arm.task, probe, run.seed, device)
            shown = {"task": run.arm.name, "seed": run.seed, "rate": run.rate}
            found["runs"].append({**shown, **outcome, "judged": entries})
        found["search"] |= search
        found["seconds"] = round(time.perf_counter() - began, 1)
        path.write_text(json.dumps({"settings": settings, **found}))
        print(study, peer, part, "done", found["seconds"], "s", flush=True)


def device_name(device: str) -> str:
    return torch.cuda.get_device_name() if device.startswith("cuda") else device


def report(arguments: argparse.Namespace) -> None:
    """Gather what the processes wrote into one record for each study, with what the layers were found to do."""
    folder = Path(arguments.folder)
    checks = folder / "checks.json"
    for study in RATES:
        parts = [json.loads(path.read_text()) for path in sorted((folder / study).glob("*.json"))]
        for part in parts:
            for run in part["runs"]:
                run["judged"] = shortened(run["judged"])
        if not parts:
            continue
        settings = {"study": study, "seeds": list(SEEDS), "rates": list(RATES[study])}
        measurements = {
            "layers": json.loads(checks.read_text()) if checks.exists() else None,
            "peers": {part["settings"]["peer"]: part for part in parts},
        }
        record = Record("peers", settings, measurements, environment())
        record.write(RESULTS / f"peers_{study}.json")


def shortened(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of every length, random inputs and the worst of the other kinds."""
    kept = [{**entry, "kind": "random"} for entry in entries if entry["input"] == "random"]
    for length in dict.fromkeys(entry["length"] for entry in entries):
        others = [entry for entry in entries if entry["length"] == length and entry["input"] != "random"]
        if others:
            kept.append({**min(others, key=lambda entry: entry["positions"]), "kind": "worst"})
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stage", choices=("draw", "train", "report"))
    parser.add_argument("--study", default="tracking", choices=tuple(RATES))
    parser.add_argument("--peer", default="deltanet", choices=(*PEERS, "lstm"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--folder", default=str(FOLDER))
    parser.add_argument("--drawn", default="runs/peers_drawn", help="where draw keeps batches")
    parser.add_argument("--search-seeds", type=int, help="use fewer seeds to choose a rate by")
    parser.add_argument("--steps", type=int)
    parser.add_argument(
        "--only", default="", help="arms; parts, which are written one by one, stand between semicolons"
    )
    arguments = parser.parse_args()
    {"draw": draw_all, "train": train_and_judge, "report": report}[arguments.stage](arguments)


if __name__ == "__main__":
    main()
