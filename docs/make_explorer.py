"""Trains the models of the page that ``transductor explore`` writes without a model, and writes that page for the docs.

    python docs/make_explorer.py RUNS

trains what RUNS does not hold yet, with the seeds that stand here, and writes
``src/transductor/report/explorer/examples.json``.  About ten minutes on one thread.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from transductor.certification import certify
from transductor.extraction import NoMachineNearby, harden
from transductor.heads import HeadConfig
from transductor.model import ReadoutConfig, build, load, save
from transductor.portraits import Explored, explored_model, proof_of, write_explored
from transductor.report.explorer.examples import EXAMPLES
from transductor.studies import STUDIES
from transductor.studies.hardened_column import domain_of
from transductor.studies.running import seeded_model
from transductor.tasks import FlipFlop, task_named
from transductor.training import Trainer, TrainingSettings
from transductor.transitions import FamilySpec

SEED = 0
STEPS_TOO_FEW = 1000  # with 1 200 steps the same head is near the machine


def trained(folder: Path, arm_name: str) -> Any:
    """Return the model of an arm of the study ``state_tracking``, trained as there."""
    if not (folder / "config.json").exists():
        arm = {arm.name: arm for arm in STUDIES["state_tracking"].arms}[arm_name]
        trainer = Trainer(seeded_model(arm, SEED, "cpu"), arm.task, replace(arm.training, seed=SEED))
        trainer.run()
        save(trainer.model, folder)
    return load(folder)


def trained_too_little(folder: Path) -> Any:
    """Return a dense head for S3 that was not trained to the end."""
    task = task_named("group:S3:all")
    if not (folder / "config.json").exists():
        torch.manual_seed(SEED)
        family = FamilySpec("dense", {"vocab_size": task.vocab_size, "state_dim": 8})
        model = build(ReadoutConfig(HeadConfig("rational", family), task.output_size))
        Trainer(model, task, TrainingSettings(steps=STEPS_TOO_FEW, length=40, seed=SEED)).run()
        save(model, folder)
    return load(folder)


def with_proofs(model: Any, name: str, task_name: str, trained_length: int, note: str) -> Explored:
    """Return a model for the page, its hardened twin certified where there is one, on the words of its task."""
    task = task_named(task_name)
    machine, words, domain, proofs = task.automaton(), None, None, []
    assert machine is not None
    if isinstance(task, FlipFlop):  # whose letters may not follow each other in any order
        words = task.sample(2048, trained_length, torch.Generator().manual_seed(SEED + 1))
        domain = domain_of(words, task.vocab_size)
    try:
        hardened = harden(model, words=words).model
        proofs.append(proof_of(certify(hardened, against=machine, domain=domain), "the hardened twin"))
    except NoMachineNearby:
        pass
    return explored_model(
        model,
        name,
        against=machine,
        against_name=f"task:{task_name}",
        words=words,
        trained_length=trained_length,
        certificates=proofs,
        notes=[note],
    )


def main(runs: Path) -> None:
    """Train what is missing and write the examples."""
    torch.set_num_threads(1)
    from_study = "Trained as the arm {} of the study state_tracking, seed {}."
    models = [
        with_proofs(trained(runs / f"{arm}_seed{SEED}", arm), name, task, length, from_study.format(arm, SEED))
        for arm, name, task, length in (
            ("cycle_navigation", "positions on a cycle, mod 5", "cycle", 40),
            ("s5_two_generators", "S5, two generators", "group:S5:named", 40),
            ("flip_flop", "flip-flop", "flip_flop", 40),
        )
    ]
    models.append(
        with_proofs(
            trained_too_little(runs / f"dense_s3_{STEPS_TOO_FEW}"),
            "S3, a dense head that was not hardened",
            "group:S3:all",
            40,
            f"Trained for {STEPS_TOO_FEW:,} steps, seed {SEED}: too few for a machine to be near.",
        )
    )
    print(f"written: {write_explored(models, EXAMPLES)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
