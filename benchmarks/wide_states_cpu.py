"""Wide states and a million steps on a CPU: is there a size at which the scan suddenly gets slow?

Two tables.  Beside the peers: d = 32 and 64, a row of 32 768 or 1 048 576 steps; forward, and forward and
backward; against the chunked scan in plain torch, JAX (its associative scan, and its loop ``lax.scan``, compiled)
and ``nn.LSTM`` with d units.  And alone: every width up to 128, in billions of multiply-adds a second of the plain
recurrence, which is what a cliff would show in.  Everything runs on one core and is counted in seconds of the
processor, the least of several turns, so that other work on the machine costs the numbers little.  Writes
``results/wide_states_cpu.json`` and ``.png``.  Usage:
``OMP_NUM_THREADS=1 taskset -c 0 python benchmarks/wide_states_cpu.py [--quick] [--output FOLDER]``.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import time
from functools import cache
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch

from transductor.bench.correctness import one_line, relative_error
from transductor.bench.memory import available_bytes
from transductor.bench.peers import BoundCall, Contender, Unavailable, all_contenders, library
from transductor.bench.timing import Stopwatch, quiet_collector, run_environment, spread, take_turns
from transductor.bench.workloads import ACTS, Case, draw
from transductor.configuration import to_plain
from transductor.report.style import save_figure
from transductor.results import Record

RESULTS = Path(__file__).parent / "results"
BESIDE = ("auto", "chunked", "jax", "lstm")
LENGTHS = (Case(1, 32_768, 32), Case(1, 32_768, 64), *(Case(1, 1 << 20, dim) for dim in (16, 32, 64)))
WIDTHS = (2, 4, 5, 7, 8, 12, 15, 16, 17, 20, 24, 28, 32, 33, 40, 48, 56, 63, 64, 65, 72, 80, 96, 100, 112, 120, 128)
ROWS = (1, 16)
POSITIONS = 32_768
ROOM = 4 << 30  # bytes that a contender may take
WORK = 1 << 30  # multiply-adds of the recurrence; beyond, peers take minutes


class ProcessorClock(Stopwatch):
    """Seconds of the processor, of all threads of this process, for one call."""

    timed = "processor"

    def __init__(self, call, wait):
        self._call, self._wait = call, wait
        self.sample()  # compiles

    def sample(self):
        gc.collect()
        begin = time.process_time()
        result = self._call()
        if self._wait is not None:
            self._wait(result)
        return time.process_time() - begin


def beside(case, contenders, rounds):
    """All contenders on one case, in turns; one that is too slow or too large is left out and says why."""
    operands, outcomes, watches, states = draw(case, "cpu", 0), {}, {}, {}
    for contender in contenders:
        outcomes[contender.name] = {}
        for act in ACTS:
            needed = contender.footprint(case, act)
            if needed > min(ROOM, available_bytes("cpu") // 2):
                outcomes[contender.name][act] = {"skipped": f"needs about {needed / 2**30:.0f} GiB"}
                continue
            if contender.name != "auto" and case.time * case.dim**2 > WORK:
                outcomes[contender.name][act] = {"skipped": "takes minutes"}
                continue
            try:
                bound = contender.bind(operands)
                watches[contender.name, act] = ProcessorClock(getattr(bound, act), bound.wait)
                if act == "forward" and contender.same:
                    states[contender.name] = bound.numbers(bound.forward())
            except Exception as error:
                outcomes[contender.name][act] = {"skipped": one_line(error)}
    for (name, act), samples in take_turns(watches, box=1.0, rounds=rounds).items():
        outcomes[name][act] = {**spread(samples), "samples": len(samples), "timed": ProcessorClock.timed}
    exact = states.pop("auto").double()
    apart = {name: relative_error(values.double(), exact)["norm"] for name, values in states.items()}
    return {"case": to_plain(case), "label": str(case), "contenders": outcomes, "apart": apart}


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
            watches |= {(dim, act): ProcessorClock(getattr(bound, act), None) for act in ACTS}
        turns = take_turns(watches, box=2.0, rounds=rounds, fewest=5)
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
            label = "one row" if rows == 1 else f"{rows} rows"
            axis.plot([cell["dim"] for cell in chosen], rates, "o-", ms=3, color=colour, label=label)
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
    torch.set_num_threads(1)
    cells = []
    with quiet_collector():
        alone = widths(2 if options.quick else 7)
        print("widths", round(time.perf_counter() - began), "s", flush=True)
        for case in lengths:
            cells.append(beside(case, chosen, 2 if options.quick else 3))
            least = {name: acts["forward_backward"].get("min", "–") for name, acts in cells[-1]["contenders"].items()}
            print(case, least, cells[-1]["apart"], flush=True)
    settings = {"rows": list(ROWS), "positions": POSITIONS, "widths": list(WIDTHS)}
    here = run_environment("cpu", began, load=round(os.getloadavg()[0], 2))
    measurements = {"beside": cells, "widths": alone}
    record = Record("wide_states_cpu", settings, measurements, here)
    print(record.write(options.output / f"{record.name}.json"))
    print(figure(alone, options.output / f"{record.name}.png"))


if __name__ == "__main__":
    main()
