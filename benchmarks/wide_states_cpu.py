"""Wide states and a million steps on a CPU: is there a size at which the scan suddenly gets slow?

Two tables.  Beside the peers: d = 16, 32 and 64, a row of 32 768 or 1 048 576 steps, or 16 rows; forward, and forward
and backward; against the chunked scan in plain torch, JAX (its associative scan, and its loop ``lax.scan``, compiled)
and ``nn.LSTM`` with d units.  And alone: every width up to 128, in billions of multiply-adds a second of the plain
recurrence, which is what a cliff would show in.  Writes ``results/wide_states_cpu.json`` and ``.png``.  Usage:
``python benchmarks/wide_states_cpu.py [--quick] [--output FOLDER]``.
"""

from __future__ import annotations

import argparse
import importlib
import time
from functools import cache
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch

from transductor.bench import LatencyStudy, run_latency
from transductor.bench.peers import BoundCall, Contender, Unavailable, all_contenders, library
from transductor.bench.timing import quiet_collector, run_environment, stopwatch, take_turns
from transductor.bench.workloads import ACTS, Case, draw
from transductor.report.style import save_figure
from transductor.results import Record

RESULTS = Path(__file__).parent / "results"
BESIDE = ("auto", "chunked", "jax", "lstm")
LENGTHS = tuple(
    Case(batch, steps, dim) for dim in (16, 32, 64) for batch, steps in ((1, 32_768), (16, 2048), (1, 1 << 20))
)
WIDTHS = (2, 4, 5, 7, 8, 12, 15, 16, 17, 20, 24, 28, 32, 33, 40, 48, 56, 63, 64, 65, 72, 80, 96, 100, 112, 120, 128)
ROWS = (1, 16)
POSITIONS = 32_768


@cache
def looped_functions():
    try:
        jax = importlib.import_module("jax")
    except ImportError:
        raise Unavailable("jax is not installed") from None

    def states(table, start, tokens):
        def step(state, token):
            state = jax.numpy.einsum("bij,bj->bi", table[token], state, precision="highest")
            return state, state

        first = jax.numpy.broadcast_to(start, (tokens.shape[0], len(start)))
        return jax.lax.scan(step, first, tokens.T)[1].swapaxes(0, 1)

    def with_gradients(table, start, tokens, cotangent):
        values, pull = jax.vjp(lambda m, h: states(m, h, tokens), table, start)
        return values, *pull(cotangent)

    return jax, jax.jit(states), jax.jit(with_gradients)


def looped(operands):
    """JAX's loop over time: the least arithmetic, and memory for the states alone."""
    if not operands.plain:
        raise Unavailable("reads a table and tokens only")
    jax, states, with_gradients = looped_functions()
    given = [
        jax.device_put(value.detach().numpy()) for value in (operands.matrices, operands.start, operands.tokens.int())
    ]
    cotangent = jax.device_put(operands.cotangent.numpy())
    return BoundCall(
        lambda: states(*given),
        lambda: with_gradients(*given, cotangent),
        wait=jax.block_until_ready,
        numbers=lambda value: torch.tensor(importlib.import_module("numpy").asarray(value)),
    )


def widths(rounds):
    """The rate of the plain recurrence by width and rows; the widths of one number of rows take turns."""
    cells = []
    for rows in ROWS:
        watches = {}
        for dim in WIDTHS:
            bound = library("auto")(draw(Case(rows, POSITIONS // rows, dim), "cpu", 0))
            watches |= {(dim, act): stopwatch([getattr(bound, act)], "cpu") for act in ACTS}
        turns = take_turns(watches, box=5.0, rounds=rounds)
        for dim in WIDTHS:
            # Forward is one product of a matrix and a vector a step, backward one more, and one outer product.
            work = {"forward": POSITIONS * dim**2, "forward_backward": 3 * POSITIONS * dim**2}
            rates = {act: work[act] / min(turns[dim, act]) for act in ACTS}
            cells.append({"rows": rows, "dim": dim, "multiply_adds_per_second": rates})
    return cells


def figure(cells, path):
    drawing, axes = plt.subplots(1, 2, figsize=(9, 3.4), sharey=True, layout="constrained")
    for axis, act in zip(axes, ACTS, strict=True):
        for rows, colour in zip(ROWS, ("#1f5fbf", "#d1495b"), strict=True):
            chosen = [cell for cell in cells if cell["rows"] == rows]
            rates = [cell["multiply_adds_per_second"][act] / 1e9 for cell in chosen]
            axis.plot([cell["dim"] for cell in chosen], rates, "o-", ms=3, color=colour, label=f"{rows} rows")
        axis.set(xlabel="width of a state, d", title=act.replace("_", " and "), ylim=0)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("multiply-adds, 10⁹ a second")
    axes[0].legend()
    return save_figure(drawing, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="short rows: a check that everything runs")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    began = time.perf_counter()
    chosen = [contender for contender in all_contenders("cpu") if contender.name in BESIDE]
    chosen.append(Contender("jax_loop", looped))
    lengths = (Case(1, 64, 32), Case(2, 33, 16)) if options.quick else LENGTHS
    study = LatencyStudy(
        lengths, (), check_length=512 if options.quick else 4096, sets=2, box=3.0, rounds=5, limit=20.0, budget=120.0,
        memory=(2, 512, 8, 4), quick=options.quick,
    )  # fmt: skip
    beside = run_latency(study, "cpu", lambda *stage: print(*stage, flush=True), chosen)
    with quiet_collector():
        alone = widths(2 if options.quick else 7)
    settings = {"rows": list(ROWS), "positions": POSITIONS, "widths": list(WIDTHS)}
    here = run_environment("cpu", began, load=beside.environment["load"])
    measurements = {"beside": beside.measurements["lengths"], "widths": alone}
    record = Record("wide_states_cpu", settings, measurements, here)
    print(record.write(options.output / f"{record.name}.json"))
    print(figure(alone, options.output / f"{record.name}.png"))


if __name__ == "__main__":
    main()
