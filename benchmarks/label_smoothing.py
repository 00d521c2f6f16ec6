"""Does label smoothing make a learned head last?  One angle, counting modulo 5, with and without smoothing.

A head of one angle is trained on words of up to T letters, for every smoothing ε, trained length T, seed and readout;
all of them are one batch. The readout is *ideal* (the corners of the polygon, only their scale is learned) or *free*
(all its weights are learned). Three horizons stand beside each other: *predicted*, by descending the expected loss
from the same start, without drawing a word; *certified*, by the error bound on which ``certify`` rests; and *true*,
up to the first word of ones that is counted wrongly. Writes ``results/label_smoothing.json``; ``docs/make_theory.py``
draws the figure. About five minutes on one core.

Predicted before the first run, with the ideal readout: (1) without smoothing every head lasts at least T letters and
no more than a small multiple of T, because the loss is flat there; (2) with smoothing horizons are thousands of times
T; (3) certified horizons are below the true ones, by at most a factor of two. The run refuted (1): all 75 heads
reached an error of 0, with and without smoothing. The infimum is flat, but at the scale that a head has at any step
the loss is not. Predicted then, before the first run with the free readout: (4) there, where the corners need not
become regular, horizons without smoothing are at least T and a small multiple of T, in proportion to T; (5) with
smoothing every one of them is at least ten times as long. The run refuted (5): after 2000 steps the corners were not
yet regular with smoothing either. Predicted then, before the first run of ten times as many steps: (6) with ε of at
least 0.05 most horizons pass 100 000 letters, because the way to the minimum is exponential; (7) without smoothing
the median grows by less than a factor of three.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import itertools
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from rich.progress import track

from transductor.results import Record, read_record
from transductor.tasks import ModularCounting
from transductor.theory.generalisation import certified_horizon, turning_model

RESULTS = Path(__file__).parent / "results"
SMOOTHINGS = (0.0, 0.01, 0.05, 0.1, 0.2)
LENGTHS = (20, 40, 80)
PROTOCOLS = (("ideal", 2000), ("free", 2000), ("free", 20_000))  # readout and steps
FOLLOWED = 10**6  # horizons are counted up to here
CAP = 10**9  # and followed by their angles up to here


def losses(counts, angles, weights, biases, smoothings):
    """Cross-entropy with smoothing ``(heads, counts)`` of heads that turn by ``angles`` for every one they count."""
    turned = counts * angles[:, None]
    states = torch.stack((turned.cos(), turned.sin()), -1)
    logits = states @ weights.mT + biases[:, None]
    classes = logits.shape[-1]
    right = counts.long() % classes
    kept = logits.gather(-1, right[..., None])[..., 0]
    share = smoothings[:, None]
    return logits.logsumexp(-1) - (1 - share) * kept - share * logits.mean(-1)


def corners(modulus):
    turns = 2 * math.pi / modulus * torch.arange(modulus, dtype=torch.float64)
    return torch.stack((turns.cos(), turns.sin()), -1)


def shares_of_counts(longest, lengths):
    """Share ``(heads, longest + 1)`` of each count of ones among all prefixes of fair coins of these lengths."""
    rows = np.zeros((longest + 1, longest + 1))
    rows[0, 0] = 1
    for n in range(longest):
        rows[n + 1] = rows[n] / 2
        rows[n + 1, 1:] += rows[n, :-1] / 2
    return torch.from_numpy(np.stack([rows[1 : length + 1].mean(0) for length in lengths]))


def drawn_shares(words, lengths):
    """Share ``(heads, longest + 1)`` of each count of ones among all prefixes of these words, cut to these lengths.

    The loss at a prefix depends on its count alone, so the loss over counts is that over positions.
    """
    longest = words[0].shape[1]
    rows = []
    for tokens, length in zip(words, lengths, strict=True):
        counts = tokens[:, :length].cumsum(-1).flatten()
        rows.append(torch.bincount(counts, minlength=longest + 1) / counts.numel())
    return torch.stack(rows).double()


def trained(setting, steps, options, *, drawn):
    """Train all heads together on drawn words, or on the expected loss; return angles, readout weights and biases."""
    right = 2 * math.pi / options.modulus
    smoothings = torch.tensor([epsilon for _, epsilon, _, _ in setting], dtype=torch.float64)
    free = torch.tensor([readout == "free" for readout, _, _, _ in setting])[:, None, None]
    starts = [torch.Generator().manual_seed(seed) for _, _, _, seed in setting]
    angles = torch.stack([right + (torch.rand((), generator=g, dtype=torch.float64) - 0.5) * 0.6 for g in starts])
    weights = torch.stack([torch.randn(options.modulus, 2, generator=g, dtype=torch.float64) for g in starts])
    biases = torch.zeros(len(setting), options.modulus, dtype=torch.float64)
    scales = torch.ones(len(setting), 1, 1, dtype=torch.float64)
    learned = [values.requires_grad_(True) for values in (angles, weights, biases, scales)]
    optimiser = torch.optim.Adam(learned, lr=options.rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    words = [torch.Generator().manual_seed(1000 + seed) for _, _, _, seed in setting]
    longest, polygon = max(LENGTHS), corners(options.modulus)
    counts = torch.arange(longest + 1, dtype=torch.float64).expand(len(setting), -1)
    known: dict[tuple[int, ...], torch.Tensor] = {}

    def readout():
        return torch.where(free, weights, scales * polygon), torch.where(free[:, 0], biases, 0.0)

    for step in track(range(steps), "drawn words" if drawn else "expected loss"):
        # Lengths grow over the first half, as any angle is wrong at once on long words.
        lengths = tuple(max(2, math.ceil(length * min(1.0, 2 * step / steps))) for _, _, length, _ in setting)
        if drawn:
            shares = drawn_shares([torch.randint(2, (options.batch, longest), generator=g) for g in words], lengths)
        else:
            if lengths not in known:
                known = {lengths: shares_of_counts(longest, lengths)}
            shares = known[lengths]
        loss = (shares * losses(counts, angles, *readout(), smoothings)).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return angles.detach(), *(part.detach() for part in readout())


def true_horizon(angle, weight, bias):
    """Return the longest word of ones up to which every count is read rightly, at most CAP."""
    modulus = len(bias)
    step = 2 * math.pi / modulus
    turns = round(angle / step)  # with a free readout any number of steps of the polygon will do
    drift = angle - turns * step

    def wrong(residues, offsets):
        turned = turns * step * residues + offsets
        return (torch.stack((turned.cos(), turned.sin()), -1) @ weight.T + bias).argmax(-1) != residues

    counts = torch.arange(1, FOLLOWED + 1, dtype=torch.float64)
    mistakes = wrong(counts % modulus, drift * counts).nonzero()
    if len(mistakes):
        return int(mistakes[0])
    # Beyond, each residue is wrong from where the drift takes it to another label's side.
    first = CAP + 1
    offsets = torch.linspace(abs(drift) * FOLLOWED, math.pi, 400_001, dtype=torch.float64)
    for residue in range(modulus):
        places = wrong(torch.full_like(offsets, residue), offsets * math.copysign(1.0, drift)).nonzero()
        if len(places) and abs(drift) * CAP > float(offsets[int(places[0])]):
            first = min(first, math.ceil(float(offsets[int(places[0])]) / abs(drift)))
    return first - 1


def profile(options, length=20):
    """Excess of the least loss over all scales, against the angle's error in units of the plateau."""
    shares = shares_of_counts(length, [length])[0]
    scales = torch.logspace(-1, 4, 1500, dtype=torch.float64)
    curves = []
    places = [round(0.05 * n, 2) for n in range(41)]
    for epsilon in SMOOTHINGS:
        values = []
        for place in places:
            deltas = torch.full_like(scales, place * math.pi / (options.modulus * length))
            counts = torch.arange(length + 1, dtype=torch.float64).expand(len(scales), -1)
            none = torch.zeros(len(scales), options.modulus, dtype=torch.float64)
            readouts = scales[:, None, None] * corners(options.modulus)
            angles, share = 2 * math.pi / options.modulus + deltas, torch.full_like(scales, epsilon)
            every = losses(counts, angles, readouts, none, share)
            values.append(float((every * shares).sum(-1).min()))
        curves.append({"smoothing": epsilon, "excess": [value - values[0] for value in values]})
    return {"length": length, "places": places, "curves": curves}


