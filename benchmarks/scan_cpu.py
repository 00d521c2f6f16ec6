"""The scan on a CPU beside its peers, in one run: correctness first, then time, then memory.

Writes ``results/scan_cpu.json`` and ``results/scan_cpu.png``; prints the ratios.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from transductor.recurrence import scan
from transductor.report.style import save_figure
from transductor.results import Record

RESULTS = Path(__file__).parent / "results"
DIM, SYMBOLS = 16, 8
TIMES = [128, 512, 2048, 8192, 32768]
REPEATS = 7


def plain_loop(table, tokens, start):
    """The loop a person would write for one sequence: nothing checked, nothing generic, `M @ h` per step."""
    matrices, state, states = table.unbind(0), start, []
    for token in tokens[0].tolist():
        state = matrices[token] @ state
        states.append(state)
    return torch.stack(states)[None]


def library(backend):
    return lambda table, tokens, start: scan(table, tokens, initial_state=start, backend=backend)


CONTENDERS = {
    "auto": library("auto"),
    "Kogge–Stone": library("kogge_stone"),
    "loop": plain_loop,
    "reference loop": library("reference"),
}


def operands(steps):
    torch.manual_seed(steps)
    table = torch.linalg.qr(torch.randn(SYMBOLS, DIM, DIM))[0]
    return table, torch.randint(0, SYMBOLS, (1, steps)), torch.randn(DIM)


def error_against_float64(contender, steps):
    """Largest relative error of the states and of the table's gradient."""
    table, tokens, start = operands(steps)
    outcomes = []
    for run, dtype in ((contender, torch.float32), (library("chunked"), torch.float64)):
        leaf = table.to(dtype).requires_grad_()
        states = run(leaf, tokens, start.to(dtype))
        (gradient,) = torch.autograd.grad(states.square().sum(-1).sin().sum(), leaf)
        outcomes.append((states.detach().double(), gradient.double()))
    (states, gradient), (exact, exact_gradient) = outcomes
    return (
        ((states - exact).abs().max() / exact.abs().max()).item(),
        ((gradient - exact_gradient).abs().max() / exact_gradient.abs().max()).item(),
    )


def forward(contender, table, tokens, start):
    with torch.no_grad():
        contender(table, tokens, start)


def forward_backward(contender, table, tokens, start):
    leaf = table.clone().requires_grad_()
    contender(leaf, tokens, start).sum().backward()


def measured(steps):
    """Median seconds; contenders take turns, so that a slow moment of the machine hits all of them."""
    samples = {(name, act.__name__): [] for name in CONTENDERS for act in (forward, forward_backward)}
    inputs = operands(steps)
    for repeat in range(REPEATS + 1):
        for name, contender in CONTENDERS.items():
            for act in (forward, forward_backward):
                if "loop" in name and steps > 8192 and repeat > 3:
                    continue  # seconds each; three samples are enough
                gc.collect()  # nobody pays for another's garbage
                begin = time.perf_counter()
                act(contender, *inputs)
                if repeat:  # the first round warms up
                    samples[name, act.__name__].append(time.perf_counter() - begin)
    return {name: {act: median(samples[name, act]) for act in ("forward", "forward_backward")} for name in CONTENDERS}


def figure(timings, path):
    drawing, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    colours = {"auto": "#1f5fbf", "Kogge–Stone": "#d1495b", "loop": "#2e933c", "reference loop": "0.6"}
    for axis, act in zip(axes, ("forward", "forward_backward"), strict=True):
        for name, colour in colours.items():
            axis.plot(TIMES, [1e3 * timings[t][name][act] for t in TIMES], "o-", color=colour, label=name, ms=4)
        axis.set(xscale="log", yscale="log", xlabel="length T", title=act.replace("_", " + "))
        axis.set_xticks(TIMES, [f"{t:,}" for t in TIMES], fontsize=8)
        axis.minorticks_off()
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("milliseconds (median)")
    axes[0].legend(frameon=False)
    drawing.suptitle(
        f"one sequence, d = {DIM}, V = {SYMBOLS}, float32, {torch.get_num_threads()} CPU threads", fontsize=11
    )
    return save_figure(drawing, path)


def main():
    console = Console()
    errors = {name: error_against_float64(contender, 2048) for name, contender in CONTENDERS.items()}
    for name, (state_error, gradient_error) in errors.items():
        assert state_error < 1e-4, f"{name}: states are off by {state_error:.1e}"
        assert gradient_error < 1e-3, f"{name}: gradients are off by {gradient_error:.1e}"
    timings = {steps: measured(steps) for steps in track(TIMES, "timing", console=console)}
    probe = subprocess.run(
        [sys.executable, Path(__file__).with_name("peak_memory.py")], capture_output=True, text=True, check=True
    )
    states_bytes = 8 * 16_384 * 16 * 4
    longest = timings[TIMES[-1]]
    ratios = {
        "forward: Kogge–Stone / auto": longest["Kogge–Stone"]["forward"] / longest["auto"]["forward"],
        "forward: loop / auto": longest["loop"]["forward"] / longest["auto"]["forward"],
        "forward + backward: loop / auto": longest["loop"]["forward_backward"] / longest["auto"]["forward_backward"],
        "forward + backward: Kogge–Stone / auto": longest["Kogge–Stone"]["forward_backward"]
        / longest["auto"]["forward_backward"],
    }
    memory = int(probe.stdout) / states_bytes

    table = Table(
        title=f"scan of one sequence, d = {DIM}, V = {SYMBOLS}, float32: milliseconds, forward / forward + backward"
    )
    table.add_column("T", justify="right")
    for name in CONTENDERS:
        table.add_column(name, justify="right")
    for steps, row in timings.items():
        cells = [f"{1e3 * row[name]['forward']:.2f} / {1e3 * row[name]['forward_backward']:.2f}" for name in CONTENDERS]
        table.add_row(f"{steps:,}", *cells)
    console.print(table)
    summary = Table(title=f"at T = {TIMES[-1]:,}")
    summary.add_column("ratio")
    summary.add_column("measured", justify="right")
    for name, value in ratios.items():
        summary.add_row(name, f"{value:.1f}×")
    summary.add_row(
        "peak memory of forward + backward / bytes of the states\n(B = 8, T = 16,384, d = 16, V = 8)", f"{memory:.1f}×"
    )
    console.print(summary)

    measurements = {
        "seconds": {str(steps): row for steps, row in timings.items()},
        "relative_error_at_2048": {name: {"states": s, "gradient": g} for name, (s, g) in errors.items()},
        "ratios_at_longest": ratios,
        "peak_memory_over_states": memory,
    }
    settings = {
        "state_dim": DIM, "vocab_size": SYMBOLS, "batch": 1, "lengths": TIMES, "repeats": REPEATS,
        "dtype": "float32", "threads": torch.get_num_threads(),
    }  # fmt: skip
    record = Record("scan_cpu", settings, measurements).write(RESULTS / "scan_cpu.json")
    console.print(f"written: {record}, {figure(timings, RESULTS / 'scan_cpu.png')}", soft_wrap=True)


if __name__ == "__main__":
    main()
