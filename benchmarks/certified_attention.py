"""Certify models with attention for all lengths: train, harden, narrow, bound; then run them on 100 000 tokens.

Five seeds of mod 5 and of parity, two layers, width 32, four attention heads: with full attention, and with a sliding
window and rotary positions.  ``train`` leaves each model and its record in ``benchmarks/results/certified_attention``,
``bound`` computes the bounds of the saved models again, ``judge`` runs them on long inputs (full attention takes more
than a minute a word on a CPU), and ``report`` writes ``benchmarks/results/certified_attention.json`` and a figure.

Usage: ``python benchmarks/certified_attention.py {train,bound,judge,report} [--device DEVICE] [--only NAME]``.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import Tensor

from transductor.certification.bounds.attended_models import attended_pairs, attention_agreement
from transductor.certification.bounds.attended_stream import AttendedLogits
from transductor.certification.bounds.horizon import outputs_on_edges
from transductor.certification.reachability import exact_run
from transductor.certification.subjects import subject_of
from transductor.extraction import NoMachineNearby, harden
from transductor.heads import RationalHead
from transductor.model import BackboneConfig, RationalTransductor, RotaryPositions, SlidingWindow, load, save
from transductor.report.style import save_figure
from transductor.results import Record, environment, write_atomically
from transductor.tasks import Task, task_named
from transductor.training import TrainingSettings, evaluate, narrow_attention, train
from transductor.transitions import OrthogonalTransitions

FOLDER = Path("benchmarks/results/certified_attention")
TASKS = {"mod5": "counting:5", "parity": "parity"}
KINDS: dict[str, dict[str, Any]] = {
    "full": {},
    "window": {"attention": SlidingWindow(16), "positions": RotaryPositions()},
}
SEEDS = range(5)
STEPS, NARROWING_STEPS, ROUNDS = 600, 200, 3
LENGTHS = (50, 500)
CURVE = (100, 1000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
BEFORE_LENGTH, LONG = 20_000, 100_000


def names() -> list[tuple[str, str, int]]:
    return [(task, kind, seed) for kind in KINDS for task in TASKS for seed in SEEDS]


def built(task: Task, kind: str, seed: int) -> RationalTransductor:
    torch.manual_seed(seed)
    head = RationalHead(OrthogonalTransitions(vocab_size=task.vocab_size, state_dim=8))
    config = BackboneConfig(
        vocab_size=task.vocab_size,
        output_size=task.output_size,
        width=32,
        layers=2,
        attention_heads=4,
        **KINDS[kind],
    )
    return RationalTransductor(head, config)


def number(value: float) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None


def bounded(model: RationalTransductor, task: Task) -> dict[str, Any]:
    began = time.perf_counter()
    result: AttendedLogits = attention_agreement(model, against=task.automaton())
    at = int(np.argmin(result.gap))
    return {
        "sentence": str(result),
        "gap": number(result.worst),
        "gap_where_attention_is_constant": number(float(result.centre[at])),
        "taken_by_attention": number(float(result.by_attention[at])),
        "holds_for_all_lengths_with_exact_averages": result.holds,
        "proved_for_all_lengths": result.proved,
        "float_length": result.float_length,
        "widths": [[number(moved), number(size)] for moved, size in result.widths],
        "seconds": round(time.perf_counter() - began, 2),
    }


def curve(model: RationalTransductor, task: Task) -> list[float | None]:
    """Return the least certified gap in float32 at every length of ``CURVE``."""
    subject, _ = subject_of(model)
    graph, states = exact_run(subject, task.automaton(), None)
    edges, stream = attended_pairs(subject, graph, outputs_on_edges(subject, graph, states))
    right = graph.labels[graph.target][edges]
    rivals = (right[:, None] + np.arange(1, task.output_size)) % task.output_size
    return [number(float(stream.gaps(right, rivals, length)[0].min())) for length in CURVE]


def accuracies(model: RationalTransductor, task: Task, seed: int) -> dict[str, float]:
    return {
        str(length): evaluate(
            model, task, length=length, batch_size=64, seed=7000 + seed, trained_length=50
        ).every_position
        for length in LENGTHS
    }


def inputs(task: Task, length: int, seed: int) -> dict[str, Tensor]:
    """Return words ``(1, T)`` that ordinary attention gets wrong, and a random one."""
    ending = [1, 0] * 20
    mostly_zeros = [1, 1, 1] + [0] * (length - 3 - len(ending)) + ending
    return {
        "all ones": torch.ones(1, length, dtype=torch.long),
        "1^3 0^n (10)^20": torch.tensor([mostly_zeros]),
        "random": task.sample(1, length, torch.Generator().manual_seed(9000 + seed)),
    }


@torch.no_grad()
def shown(model: RationalTransductor, task: Task, words: Tensor) -> dict[str, Any]:
    """Run a model on words and return its mistakes, and the least gap between the right logit and the best rival."""
    device = next(model.parameters()).device
    began = time.perf_counter()
    logits = model(words.to(device)).double().cpu()
    labels = task.truth(words)
    mistakes = int((logits.argmax(-1) != labels).sum())
    right = logits.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    rival = logits.scatter(-1, labels.unsqueeze(-1), -math.inf).amax(-1)
    return {
        "labels": words.numel(),
        "mistakes": mistakes,
        "least_gap": number(float((right - rival).min())),
        "seconds": round(time.perf_counter() - began, 2),
    }


def trained(name: str, kind: str, seed: int) -> dict[str, Any]:
    """Train, harden, narrow and bound one model, and save it."""
    task, began = task_named(TASKS[name]), time.perf_counter()
    model = built(task, kind, seed)
    points = train(model, task, TrainingSettings(steps=STEPS, seed=seed))
    run: dict[str, Any] = {"task": name, "kind": kind, "seed": seed, "trained": {"accuracy": points[-1].accuracy}}
    run["trained"]["seconds"] = round(time.perf_counter() - began, 1)
    try:
        hardened = harden(model)
    except NoMachineNearby as error:
        return run | {"failed": f"not hardened: {error}"}
    run["hardened"] = {
        "states": hardened.extraction.machine.states,
        "accuracy": accuracies(hardened.model, task, seed),
        "bound": bounded(hardened.model, task),
        "long": {
            which: shown(hardened.model, task, words)
            for which, words in inputs(task, BEFORE_LENGTH, seed).items()
            if which != "random"
        },
    }
    began = time.perf_counter()
    narrowed, before = hardened.model, None
    # Once more where the bound does not yet hold: it says itself whether attention is narrow enough.
    for round_number in range(1, ROUNDS + 1):
        settings = TrainingSettings(steps=NARROWING_STEPS, learning_rate=1e-3, seed=1000 * round_number + seed)
        outcome = narrow_attention(narrowed, task, settings=settings)
        narrowed, before = outcome.model, outcome.before if before is None else before
        bound = bounded(narrowed, task)
        if bound["holds_for_all_lengths_with_exact_averages"]:
            break
    run["narrowed"] = {
        "steps": round_number * NARROWING_STEPS,
        "seconds": round(time.perf_counter() - began, 1),
        "penalty_before": number(before),
        "penalty_after": number(outcome.after),
        "accuracy": accuracies(narrowed, task, seed),
        "bound": bound,
        "curve": curve(narrowed, task),
    }
    save(narrowed, FOLDER / f"{name}_{kind}_{seed}")
    return run


def bounded_again(name: str, kind: str, seed: int) -> dict[str, Any]:
    """Return bound and curve of a saved model, as the code is now."""
    task, model = task_named(TASKS[name]), load(FOLDER / f"{name}_{kind}_{seed}").eval()
    assert isinstance(model, RationalTransductor)
    return {"bound": bounded(model, task), "curve": curve(model, task)}


def written(path: Path, value: Any) -> None:
    write_atomically(path, (json.dumps(value, indent=1, allow_nan=False) + "\n").encode())


def judged(name: str, kind: str, seed: int, device: str) -> dict[str, Any]:
    """Run a saved model on 100 000 tokens, three inputs."""
    task = task_named(TASKS[name])
    model = load(FOLDER / f"{name}_{kind}_{seed}").to(device).eval()
    assert isinstance(model, RationalTransductor)
    return {which: shown(model, task, words) for which, words in inputs(task, LONG, seed).items()}


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how many runs are certified, and mean, least and largest numbers of those that were narrowed."""
    narrowed = [run for run in runs if "narrowed" in run]
    bounds = [run["narrowed"]["bound"] for run in narrowed]
    gaps = [bound["gap"] for bound in bounds if bound["gap"] is not None]
    lengths = [bound["float_length"] for bound in bounds if bound["float_length"] is not None]
    long = [outcome for run in narrowed for outcome in run.get("long", {}).get("inputs", {}).values()]

    def spread(values: list[float]) -> dict[str, float] | None:
        return {"mean": statistics.fmean(values), "min": min(values), "max": max(values)} if values else None

    return {
        "runs": len(runs),
        "failed": sum("failed" in run for run in runs),
        "certified_with_exact_averages": sum(b["holds_for_all_lengths_with_exact_averages"] for b in bounds),
        "proved_for_all_lengths": sum(bound["proved_for_all_lengths"] for bound in bounds),
        "certified_before_narrowing": sum(
            run["hardened"]["bound"]["holds_for_all_lengths_with_exact_averages"] for run in narrowed
        ),
        "wrong_at_20000_before_narrowing": sum(
            any(outcome["mistakes"] for outcome in run["hardened"]["long"].values()) for run in narrowed
        ),
        "gap": spread(gaps),
        "float_length": spread(lengths),
        "accuracy_at_500_before": spread([run["hardened"]["accuracy"]["500"] for run in narrowed]),
        "accuracy_at_500_after": spread([run["narrowed"]["accuracy"]["500"] for run in narrowed]),
        "labels_at_100000": sum(outcome["labels"] for outcome in long),
        "mistakes_at_100000": sum(outcome["mistakes"] for outcome in long),
        "least_gap_at_100000": min((outcome["least_gap"] for outcome in long), default=None),
        "seconds_to_certify": spread([bound["seconds"] for bound in bounds]),
    }