def minima(options):
    """Where the expected loss has its minimum with a free readout, beside the exact machine."""
    points = []
    for length, epsilon in itertools.product(LENGTHS, SMOOTHINGS[1:]):
        shares, share = shares_of_counts(length, [length]), torch.tensor([epsilon], dtype=torch.float64)
        counts = torch.arange(length + 1, dtype=torch.float64)[None]
        scaled = torch.zeros(1, dtype=torch.float64)  # δ times T, so that all numbers are of one size
        weights, biases = 3 * corners(options.modulus)[None], torch.zeros(1, options.modulus, dtype=torch.float64)
        free = [part.requires_grad_(True) for part in (scaled, weights, biases)]
        optimiser = torch.optim.LBFGS(
            free, max_iter=2500, tolerance_grad=1e-15, tolerance_change=1e-18, history_size=30,
            line_search_fn="strong_wolfe",
        )  # fmt: skip

        def loss(counts=counts, shares=shares, share=share, free=free, optimiser=optimiser, length=length):
            optimiser.zero_grad()
            angles = 2 * math.pi / options.modulus + free[0] / length
            value = (shares * losses(counts, angles, free[1], free[2], share)).sum()
            value.backward()
            return value

        optimiser.step(loss)
        delta = float(free[0].detach()) / length
        point = true_horizon(2 * math.pi / options.modulus + delta, weights.detach()[0], biases.detach()[0])
        points.append({"smoothing": epsilon, "length": length, "delta": delta, "horizon": point})
    return points


