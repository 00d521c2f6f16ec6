"""What a step and a scan cost: matrices with one entry in a column beside orthogonal ones, on the device given.

Both heads read the same tokens, and contenders take turns; on a CPU the processor's seconds are counted.  A step is one
token of a stream, whose tables are built when it begins; a scan builds the table from the parameters, computes all
states, and in training their gradient too.
The column-choice head is timed by each of its two scans: the one for full matrices (``auto``), and the one that
composes images and gains (``columns``).

Writes ``benchmarks/results/columns_cost_cpu.json`` or ``_cuda.json``; ``--figure`` draws both.  Usage:
``python benchmarks/columns_cost.py [--device cuda] [--quick] [--output FOLDER]``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

from transductor import RationalHead
from transductor.bench.timing import Events, HostClock, Stopwatch, run_environment, take_turns
from transductor.results import Record, read_record
from transductor.transitions import ColumnChoiceTransitions, OrthogonalTransitions

RESULTS = Path(__file__).parent / "results"
DIMS = (8, 16, 32, 64, 128, 256)
VOCABULARY, ROWS, LENGTH = 8, 16, 1024
STEPS = 50  # taken for one sample of a step, whose first one waits for memory
CONTENDERS = {
    "orthogonal": (OrthogonalTransitions, "auto"),
    "column choice": (ColumnChoiceTransitions, "auto"),
    "column choice by columns": (ColumnChoiceTransitions, "columns"),
}


class ProcessorClock(HostClock):
    """The processor's seconds of one call, which other work on the computer does not change much."""

    timed = "processor"

    def sample(self) -> float:
        """Return the seconds of one call."""
        self._turn += 1
        begin = time.process_time()
        self._calls[self._turn % len(self._calls)]()
        return time.process_time() - begin


def calls(head: RationalHead, tokens: torch.Tensor) -> dict[str, Callable[[], Any]]:
    """Return what is timed of one head."""

    def training() -> Any:
        states = head(tokens)
        return torch.autograd.grad(states.square().sum(), list(head.parameters()))

    with torch.no_grad():
        streams = {rows: head.start(rows) for rows in (1, 64)}
    first = {rows: tokens.flatten()[:rows, None].contiguous() for rows in streams}

    def forward() -> Any:
        with torch.no_grad():
            return head(tokens)

    def stepped(rows: int) -> Callable[[], Any]:
        def steps() -> None:
            with torch.no_grad():
                for _ in range(STEPS):
                    head.advance(first[rows], streams[rows])

        return steps

    return {"scan": forward, "scan and gradient": training, "step of 1 row": stepped(1), "step of 64 rows": stepped(64)}


def measured(device: str, dims: tuple[int, ...], box: float, rounds: int) -> list[dict[str, Any]]:
    """Time every contender at every dimension."""
    entries = []
    for dim in dims:
        torch.manual_seed(0)
        tokens = torch.randint(0, VOCABULARY, (ROWS, LENGTH)).to(device)
        clocks: dict[tuple[str, str], Stopwatch] = {}
        for name, (family, backend) in CONTENDERS.items():
            head = RationalHead(family(state_dim=dim, vocab_size=VOCABULARY), backend=backend).to(device)
            for what, call in calls(head, tokens).items():
                call()
                clocks[name, what] = Events([call]) if device == "cuda" else ProcessorClock([call], lambda _: None)
        for (name, what), samples in take_turns(clocks, box=box, rounds=rounds).items():
            entry = {"dim": dim, "head": name, "what": what}
            if isinstance(samples, Exception):
                entries.append({**entry, "failure": str(samples)[:200]})
            else:
                each = [sample / (STEPS if what.startswith("step") else 1) for sample in samples]
                entries.append({**entry, "seconds": median(each), "samples": each})
        print(dim, {f"{e['head']}: {e['what']}": e.get("seconds") for e in entries if e["dim"] == dim}, flush=True)
    return entries


def figure(output: Path) -> Path:
    """Draw the records that there are."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from transductor.report.style import save_figure

    shown = ("scan", "scan and gradient", "step of 1 row", "step of 64 rows")
    colours = {"orthogonal": "#35b0ab", "column choice": "#7b52ab", "column choice by columns": "#c39be0"}
    titles = {"cpu": "CPU", "cuda": "H200"}
    measured_on = [device for device in titles if (output / f"columns_cost_{device}.json").exists()]
    size = (12, 3.2 * len(measured_on))
    drawing, every = plt.subplots(
        len(measured_on), len(shown), figsize=size, sharex=True, sharey="row", squeeze=False, layout="constrained"
    )
    for axes, device in zip(every, measured_on, strict=True):
        title = titles[device]
        entries = read_record(output / f"columns_cost_{device}.json").measurements["entries"]
        for axis, what in zip(axes, shown, strict=True):
            for name, colour in colours.items():
                chosen = [e for e in entries if e["head"] == name and e["what"] == what and "seconds" in e]
                dims, seconds = [e["dim"] for e in chosen], [1e6 * e["seconds"] for e in chosen]
                axis.plot(dims, seconds, "o-", color=colour, label=name, ms=4)
            axis.set(xscale="log", yscale="log", title=f"{what}, {title}")
            axis.set_xticks(DIMS, [str(dim) for dim in DIMS])
            axis.minorticks_off()
            axis.spines[["top", "right"]].set_visible(False)
        axes[0].set_ylabel("microseconds")
    for axis in every[-1]:
        axis.set_xlabel("state dimension")
    every[0, 0].legend(frameon=False, fontsize=8)
    return save_figure(drawing, output / "columns_cost.png")


def main() -> None:
    """Measure on one device, or draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that everything runs")
    parser.add_argument("--figure", action="store_true", help="draw the records")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.figure:
        figure(options.output)
        return
    began = time.perf_counter()
    torch.set_num_threads(1)
    dims, box, rounds = (DIMS[:2], 0.1, 2) if options.quick else (DIMS, 0.15 if options.device == "cuda" else 1.5, 21)
    entries = measured(options.device, dims, box, rounds)
    settings = {"vocabulary": VOCABULARY, "rows": ROWS, "length": LENGTH, "steps": STEPS, "quick": options.quick}
    path = options.output / f"columns_cost_{options.device}.json"
    here = run_environment(options.device, began)
    Record(f"columns_cost_{options.device}", settings, {"entries": entries}, here).write(path)


if __name__ == "__main__":
    main()