def draw(runs: list[dict[str, Any]], path: Path) -> None:
    """Draw the certified gap in float32 over the length, beside the least gap that the models show at 100 000."""
    figure, axes = plt.subplots(1, len(TASKS), figsize=(9, 3.2), sharey=True, layout="constrained")
    for axis, name in zip(axes, TASKS, strict=True):
        for kind, colour in (("full", "#2563eb"), ("window", "#d97706")):
            label = {"full": "full attention", "window": "window of 16, rotary"}[kind]
            for run in runs:
                if (run["task"], run["kind"]) != (name, kind) or "narrowed" not in run:
                    continue
                heights = [math.nan if gap is None else gap for gap in run["narrowed"]["curve"]]
                axis.plot(CURVE, heights, color=colour, lw=1.2, label=label)
                label = None
                if run["narrowed"]["bound"]["float_length"]:
                    axis.plot(run["narrowed"]["bound"]["float_length"], 0, "o", color=colour, ms=4)
                for outcome in run.get("long", {}).get("inputs", {}).values():
                    axis.plot(LONG, outcome["least_gap"], "x", color=colour, ms=4)
        axis.set(xscale="log", xlabel="length of the word", title={"mod5": "mod 5", "parity": "parity"}[name])
        axis.axhline(0, color="0.4", lw=0.8)
        axis.set_ylim(bottom=-0.2)
    axes[0].set_ylabel("gap of the right label")
    axes[0].plot([], [], "x", color="0.4", label="least gap shown by the models")
    axes[0].plot([], [], "o", color="0.4", ms=4, label="length that is named")
    axes[0].legend(loc="lower left", fontsize=8)
    save_figure(figure, path)