def judged(readout, steps, machine, options):
    """Train the heads of one protocol and return their horizons."""
    setting = list(itertools.product((readout,), SMOOTHINGS, LENGTHS, range(options.seeds)))
    expected = trained(setting, steps, options, drawn=False)
    learned = trained(setting, steps, options, drawn=True)
    runs = []
    for place, (_, epsilon, length, seed) in enumerate(track(setting, "certifying")):
        angle, weight, bias = (part[place] for part in learned)
        model = turning_model(float(angle), options.modulus)
        with torch.no_grad():
            model.readout.weight.copy_(weight)
            model.readout.bias.copy_(bias)
        (cosine, _), (sine, _) = model.rational_head.transitions.table()[1].tolist()
        stored = math.atan2(sine, cosine) % (2 * math.pi)  # of the matrix as it is stored
        runs.append(
            {
                "readout": readout,
                "steps": steps,
                "smoothing": epsilon,
                "length": length,
                "seed": seed,
                "turn": stored * options.modulus / (2 * math.pi),
                "scale": float(weight.norm() / math.sqrt(options.modulus)),
                "predicted": true_horizon(float(expected[0][place]), expected[1][place], expected[2][place]),
                "certified": certified_horizon(model, machine, CAP),
                "true": true_horizon(stored, weight, bias),
            }
        )
    return runs


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--modulus", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rate", type=float, default=5e-3)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--without-training", action="store_true", help="keep the heads of the record that is there")
    options = parser.parse_args()
    path = options.out / "label_smoothing.json"
    if options.without_training:
        record = read_record(path)
        measurements = record.measurements | {"profile": profile(options), "minima": minima(options)}
        print("written:", replace(record, measurements=measurements).write(path))
        return
    machine = ModularCounting(options.modulus).automaton()
    runs = []
    for readout, steps in PROTOCOLS:
        runs += judged(readout, steps, machine, options)
    settings = {name: value for name, value in vars(options).items() if name not in ("out", "without_training")}
    record = Record(
        "label_smoothing",
        settings | {"cap": CAP},
        {"runs": runs, "profile": profile(options), "minima": minima(options)},
    )
    print("written:", record.write(path))


if __name__ == "__main__":
    main()
