"""Numbers of a minute each that the pages of the documentation cite: what scans, certificates and tables take.

One part for each page; ``python benchmarks/small_measurements.py`` measures all of them, names of parts only these, and
keeps the others of ``benchmarks/results/small_measurements.json``.  Times are the least of several, on one thread.
"""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import torch

from transductor import RationalHead, RationalReadout, load, save, scan
from transductor.automata import MooreMachine, regex, series_of_labels, write
from transductor.certification import certify, check_certificate
from transductor.certification.checker import check
from transductor.certification.rocq import write_rocq
from transductor.extraction import extract, harden
from transductor.extraction.hardening import machine_head
from transductor.portraits import portrait
from transductor.report.portrait import portrait_figure
from transductor.results import Record, environment, read_record
from transductor.studies import STUDIES
from transductor.tasks import task_named
from transductor.training import TrainingSettings, train
from transductor.transitions import (
    FAMILIES,
    DenseTransitions,
    OrthogonalTransitions,
)

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "benchmarks" / "results" / "small_measurements.json"
Numbers = dict[str, Any]


def seconds(act: Callable[[], Any], times: int = 3) -> float:
    """Return the least time of several, in seconds."""
    taken = []
    for _ in range(times):
        begin = time.perf_counter()
        act()
        taken.append(time.perf_counter() - begin)
    return float(f"{min(taken):.3g}")


def derivatives() -> Numbers:
    """Time second derivatives and tangents of a scan beside the reference loop, and a short scan (scan.md)."""
    torch.manual_seed(0)
    table = 0.3 * torch.randn(8, 16, 16)
    tokens, initial = torch.randint(8, (1, 8192)), torch.randn(1, 16)

    def twice(backend: str) -> None:
        matrices = table.clone().requires_grad_()
        states = scan(matrices, tokens, initial_state=initial, backend=backend)
        (first,) = torch.autograd.grad(states.square().sum(), matrices, create_graph=True)
        torch.autograd.grad(first.square().sum(), matrices)

    def tangent() -> None:
        moved = torch.ones_like(table)
        torch.func.jvp(lambda matrices: scan(matrices, tokens, initial_state=initial), (table,), (moved,))

    table /= torch.linalg.matrix_norm(table, 2).max()
    twice("auto"), tangent()  # compiled before they are timed
    short = tokens[:, :512]
    scan(table, short, initial_state=initial)
    return {
        "twice": seconds(lambda: twice("auto")),
        "twice by the loop": seconds(lambda: twice("reference"), 1),
        "tangent": seconds(tangent),
        "512 tokens": seconds(lambda: scan(table, short, initial_state=initial), 50),
    }


def trained_counter() -> Numbers:
    """Train the counter of the page on proofs, draw its portraits and measure what is said of it (certify.md)."""
    torch.manual_seed(0)
    task = task_named("counting:5")
    trained = RationalReadout(RationalHead(OrthogonalTransitions(vocab_size=2, state_dim=4)), 5)
    train(trained, task, TrainingSettings(steps=400, batch_size=32, length=50, learning_rate=1e-2))
    generator = torch.Generator().manual_seed(2)
    right = {}
    with torch.no_grad():
        for length, words in ((50, 1000), (1000, 1000)):
            tokens = task.sample(words, length, generator)
            right[str(length)] = float((trained(tokens).argmax(-1) == task.truth(tokens)).double().mean())
    certificate = certify(trained, against=task.automaton())
    extraction = extract(trained)
    hardened = harden(trained, extraction=extraction).model
    pictured = portrait(trained, against=task.automaton())
    assert pictured.drift is not None
    assert pictured.leak is not None
    for name, one in (("trained", pictured), ("hardened", portrait(hardened, against=task.automaton()))):
        portrait_figure(one, ROOT / "docs" / "figures" / f"certify_{name}.png")
    half_way = {}
    for name, curve in {"letter 0": pictured.drift.powers["0"], "random word": pictured.drift.median}.items():
        past = [at for at, far in zip(pictured.drift.lengths, curve, strict=True) if far > pictured.drift.limit]
        half_way[name] = past[0]
    million = task.sample(1, 1_000_000, generator)
    with torch.no_grad():
        return {
            "leak": max(pictured.leak.worst),
            "half-way": half_way,
            "right": right,
            "holds_up_to": certificate.holds_up_to,
            "word": len(certificate.word or ()),
            "apart": round(extraction.separation / extraction.spread, 1),
            "million letters": seconds(lambda: hardened(million)),
        }


def nearly_right() -> list[Numbers]:
    """Certify the counter of turns that are a little off (certify.md)."""
    angles = 2 * math.pi / 5 * torch.arange(5, dtype=torch.float64)
    corners = torch.stack((angles.cos(), angles.sin()), 1)
    counter = MooreMachine(np.array([[q, (q + 1) % 5] for q in range(5)]), np.arange(5))
    words = torch.randint(0, 2, (1000, 50), generator=torch.Generator().manual_seed(0))
    table = []
    for error in (1e-2, 1e-3, 1e-4, 0.0):
        head = RationalHead(DenseTransitions(state_dim=2, vocab_size=2)).double()
        angle = torch.tensor(2 * math.pi / 5 + error, dtype=torch.float64)
        turn = torch.stack((angle.cos(), -angle.sin(), angle.sin(), angle.cos()))
        with torch.no_grad():
            head.transitions.source.raw.copy_(torch.stack((torch.eye(2).flatten().double(), turn)))
            head.raw_initial_state.copy_(corners[0])
            perfect = torch.equal((head(words) @ corners.T).argmax(-1), counter.labels(words))
        certificate = certify(head, corners, against=counter)
        with tempfile.TemporaryDirectory() as folder:
            path = certificate.write(Path(folder) / "certificate.json")
            table.append(
                {
                    "error": error,
                    "perfect": perfect,
                    "holds_up_to": certificate.holds_up_to,
                    "word": len(certificate.word or ()),
                    "seconds": seconds(lambda head=head: certify(head, corners, against=counter)),
                    "check": seconds(lambda path=path, head=head: check_certificate(path, (head, corners))),
                }
            )
    return table


