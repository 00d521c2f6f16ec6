"""Does the filter miss its goal for want of words?  The automaton with vague readings, with more words a batch.

``tracking_wide`` has the filter 1.1 % above Bayes there, with 64 words a batch, as much on the trained length as
beyond.
Here everything is as there but the words of a batch; the rate is 0.1, which every search for the filter's rate has
chosen so far, and no other is tried.  Five seeds, trained as one job, judged on the study's own inputs.

Usage: ``python benchmarks/filter_words.py [--words N] [--steps N]``, which writes ``results/filter_words.json``.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

from transductor.configuration import to_plain
from transductor.results import Record, environment
from transductor.studies import STUDIES
from transductor.studies.judging import judge_arm
from transductor.studies.running import seeded_model
from transductor.training import train_together

RESULT = Path(__file__).parent / "results" / "filter_words.json"
ARM = "filter_on_8_slow_vague"
SEEDS = (0, 1, 2, 3, 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--words", type=int, default=256)
    parser.add_argument("--steps", type=int)
    arguments = parser.parse_args()
    (arm,) = (each for each in STUDIES["tracking_wide"].arms if each.name == ARM)
    steps = arguments.steps or arm.training.steps
    training = replace(arm.training, batch_size=arguments.words, learning_rate=0.1, steps=steps)
    models = [seeded_model(arm, seed, "cpu") for seed in SEEDS]
    began = time.perf_counter()
    train_together(models, arm.task, training, SEEDS)
    seconds = round(time.perf_counter() - began, 1)
    runs = [
        {
            "seed": seed,
            "parameters": model.parameter_count(),
            "judged": [
                {key: entry[key] for key in ("length", "sequences", "excess", "least_loss")}
                for entry in judge_arm(model, arm, seed)
            ],
        }
        for seed, model in zip(SEEDS, models, strict=True)
    ]
    for run in runs:
        print(run["seed"], [round(100 * entry["excess"], 3) for entry in run["judged"]], flush=True)
    if arguments.steps is None:
        settings = {"arm": ARM, "model": to_plain(arm.model), "training": to_plain(training), "seeds": list(SEEDS)}
        Record("filter_words", settings, {"seconds": seconds, "runs": runs}, environment()).write(RESULT)


if __name__ == "__main__":
    main()
