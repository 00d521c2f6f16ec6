"""The distinguishability ratio of learned heads beside certified horizons.

Chung, Choi and Kim (arXiv 2605.07755) say of recurrences that track a group: states stay readable while the spread
within a class, which accumulates, is small beside the separation of the classes at the start; tracking collapses where
the ratio of the two crosses a threshold of the decoder, and this predicts where accuracy fails.  Their formulas were
not at hand; read here as follows, for a head with a linear readout:

* what is read is the readout's image of the state, its common part removed;
* the centroids are those of the classes on words of the trained length, M is the least distance of two of them;
* R(t) is the root mean square distance of what is read at position t from the centroid of its class; the ratio R(t)/M;
* the threshold is the least distance from a centroid to where the readout says another class, as a share of M.

``crossing`` is the first position where the ratio is above the threshold; beside it stand the position where less than
nine tenths of the labels are right, the first mistake among all words, and the length that ``certify`` holds up to.
The heads are those of ``state_tracking`` on parity, C6 and S3, trained again, five seeds.  A few minutes on one core.

Predicted before the run (known: five heads of parity after 300 of 1500 steps): the crossing and the position where
accuracy falls below nine tenths are within a factor of two of each other wherever both are there; every first mistake
is before the crossing; the certified length is below the first mistake on every head, by a factor of at least four.

Usage: ``python benchmarks/distinguishability.py [--steps N]``, which writes ``results/distinguishability.json``.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transductor.certification import certify
from transductor.results import Record, environment
from transductor.studies import STUDIES, Arm
from transductor.studies.running import seeded_model
from transductor.training import Trainer

RESULTS = Path(__file__).parent / "results"
TASKS = ("parity", "c6", "s3")
SEEDS = (0, 1, 2, 3, 4)
FARTHEST, WORDS = 20_000, 64


def read(model: Any, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """What is read of the states ``(B, T, K)``, and the logits."""
    logits = model(tokens).detach().double()
    return logits - logits.mean(-1, keepdim=True), logits


def measured(model: Any, arm: Arm, seed: int) -> dict[str, Any]:
    task, trained = arm.task, arm.training.length
    generator = torch.Generator().manual_seed(1_000_003 * (seed + 1))
    near = task.sample(1024, trained, generator)
    labels, (seen, _) = task.truth(near), read(model, near)
    classes = range(task.output_size)
    centroids = torch.stack([seen[labels == each].mean(0) for each in classes])
    apart = torch.cdist(centroids, centroids) + torch.eye(len(centroids)) * 1e9
    # In the space of logits the boundary between two classes is where their entries are equal.
    margins = (centroids.diagonal()[:, None] - centroids) / 2**0.5 + torch.eye(len(centroids)) * 1e9
    separation, threshold = float(apart.min()), float(margins.min() / apart.min())
    far = task.sample(WORDS, FARTHEST, generator)
    labels, (seen, logits) = task.truth(far), read(model, far)
    spread = (seen - centroids[labels]).square().sum(-1).mean(0).sqrt()
    ratio, right = spread / separation, (logits.argmax(-1) == labels).double()
    wrong = (right.min(0).values < 1).nonzero().flatten()
    below = (smoothed(right.mean(0)) < 0.9).nonzero().flatten()
    crossing = (ratio > threshold).nonzero().flatten()
    certificate = certify(model, against=task.automaton(), horizon=FARTHEST)
    shown = [1, trained, 4 * trained, 16 * trained, 64 * trained, FARTHEST]
    return {
        "separation": separation,
        "threshold": threshold,
        "ratio": {str(place): float(ratio[place - 1]) for place in shown if place <= FARTHEST},
        "crossing": first(crossing),
        "below nine tenths": first(below),
        "first mistake": first(wrong),
        "accuracy at the end": float(right[:, -1000:].mean()),
        "certificate": certificate.claim,
        "certified length": certificate.holds_up_to,
    }


def smoothed(shares: Tensor) -> Tensor:
    """Means over a window of 32 positions that ends at each one; the first ones over what there is."""
    sums = torch.nn.functional.pad(shares.cumsum(0), (1, 0))
    ends = torch.arange(1, len(shares) + 1)
    begins = (ends - 32).clamp_min(0)
    return (sums[ends] - sums[begins]) / (ends - begins)


def first(places: Tensor) -> int | None:
    """The first of some positions, counted from one; None if there is none."""
    return int(places[0]) + 1 if len(places) else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--tasks", default=",".join(TASKS))
    steps = (arguments := parser.parse_args()).steps
    arms = {arm.name: arm for arm in STUDIES["state_tracking"].arms}
    runs: dict[str, list[dict[str, Any]]] = {}
    for name in arguments.tasks.split(","):
        arm = arms[name]
        settings = replace(arm.training, steps=steps or arm.training.steps)
        for seed in SEEDS:
            trainer = Trainer(seeded_model(arm, seed, "cpu"), arm.task, replace(settings, seed=seed))
            trainer.run()
            runs.setdefault(name, []).append({"seed": seed, **measured(trainer.model.eval(), arm, seed)})
            print(name, seed, runs[name][-1], flush=True)
            if steps is None:
                values = {"farthest": FARTHEST, "words": WORDS}
                Record("distinguishability", values, {"runs": runs}, environment()).write(
                    RESULTS / "distinguishability.json"
                )


if __name__ == "__main__":
    main()
