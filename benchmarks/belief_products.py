"""How near to Bayes can a product of small beliefs be at all, when five things change places?

Bayes' belief is over 120 orders.  A product of beliefs about the place of one thing each has the form ``q(order) ∝
Π_i u_i(place of i)``; one of beliefs about two things ``Π_{i<j} u_ij(places of i and j)``.  At every position of drawn
words the product of that form nearest to Bayes' belief is sought (a convex problem: the one with his marginals),
whatever filter would have to find it.  Its excess, a Kullback–Leibler divergence over his entropy as in the studies, is
a floor for every product of that form, learned or not.

Writes ``benchmarks/results/belief_products.json`` and prints the table.  Usage: ``python benchmarks/belief_products.py
[--words 6] [--output FOLDER]``.
"""

from __future__ import annotations

import argparse
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transductor.results import Record
from transductor.tasks import HiddenSwaps

RESULTS = Path(__file__).parent / "results"
LENGTH = 40
TASKS = (
    HiddenSwaps(),
    HiddenSwaps(shown=0.5),
    HiddenSwaps(hidden=0.03),
    HiddenSwaps(things=3),
    HiddenSwaps(things=4),
)


def features(orders: Tensor, together: int) -> Tensor:
    """Return which things are at which places, ``together`` at a time, in every order: ``(orders, F)`` of 0 and 1."""
    count = orders.shape[1]
    columns = []
    for places in combinations(range(count), together):
        code = torch.zeros(len(orders), dtype=torch.long)
        for place in places:
            code = code * count + orders[:, place]
        columns.append(torch.nn.functional.one_hot(code, count**together))
    every = torch.cat(columns, 1)
    return every[:, every.any(0)].double()


def divergence(right: Tensor, weights: Tensor, shown: Tensor) -> Tensor:
    """Return ``KL(right ‖ q)`` of every row, with ``q`` the softmax of the weighted features."""
    said = torch.log_softmax(weights @ shown.mT, -1)
    return (torch.special.xlogy(right, right) - right * said).sum(-1)


def nearest(right: Tensor, shown: Tensor, rounds: int = 200) -> tuple[Tensor, float]:
    """Return the least divergence of every row, and the largest gap of a marginal, by damped Newton steps."""
    weights = torch.zeros(len(right), shown.shape[1], dtype=torch.float64)
    damping = torch.full((len(right), 1, 1), 1e-3, dtype=torch.float64)
    least, wanted, eye = divergence(right, weights, shown), right @ shown, torch.eye(shown.shape[1]).double()
    for _ in range(rounds):
        said = torch.softmax(weights @ shown.mT, -1)
        mean = said @ shown
        gap = wanted - mean
        if float(gap.abs().max()) < 1e-7:
            break
        curvature = (said.unsqueeze(-1) * shown).mT @ shown - mean.unsqueeze(-1) * mean.unsqueeze(-2)
        step = torch.linalg.solve(curvature + damping * eye, gap)
        tried = weights + step
        after = divergence(right, tried, shown)
        better = after <= least
        weights, least = tried.where(better[:, None], weights), after.where(better, least)
        damping = (damping * torch.where(better, 0.2, 10.0)[:, None, None]).clamp(1e-12, 1e3)
    return least, float(gap.abs().max())


def main() -> None:
    """Write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--words", type=int, default=6)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    entries: list[dict[str, Any]] = []
    for task in TASKS:
        tokens, _ = task.drawn(options.words, LENGTH, torch.Generator().manual_seed(7))
        right = task.posterior(tokens).flatten(0, 1)
        entropy = -torch.special.xlogy(right, right).sum(-1)
        for together in (1, 2):
            if together >= task.things:
                continue
            least, gap = nearest(right, features(task.orders(), together))
            entries.append(
                {
                    "things": task.things,
                    "shown": task.shown,
                    "hidden": task.hidden,
                    "noise": task.noise,
                    "together": together,
                    "positions": len(right),
                    "entropy": float(entropy.mean()),
                    "excess": float(least.sum() / entropy.sum()),
                    "largest_gap": gap,
                }
            )
            print(entries[-1], flush=True)
    settings = {"words": options.words, "length": LENGTH, "seed": 7}
    Record("belief_products", settings, {"entries": entries}).write(options.output / "belief_products.json")


if __name__ == "__main__":
    main()