def report() -> None:
    runs = []
    for name, kind, seed in names():
        path = FOLDER / f"{name}_{kind}_{seed}.json"
        if path.exists():
            runs.append(json.loads(path.read_text()))
    outcome = {
        f"{name}, {kind}": summary([run for run in runs if (run["task"], run["kind"]) == (name, kind)])
        for kind in KINDS
        for name in TASKS
    }
    settings = {"steps": STEPS, "narrowing_steps": NARROWING_STEPS, "lengths_of_the_curve": list(CURVE), "long": LONG}
    path = FOLDER.with_suffix(".json")
    Record("certified_attention", settings, {"summary": outcome, "runs": runs}, environment()).write(path)
    draw(runs, FOLDER.with_suffix(".png"))
    print(json.dumps(outcome, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("train", "bound", "judge", "report"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", default="", help="part of a name such as mod5_full_0")
    arguments = parser.parse_args()
    if arguments.what == "report":
        return report()
    for name, kind, seed in names():
        full_name = f"{name}_{kind}_{seed}"
        path = FOLDER / f"{full_name}.json"
        if arguments.only not in full_name:
            continue
        if arguments.what == "train":
            run = trained(name, kind, seed)
        else:
            run = json.loads(path.read_text())
            if "failed" in run:
                continue
        if arguments.what == "bound":
            run["narrowed"] |= bounded_again(name, kind, seed)
        elif arguments.what == "judge":
            here = torch.cuda.get_device_name() if arguments.device == "cuda" else environment()["processor"]
            run["long"] = {"device": here, "inputs": judged(name, kind, seed, arguments.device)}
        written(path, run)
        kept = run.get("long") if arguments.what == "judge" else run.get("narrowed", run)
        print(full_name, json.dumps(kept), flush=True)
    return None


if __name__ == "__main__":
    main()
