"""How many frozen features does parity need?  Cover's transition for words of 4 to 10 letters.

For each length L and dimension d near 2^L / 2, independent heads of uniform orthogonal matrices are drawn, and it is
decided, with a certificate for either answer, whether a hyperplane separates parity on all 2^L words.  Beside them,
matrices near the identity.  Writes ``results/cover_transition.json``; ``docs/make_theory.py`` draws the figure.
About five minutes on one core.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import math
from pathlib import Path

from rich.progress import track

from transductor.results import Record
from transductor.theory.random_features import separated_share
from transductor.theory.separability import cover_probability

RESULTS = Path(__file__).parent / "results"
# Distances of d from 2^L / 2 in units of √(2^L) / 2, the width of Cover's step.
PLACES = (-3.0, -2.0, -1.25, -0.75, -0.25, 0.25, 0.75, 1.25, 2.0, 3.0)
WIDE = (0.25, 0.375, 0.625, 0.75)  # and these fractions of 2^L
TRIALS = {4: 400, 5: 400, 6: 400, 7: 200, 8: 100, 9: 50, 10: 20}
NEAR_IDENTITY = {4: 100, 5: 100, 6: 100}
NEAR_IDENTITY_RATIOS = (0.25, 0.375, 0.5, 0.5625, 0.625, 0.6875, 0.75, 0.8125, 0.875, 1.0)


def dimensions(length):
    words = 2**length
    near = [round(words / 2 + place * math.sqrt(words) / 2) for place in PLACES]
    return sorted({d for d in (*near, *(round(ratio * words) for ratio in WIDE)) if 1 <= d <= words})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--longest", type=int, default=10, choices=TRIALS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    jobs = [("haar", n, d, trials) for n, trials in TRIALS.items() if n <= options.longest for d in dimensions(n)]
    jobs += [
        ("near_identity", n, round(ratio * 2**n), trials)
        for n, trials in NEAR_IDENTITY.items()
        if n <= options.longest
        for ratio in NEAR_IDENTITY_RATIOS
    ]
    points, undecided = [], []
    for features, length, dim, trials in track(jobs, "drawing"):
        place = {"features": features, "length": length, "dim": dim, "trials": trials}
        try:
            share = separated_share(features, dim, length, trials, options.seed)
        except ArithmeticError:  # one draw without a certificate for either answer: the point is left out, and said so
            undecided.append(place)
            continue
        points.append(place | {"separated": share, "cover": float(cover_probability(2**length, dim))})
    settings = {"seed": options.seed, "longest": options.longest}
    print(
        "written:",
        Record("cover_transition", settings, {"points": points, "undecided": undecided}).write(
            options.out / "cover_transition.json"
        ),
    )


if __name__ == "__main__":
    main()
