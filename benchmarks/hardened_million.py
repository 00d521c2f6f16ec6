"""Judge hardened models on a million tokens: every seed, random and adversarial inputs.

Reads the trained models that ``transductor reproduce`` left in a folder, hardens them again, and writes
``benchmarks/results/hardened_million.json``.  Usage: ``python benchmarks/hardened_million.py [FOLDER]``.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from transductor.model import load
from transductor.results import Record, environment
from transductor.studies import STUDIES, Arm, Probe, Study
from transductor.studies.hardened_column import hardened_column
from transductor.studies.running import model_path

TASKS = (
    ("regular_gap", "transductor_ours"),
    ("long_addition", "transductor_ours"),
    ("state_tracking", "parity"),
    ("state_tracking", "c6"),
    ("state_tracking", "a5_two_generators"),
    ("state_tracking", "s5_two_generators"),
)
LENGTH = 1_000_000
PROBES = (Probe(LENGTH, 1), Probe(LENGTH, 1, family="every"))


def judged(study: Study, arm: Arm, seed: int, folder: Path) -> dict[str, Any]:
    """Harden and judge one model."""
    model = load(model_path(folder, study.name, arm.name, seed))
    scratch = Path("runs/hardened_million/certificate.json")
    column = hardened_column(model, replace(arm, probes=PROBES), seed, scratch)
    entries = column["hardened"] or []
    return {
        "seed": seed,
        "states": column["hardening"].get("states"),
        "verdict": (column["hardening"].get("certificate") or {}).get("verdict"),
        "labels": sum(entry["labels"] for entry in entries),
        "mistakes": {entry["input"]: entry["mistakes"] for entry in entries},
    }


def main() -> None:
    """Judge all models, one after the other."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "results")
    began = time.perf_counter()
    outcome: dict[str, Any] = {}
    for study_name, arm_name in TASKS:
        study = STUDIES[study_name]
        arm = next(arm for arm in study.arms if arm.name == arm_name)
        runs = []
        for seed in study.seeds:
            runs.append(judged(study, arm, seed, folder))
            print(study_name, arm_name, runs[-1], flush=True)
        outcome[f"{study_name}/{arm_name}"] = runs
    here = {**environment(), "seconds": round(time.perf_counter() - began, 1)}
    settings = {"length": LENGTH, "models": [list(task) for task in TASKS]}
    print(Record("hardened_million", settings, outcome, here).write("benchmarks/results/hardened_million.json"))


if __name__ == "__main__":
    main()
