"""Where does the time of a training step go, with and without a head?  The byte-level model, kernel by kernel.

Both models are compiled, captured in a CUDA graph and timed in turns; then three eager steps of each are profiled.
Writes ``runs/bench/model_profile_bytes_cuda.json`` and prints what the longest kernels took.  Usage, on a GPU:
``python benchmarks/model_profile.py [--output FOLDER]``; ``--quick`` only checks that everything runs.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from statistics import median

import torch
from torch.profiler import ProfilerActivity, profile

from transductor.bench.model_cost import MODELS, ModelCostStudy, _Trainer
from transductor.bench.timing import quiet_collector, run_environment, stopwatch, take_turns
from transductor.configuration import to_plain
from transductor.results import Record

RESULTS = Path("runs/bench")
STEPS, KEPT = 3, 120


def trained(study, name, device):
    torch.manual_seed(0)
    trainer = _Trainer(study, study.build(name).to(device), device)
    if study.compiled:
        trainer.compile()
    trainer.warm_up()
    return trainer


def kernels(trainer, device):
    """Seconds and calls of every kernel in one step, the longest first."""
    with profile(activities=[ProfilerActivity.CUDA if device == "cuda" else ProfilerActivity.CPU]) as profiled:
        for _ in range(STEPS):
            trainer.step()
        if device == "cuda":
            torch.cuda.synchronize()
    which = "self_device_time_total" if device == "cuda" else "self_cpu_time_total"
    rows = [(getattr(each, which) / STEPS / 1e6, each.count / STEPS, each.key) for each in profiled.key_averages()]
    return sorted((row for row in rows if row[0]), reverse=True)[:KEPT]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    device, began = "cpu" if options.quick else "cuda", time.perf_counter()
    study = ModelCostStudy.small() if options.quick else ModelCostStudy.of_bytes()
    with quiet_collector():
        trainers = {name: trained(study, name, device) for name in MODELS}
        watches = {name: stopwatch([trainer.step], device) for name, trainer in trainers.items()}
        turns = take_turns(watches, box=2.0, rounds=10)
        models = {
            name: {"device_seconds": median(turns[name]), "kernels": kernels(trainer, device)}
            for name, trainer in trainers.items()
        }
    for name, model in models.items():
        print(f"{name}: {1e3 * model['device_seconds']:.3f} ms")
        for seconds, calls, kernel in model["kernels"][:30]:
            print(f"{1e6 * seconds:10.1f} µs {calls:6.1f} times {kernel[:100]}")
    record = Record("model_profile_bytes_cuda", to_plain(study), {"models": models}, run_environment(device, began))
    print(record.write(options.output / f"{record.name}.json"))


if __name__ == "__main__":
    main()
