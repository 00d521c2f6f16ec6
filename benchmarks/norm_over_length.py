"""How long does the norm of a state last in float32?  Orthogonal families before and after ``steadied``.

Five seeds of every orthogonal family read random words, and words of one letter, of up to 10⁷ tokens.  The norm that
the first-order law ``exp(T · mean ½(‖M‖²_F / d − 1))`` predicts from the table alone stands beside the measured one.
Writes ``results/norm_over_length.json`` and ``.png``, and prints the table.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from transductor.heads import RationalHead, steadied
from transductor.report.style import save_figure
from transductor.results import Record
from transductor.transitions import FAMILIES as ALL_FAMILIES

RESULTS = Path(__file__).parent / "results"
FAMILIES = ["orthogonal", "cayley", "squared_cayley", "signed_cayley", "exponential", "householder"]
WORDS = {"random": "random words", "constant": "words of one letter"}
COLOURS = {"before": "#d1495b", "after": "#1f5fbf"}
PIECE = 500_000
VOCAB, DIM = 8, 16


def drawn_head(family, seed):
    """A head as training may leave it: parameters away from their start, a state of norm one."""
    torch.manual_seed(seed)
    head = RationalHead(ALL_FAMILIES[family](vocab_size=VOCAB, state_dim=DIM)).requires_grad_(False)
    for parameter in head.transitions.parameters():
        parameter.add_(0.3 * torch.randn_like(parameter))
    head.raw_initial_state.div_(head.raw_initial_state.norm())
    return head


def norms(head, words, lengths, seed):
    """The norms of the state after these lengths, read as a stream in pieces."""
    generator, stream, seen, measured = torch.Generator().manual_seed(seed), head.start(1), 0, {}
    while seen < max(lengths):
        size = min(PIECE, min(length for length in lengths if length > seen) - seen)
        tokens = torch.randint(0, VOCAB, (1, size), generator=generator)
        states, stream = head.advance(tokens if words == "random" else torch.zeros_like(tokens), stream)
        seen += size
        if seen in lengths:
            measured[str(seen)] = states[0, -1].double().norm().item()
    return measured


def by_the_table(head, length):
    """The norm after a random word that the sums of squares of the table predict."""
    squares = head.transitions.table().double().square().sum((1, 2))
    return math.exp(length * (0.5 * (squares / DIM - 1)).mean().item())


def one_run(family, seed, lengths):
    head = drawn_head(family, seed)
    forms = {"before": head, "after": steadied(head)}
    return {
        "family": family,
        "seed": seed,
        "norms": {words: {form: norms(each, words, lengths, seed) for form, each in forms.items()} for words in WORDS},
        "by_the_table": {form: by_the_table(each, max(lengths)) for form, each in forms.items()},
    }


def furthest(runs, words, form, length):
    """The largest change of the norm over the seeds, as a share."""
    return max(abs(run["norms"][words][form][str(length)] - 1) for run in runs)


def figure(runs, lengths, path):
    drawing, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    for axis, (words, title) in zip(axes, WORDS.items(), strict=True):
        for form, colour in COLOURS.items():
            for family in FAMILIES:
                chosen = [run for run in runs if run["family"] == family]
                changes = [furthest(chosen, words, form, length) for length in lengths]
                style = {"orthogonal": "-", "householder": "--"}.get(family, ":")
                label = f"{family}, {form}" if style != ":" else None
                label = f"the other four, {form}" if family == "cayley" else label
                axis.plot(lengths, changes, style, color=colour, lw=1.6 if style != ":" else 1, label=label)
        axis.set(xscale="log", yscale="log", xlabel="steps")
        axis.set_title(title, fontsize=11)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set(ylabel="change of the norm, worst of five seeds")
    axes[0].legend(frameon=False, fontsize=8, loc="upper left")
    return save_figure(drawing, path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--lengths", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    lengths, console = sorted(options.lengths), Console()
    jobs = [(family, seed) for family in FAMILIES for seed in range(options.seeds)]
    runs = [one_run(*job, lengths) for job in track(jobs, "reading", console=console)]
    table = Table(title=f"largest change of a state's norm, {options.seeds} seeds, d = {DIM}, {VOCAB} letters, float32")
    for column in ("words", "family", *(f"{length:,} steps: before, after" for length in lengths)):
        table.add_column(column)
    for words in WORDS:
        for family in FAMILIES:
            chosen = [run for run in runs if run["family"] == family]
            cells = [
                ", ".join(f"{100 * furthest(chosen, words, form, length):.2g} %" for form in COLOURS)
                for length in lengths
            ]
            table.add_row(words, family, *cells)
    console.print(table)
    settings = {"seeds": options.seeds, "lengths": lengths, "state_dim": DIM, "vocab_size": VOCAB, "dtype": "float32"}
    record = Record("norm_over_length", settings, {"runs": runs}).write(options.out / "norm_over_length.json")
    console.print(f"written: {record}, {figure(runs, lengths, options.out / 'norm_over_length.png')}", soft_wrap=True)


if __name__ == "__main__":
    main()