def checks() -> Numbers:
    """Time the independent checker on the committed certificates of seed 0 (checker.md)."""
    taken = {}
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted((ROOT / "results" / "certificates").glob("*/*/seed0.json.gz")):
            study, arm_name = path.parts[-3:-1]
            (arm,) = (arm for arm in STUDIES[study].arms if arm.name == arm_name)
            machine = arm.task.automaton()
            series = series_of_labels(machine, [*map(str, range(machine.letters))])
            specification = write(series, Path(folder) / f"{study}_{arm_name}.json")
            model = ROOT / "results" / "hardened" / study / arm_name / "seed0"
            taken[f"{study}/{arm_name}"] = seconds(lambda: check(path, model, specification), 2)  # noqa: B023
    return taken


def tables() -> Numbers:
    """Time the matrices of all tokens of GPT-2 and their gradient, family by family (sidecar.md)."""
    taken = {}
    for name in ("cayley", "signed_cayley", "householder", "stochastic", "shared_basis", "diagonal"):
        torch.manual_seed(0)
        family = FAMILIES[name](vocab_size=50257, state_dim=32)

        def step(family=family) -> None:
            family.table().square().sum().backward()

        step()
        taken[name] = seconds(step, 2)
    return taken


def rocq() -> Numbers:
    """Give certificates of exact heads to Rocq (proofs.md)."""
    if shutil.which("coqc") is None:
        raise SystemExit("coqc is not installed: make proofs installs it")
    subprocess.run(["make", "-C", ROOT / "proofs", "clean"], check=True, capture_output=True)
    built = processor_seconds(["make", "-C", str(ROOT / "proofs"), "library"], ROOT)

    def group(kept: Callable[[tuple[int, ...]], bool], letters: list[tuple[int, ...]] | None) -> MooreMachine:
        elements = [one for one in permutations(range(5)) if kept(one)]
        numbers = {one: number for number, one in enumerate(elements)}
        rows = [[numbers[tuple(g[k] for k in one)] for g in letters or elements] for one in elements]
        return MooreMachine(np.array(rows), np.arange(len(rows)))

    def even(one: tuple[int, ...]) -> bool:
        return sum(one[i] > one[j] for i in range(5) for j in range(i, 5)) % 2 == 0

    cycle = (1, 2, 3, 4, 0)
    machines = {
        "parity": task_named("parity").automaton(),
        "mod 5": task_named("counting:5").automaton(),
        "(a|b)*abb": MooreMachine.from_dfa(regex("(a|b)*abb", "ab")),
        "A5": group(even, [(1, 2, 0, 3, 4), cycle]),
        "S5": group(lambda one: True, [(1, 0, 2, 3, 4), cycle]),
        "S5, every element a letter": group(lambda one: True, None),
    }
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, machine in machines.items():
            labels = torch.tensor(machine.outputs)
            model = RationalReadout(machine_head(machine), int(labels.max()) + 1)
            with torch.no_grad():
                model.readout.weight.copy_(torch.nn.functional.one_hot(labels).T)
                model.readout.bias.zero_()
            model = load(save(model, Path(folder) / name))
            proof = certify(model, against=machine)
            path = write_rocq(proof, Path(folder) / "certificate.v", model_sha256="0" * 64)
            command = ["coqc", "-q", "-Q", str(ROOT / "proofs"), "Transductor", path.name]
            row = {"machine": name, "states": len(machine.outputs), "letters": machine.letters}
            rows.append({**row, "bytes": path.stat().st_size, "seconds": processor_seconds(command, Path(folder))})
    return {"library": built, "table": rows}


def processor_seconds(command: list[str], folder: Path) -> float:
    """Return the processor time of a command."""
    said = subprocess.run(
        ["bash", "-c", 'TIMEFORMAT=%U; time "$@" > /dev/null', "time", *command],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    )
    return float(said.stderr.strip().splitlines()[-1])


PARTS = {
    "derivatives": derivatives,
    "trained counter": trained_counter,
    "nearly right": nearly_right,
    "checks": checks,
    "tables": tables,
    "rocq": rocq,
}


def main() -> None:
    """Measure the parts that are named, or all, and write the record."""
    torch.set_num_threads(1)
    measurements = dict(read_record(RESULT).measurements) if RESULT.exists() else {}
    for name in sys.argv[1:] or PARTS:
        measurements[name] = PARTS[name]()
        print(name, measurements[name], flush=True)
        Record("small_measurements", {"threads": 1}, measurements, environment()).write(RESULT)


if __name__ == "__main__":
    main()
