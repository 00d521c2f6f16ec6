"""Which orthogonal family should be the default?  Six of them learn parity and mod-5 counting, five seeds each.

Training and backbone are the demo's; only the head's family changes.  Runs are spread over all cores.  Writes
``results/orthogonal_families.json`` and ``.png``, and prints the table.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from rich.console import Console
from rich.progress import track
from rich.table import Table

from transductor.report.style import save_figure, spread
from transductor.results import Record
from transductor.studies import DemoStudy, run_demo
from transductor.tasks import ModularCounting

RESULTS = Path(__file__).parent / "results"
FAMILIES = ["cayley", "exponential", "householder", "signed_cayley", "squared_cayley", "orthogonal"]
MODULI = [2, 5]
LENGTHS = (50, 500, 2000)


def one_run(job):
    family, modulus, seed, steps = job
    study = DemoStudy(task=ModularCounting(modulus), family=family, lengths=LENGTHS, seeds=(seed,), evaluation_batch=32)
    study = replace(study, training=replace(study.training, steps=steps))
    record, _ = run_demo(study, models=("transductor",))
    (run,) = record.measurements["models"]["transductor"]["runs"]
    solved = next((point["step"] for point in run["training"] if point["accuracy"] == 1), None)
    return {
        "family": family,
        "modulus": modulus,
        "seed": seed,
        "first_perfect_batch": solved,
        "accuracy": {str(entry["length"]): entry["every_position"] for entry in run["lengths"]},
        "adversarial": run["adversarial"],
    }


def figure(runs, path):
    drawing, axes = plt.subplots(1, len(MODULI), figsize=(9, 3.6), sharey=True, layout="constrained")
    for axis, modulus in zip(axes, MODULI, strict=True):
        for place, family in enumerate(FAMILIES):
            chosen = [run for run in runs if (run["family"], run["modulus"]) == (family, modulus)]
            for offset, (name, colour, value) in enumerate(
                [
                    ("random, L = 500", "#1f5fbf", lambda run: run["accuracy"]["500"]),
                    ("random, L = 2000", "#7aa6e0", lambda run: run["accuracy"]["2000"]),
                    ("worst adversarial, L = 2000", "#d1495b", lambda run: min(run["adversarial"].values())),
                ]
            ):
                label = name if place == 0 else None
                spots = [place + 0.22 * (offset - 1)] * len(chosen)
                axis.plot(spots, [value(run) for run in chosen], "o", color=colour, ms=5, alpha=0.7, label=label)
        axis.axhline(1 / modulus, color="0.6", lw=1, ls=":")
        axis.set_xticks(range(len(FAMILIES)), [family.replace("_", "\n") for family in FAMILIES], fontsize=8)
        axis.set_title("parity" if modulus == 2 else f"mod {modulus}", fontsize=11)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set(ylabel="accuracy, one dot per seed", ylim=(0, 1.04))
    axes[0].legend(frameon=False, fontsize=8, loc="lower left")
    return save_figure(drawing, path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    jobs = [(family, k, seed, options.steps) for k in MODULI for family in FAMILIES for seed in range(options.seeds)]
    console = Console()
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        runs = list(track(pool.map(one_run, jobs), "training", total=len(jobs), console=console))
    table = Table(title=f"trained at length 50, {options.steps} steps: mean (min–max) of {options.seeds} seeds")
    columns = ("task", "family", "perfect batch by step", *(f"random L = {n}" for n in LENGTHS), "worst adversarial")
    for column in columns:
        table.add_column(column)
    for modulus in MODULI:
        for family in FAMILIES:
            chosen = [run for run in runs if (run["family"], run["modulus"]) == (family, modulus)]
            steps = [run["first_perfect_batch"] for run in chosen if run["first_perfect_batch"]]
            solved = f"{len(steps)}/{len(chosen)} seeds" + (f", {min(steps)}–{max(steps)}" if steps else "")
            cells = [spread([run["accuracy"][str(length)] for run in chosen]) for length in LENGTHS]
            worst = spread([min(run["adversarial"].values()) for run in chosen])
            table.add_row(f"mod {modulus}", family, solved, *cells, worst)
    console.print(table)
    settings = {
        "steps": options.steps,
        "seeds": options.seeds,
        "lengths": list(LENGTHS),
        "adversarial_length": max(LENGTHS),
    }
    record = Record("orthogonal_families", settings, {"runs": runs}).write(options.out / "orthogonal_families.json")
    console.print(f"written: {record}, {figure(runs, options.out / 'orthogonal_families.png')}", soft_wrap=True)


if __name__ == "__main__":
    main()
