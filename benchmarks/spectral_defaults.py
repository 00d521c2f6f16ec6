"""Measure what the default learner makes of 20 000 strings, on 24 random probabilistic automata.

Machines have 10 to 40 states over 4 to 20 letters (``random_probabilistic``); every other one is sparse (concentration
0.02, nearly deterministic), the others are dense (0.1).  Perplexity is that of 10 000 fresh strings, relative to the
machine itself.  Beside ``SpectralLearner()`` stand a trigram model with Witten–Bell smoothing and EM of the true number
of states from a random start (100 steps, relaxed like ours, a background of weight 0.001).

Writes ``benchmarks/results/spectral_defaults.json`` and ``spectral_defaults.png``.  Usage:
``python benchmarks/spectral_defaults.py [--machines 24] [--jobs 1] [--output FOLDER]``; with ``--draw`` only the figure
is drawn again, from the record that is there.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections import defaultdict
from collections.abc import Hashable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from joblib import Parallel, delayed

from transductor.automata import RankWarning, SpectralLearner, WeightedAutomaton
from transductor.automata.probabilistic import perplexity, random_probabilistic, sampled, smoothed, unigram
from transductor.automata.spectral.expectation import PrefixTree, em_step, random_start
from transductor.results import Record, read_record

STRINGS, FRESH, EM_STEPS = 20_000, 10_000, 100
MODELS = ("default", "trigram", "em")
Strings = Sequence[Sequence[Hashable]]


def machine(number: int) -> tuple[WeightedAutomaton, dict[str, Any]]:
    """Return a random machine and what it was drawn with."""
    random = np.random.default_rng(1000 + number)
    states, letters = int(random.integers(10, 41)), int(random.integers(4, 21))
    concentration = (0.02, 0.1)[number % 2]
    drawn = random_probabilistic(states, range(letters), number, concentration=concentration)
    return drawn, {"machine": number, "states": states, "letters": letters, "concentration": concentration}


def trigram_perplexity(train: Strings, test: Strings, letters: int) -> float:
    """Return the perplexity of a trigram model with Witten–Bell smoothing; letter ``letters`` is the end."""
    counts: dict[tuple[int, ...], dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for string in train:
        padded = [-1, -1, *string, letters]
        for place in range(2, len(padded)):
            for order in range(3):
                counts[tuple(padded[place - order : place])][padded[place]] += 1
    totals = {context: sum(following.values()) for context, following in counts.items()}

    def probability(context: tuple[int, ...], letter: int) -> float:
        shorter = probability(context[1:], letter) if context else 1 / (letters + 1)
        if context not in totals:
            return shorter
        kinds = len(counts[context])
        return (counts[context].get(letter, 0) + kinds * shorter) / (totals[context] + kinds)

    total, symbols = 0.0, 0
    for string in test:
        padded = [-1, -1, *string, letters]
        total += sum(math.log(probability(tuple(padded[n - 2 : n]), padded[n])) for n in range(2, len(padded)))
        symbols += len(string) + 1
    return math.exp(-total / symbols)


def em_of_true_size(train: Strings, truth: WeightedAutomaton) -> WeightedAutomaton:
    """Return the machine that EM reaches from a random start of the true number of states."""
    mean_length = sum(map(len, train)) / len(train)
    learned = random_start(truth.alphabet, truth.dim, 0, mean_length)
    tree = PrefixTree.of(train, truth.alphabet)
    for _ in range(EM_STEPS):
        learned, _ = em_step(learned, tree, relaxation=1.8)
    return learned


def measured(number: int) -> dict[str, Any]:
    """Learn one machine in all ways and return what it took and how far each is from the truth."""
    truth, row = machine(number)
    train, test = sampled(truth, STRINGS, seed=10_000 + number), sampled(truth, FRESH, seed=20_000 + number)
    true = perplexity(truth, test)
    background = unigram(truth.alphabet, train)
    row |= {
        "true_perplexity": true,
        "letters_alone": smoothed(truth, weight=1.0, background=background).perplexity(test),
    }
    begun = time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RankWarning)
        learner = SpectralLearner(alphabet=truth.alphabet).fit(train)
    row["default_seconds"] = time.process_time() - begun
    row["default_warning"] = "; ".join(str(each.message) for each in caught)
    row |= {
        "default": learner.perplexity(test),
        "default_states": learner.rank_,
        "default_refined": learner.learned_.refined,
    }
    row["trigram"] = trigram_perplexity(train, test, len(truth.alphabet))  # type: ignore[arg-type]
    begun = time.process_time()
    row["em"] = smoothed(em_of_true_size(train, truth), weight=1e-3, background=background).perplexity(test)
    row["em_seconds"] = time.process_time() - begun
    row |= {f"{name}_above": row[name] / true - 1 for name in (*MODELS, "letters_alone")}
    print(
        f"machine {number:2}: {row['states']} states, {row['letters']} letters, {row['concentration']}: "
        + ", ".join(f"{name} {100 * row[f'{name}_above']:.2f} %" for name in (*MODELS, "letters_alone"))
        + f" ({row['default_seconds']:.0f} s)",
        flush=True,
    )
    return row


def drawn(rows: list[dict[str, Any]], path: Path) -> Path:
    """Draw how far each model is above the true perplexity, machine by machine, sorted by the default learner."""
    ordered = sorted(rows, key=lambda row: row["default_above"])
    figure, panel = plt.subplots(figsize=(9, 4.5), layout="constrained")
    labels = {
        "default": "default learner",
        "trigram": "trigram, Witten–Bell",
        "em": "EM, true size",
        "letters_alone": "letters alone",
    }
    for name, marker in zip(labels, "osx.", strict=True):
        panel.plot([100 * row[f"{name}_above"] for row in ordered], marker, label=labels[name])
    panel.axhline(1, color="grey", linewidth=0.8, linestyle="--")
    names = [
        f"{row['machine']}: {row['states']} × {row['letters']}, {'sparse' if row['concentration'] < 0.1 else 'dense'}"
        for row in ordered
    ]
    panel.set(yscale="log", xlabel="machine: states × letters", ylabel="perplexity above the true one, %")
    panel.set_xticks(range(len(names)), names, rotation=60, ha="right", rotation_mode="anchor", fontsize="small")
    panel.legend(frameon=False)
    figure.savefig(path, dpi=150)
    return path


def main() -> None:
    """Measure all machines, print a row for each, and write the record and its figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machines", type=int, default=24)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--draw", action="store_true", help="draw the record that is there")
    options = parser.parse_args()
    if options.draw:
        rows = read_record(options.output / "spectral_defaults.json").measurements["machines"]
        print(drawn(rows, options.output / "spectral_defaults.png"))
        return
    rows = list(Parallel(n_jobs=options.jobs)(delayed(measured)(number) for number in range(options.machines)))
    summary = {
        name: {"median": median(above), "worst": max(above)}
        for name in (*MODELS, "letters_alone")
        if (above := [row[f"{name}_above"] for row in rows])
    }
    for name, values in summary.items():
        print(f"{name:14} median {100 * values['median']:.2f} % above, worst {100 * values['worst']:.2f} %")
    settings = {"strings": STRINGS, "fresh": FRESH, "em_steps": EM_STEPS}
    record = Record("spectral_defaults", settings, {"summary": summary, "machines": rows})
    print(record.write(options.output / "spectral_defaults.json"))
    print(drawn(rows, options.output / "spectral_defaults.png"))


if __name__ == "__main__":
    main()
