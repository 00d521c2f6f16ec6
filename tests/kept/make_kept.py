"""Writes ``tests/kept/0.1.0``: files of every kind as release 0.1.0 (commit 237f19a) wrote them, and what they meant.

It ran once, with that release and on one thread, and does not run with later ones: its imports are those of then.  The
files are never made again; ``tests/test_kept_files.py`` compares what they mean today with what they meant.  A new
format gets a folder of its own beside 0.1.0, and a script of its own.

    OMP_NUM_THREADS=1 python -m tests.kept.make_kept
"""

from __future__ import annotations

import importlib
import os
import platform
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from tests.kept import machines, networks
from tests.kept.files import HERE, written

ROOMS = [
    "transductor",
    "transductor.automata",
    "transductor.automata.formats",
    "transductor.bridge",
    "transductor.configuration",
    "transductor.experiments",
    "transductor.heads",
    "transductor.injection",
    "transductor.integrations.export",
    "transductor.integrations.huggingface",
    "transductor.model",
    "transductor.recurrence",
    "transductor.report",
    "transductor.results",
    "transductor.tasks",
    "transductor.training",
    "transductor.training.distributed",
    "transductor.transitions",
]


def fingerprint() -> dict[str, Any]:
    """What bits of floats depend on; the test computes the same."""
    model = platform.processor() or platform.machine()
    information = Path("/proc/cpuinfo")
    if information.exists():
        first = information.read_text().split("\n\n")[0]
        pairs = (line.split(":", 1) for line in first.splitlines() if ":" in line)
        parts = {name.strip(): value.strip() for name, value in pairs}
        model = " ".join(parts.get(name, "") for name in ("model name", "cpu family", "model", "stepping"))
    return {
        "cpu": model,
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "numba": find_spec("numba") is not None,
    }


def make_public_names() -> None:
    lines = [f"{room} {name}" for room in ROOMS for name in sorted(importlib.import_module(room).__all__)]
    (HERE / "public_names.txt").write_text("\n".join(lines) + "\n")


def main() -> None:
    if HERE.exists():
        raise SystemExit(f"{HERE} exists: these files are never made again")
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    HERE.mkdir(parents=True)
    os.chdir(HERE)
    networks.make_models()
    networks.make_families()
    networks.make_heads()
    networks.make_sidecars()
    networks.make_native()
    networks.make_training()
    networks.make_study()
    machines.make_certificates()
    machines.make_automata()
    machines.make_portraits_and_records()
    machines.make_configurations()
    machines.make_extractions()
    machines.make_compilations()
    make_public_names()
    written(HERE / "machine.json", {**fingerprint(), "transformers": transformers.__version__})


if __name__ == "__main__":
    main()
