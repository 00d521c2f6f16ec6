"""What does one eager call cost?  The scan beside torch's attention and LSTM, where Python is slower than the device.

Every contender is called many times in turn, from an idle device to an idle one (``call``), and in bursts that wait for
the device at their end alone (``burst``): the first is what a reader of one sequence waits for, the second what a
training loop pays.  On a CPU seconds are those of the processor, which other work there disturbs less.  Writes
``results/eager_calls_<device>.json`` and prints the table.  Usage:
``python benchmarks/eager_calls.py [--device cuda] [--rounds 200] [--only NAME …] [--output FOLDER]``.
"""

from __future__ import annotations

import argparse
import gc
import time
from pathlib import Path
from statistics import median

import torch

from transductor.bench.peers import all_contenders
from transductor.bench.timing import quiet_collector, run_environment
from transductor.bench.workloads import ACTS, Case, draw
from transductor.configuration import to_plain
from transductor.results import Record

RESULTS = Path(__file__).parent / "results"
NAMES = ("auto", "attention", "lstm")
CASES = {
    "cuda": (Case(1, 2048), Case(1, 128), Case(8, 2048), Case(1, 2048, dim=32), Case(1, 2048, bias=True)),
    "cpu": (Case(1, 8), Case(1, 128), Case(1, 2048), Case(8, 128), Case(1, 128, dim=32)),
}
BURST = 20


def waiter(device):
    return torch.cuda.synchronize if device == "cuda" else lambda: None


def seconds(call, wait, clock, times=1):
    wait()
    began = clock()
    for _ in range(times):
        call()
    wait()
    return (clock() - began) / times


def measured(case, device, names, rounds):
    """Medians and lower quartiles by contender and act, in seconds; contenders take turns."""
    wait, operands = waiter(device), draw(case, device, seed=0)
    clock = time.perf_counter if device == "cuda" else time.process_time
    calls = {}
    for contender in all_contenders(device):
        if contender.name in names:
            bound = contender.bind(operands)
            calls |= {(contender.name, act): getattr(bound, act) for act in ACTS}
    for call in calls.values():
        for _ in range(5):
            call()
    samples = {key: {"call": [], "burst": []} for key in calls}
    for number in range(rounds):
        for key, call in calls.items():
            samples[key]["call"].append(seconds(call, wait, clock))
            if number % 10 == 0:
                samples[key]["burst"].append(seconds(call, wait, clock, BURST))
    outcome = {name: {} for name, _ in calls}
    for (name, act), kinds in samples.items():
        outcome[name][act] = {
            kind: {
                "seconds": median(values),
                "lower_quartile": sorted(values)[len(values) // 4],
                "samples": len(values),
            }
            for kind, values in kinds.items()
        }
    return {"case": to_plain(case), "label": str(case), "contenders": outcome}


def lines_of(cells):
    columns = [f"{act} {kind}" for act in ACTS for kind in ("call", "burst")]
    yield f"{'microseconds':34}" + "".join(f"{column:>24}" for column in columns)
    for cell in cells:
        for name, acts in cell["contenders"].items():
            numbers = [acts[act][kind]["seconds"] * 1e6 for act in ACTS for kind in ("call", "burst")]
            yield f"{cell['label']:24}{name:10}" + "".join(f"{number:24.0f}" for number in numbers)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", choices=CASES, default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--first", type=int, help="take this many cases alone")
    parser.add_argument("--only", nargs="+", default=NAMES)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    began = time.perf_counter()
    gc.collect()
    with quiet_collector():
        cells = [
            measured(case, options.device, options.only, options.rounds)
            for case in CASES[options.device][: options.first]
        ]
    settings = {"rounds": options.rounds, "burst": BURST, "contenders": list(options.only)}
    here = run_environment(options.device, began)
    name = f"eager_calls_{options.device}"
    print(Record(name, settings, {"cells": cells}, here).write(options.output / f"{name}.json"))
    print(*lines_of(cells), sep="\n")


if __name__ == "__main__":
    main()
