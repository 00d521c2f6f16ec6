"""``transductor bench``: speed and memory on this computer, beside the peers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transductor.cli.options import chosen_device
from transductor.cli.terminal import console, interruptions, print_written, progress, refusal

if TYPE_CHECKING:
    from transductor.results import Record

bench = typer.Typer(help="Measure speed and memory on this computer, beside the peers.", no_args_is_help=True)

Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="Folder for record and figure (--quick: runs/bench).")
]
Quick = Annotated[bool, typer.Option("--quick", help="A miniature that takes seconds: a check that everything runs.")]
ScanParts = Annotated[list[str] | None, typer.Option(help="lengths (beside peers), shapes (ours alone) or wide.")]
ModelParts = Annotated[list[str] | None, typer.Option(help="training or decoding.")]
Sizes = Annotated[str, typer.Option(help="default, or bytes: a byte-level model of 14 million parameters.")]
_WIDTH_IN_A_FILE = 220


@bench.command("scan")
def bench_scan(device: Device = "auto", quick: Quick = False, output: Output = None, only: ScanParts = None) -> None:
    """Time the scan beside its peers: correctness first, then latency, distance to the floor, memory."""
    from transductor.bench import LatencyStudy, WrongResult, run_latency
    from transductor.bench.latency import PARTS
    from transductor.report import latency_figure, latency_tables

    parts, device = _parts(only, PARTS), chosen_device(device)
    study = replace(LatencyStudy.small() if quick else LatencyStudy.for_device(device), parts=parts)
    folder = _folder(output, quick)

    def keep(record: Record) -> Path:
        return record.write(folder / f"{record.name}.json")

    try:
        with interruptions(lambda: f"interrupted; what was measured is in {folder}"), _stages() as on_cell:
            record = run_latency(study, device, on_cell, keep=keep)
    except WrongResult as error:
        raise refusal(f"{error}; nothing is written", status=1) from None
    written = keep(record)
    console(_WIDTH_IN_A_FILE).print(latency_tables(record))
    print_written(written, latency_figure(record, folder / f"{record.name}.png"))


@bench.command("model")
def bench_model(
    device: Device = "auto",
    quick: Quick = False,
    output: Output = None,
    only: ModelParts = None,
    sizes: Sizes = "default",
) -> None:
    """Time a training step and decoding of a Rational Transductor beside the same Transformer without the head."""
    from transductor.bench import ModelCostStudy, run_model_cost
    from transductor.bench.model_cost import PARTS
    from transductor.report import model_cost_tables

    parts, device = _parts(only, PARTS), chosen_device(device)
    if sizes not in ("default", "bytes"):
        raise typer.BadParameter(f"must be default or bytes; got {sizes}", param_hint="--sizes")
    study = ModelCostStudy.of_bytes() if sizes == "bytes" else ModelCostStudy.for_device(device)
    study, name_of = ModelCostStudy.small() if quick else study, "" if sizes == "default" else sizes
    with interruptions(lambda: "interrupted; nothing was written"), _stages() as on_stage:
        records = run_model_cost(study, device, on_stage, parts, name_of)
    written = [record.write(_folder(output, quick) / f"{record.name}.json") for record in records]
    console(_WIDTH_IN_A_FILE).print(model_cost_tables(*records))
    print_written(*written)


def _parts(only: list[str] | None, allowed: tuple[str, ...]) -> tuple[str, ...]:
    """Return what ``--only`` asks for, in the order of ``allowed``; everything without it."""
    chosen = only or allowed
    if not set(chosen) <= set(allowed):
        raise typer.BadParameter(f"must be one of {', '.join(allowed)}; got {', '.join(chosen)}", param_hint="--only")
    return tuple(part for part in allowed if part in chosen)


def _folder(output: Path | None, quick: bool) -> Path:
    return output or Path("runs/bench" if quick else "benchmarks/results")


@contextmanager
def _stages() -> Iterator[Callable[[str, int, int], None]]:
    """Show a progress bar and yield the function that moves it."""
    with progress("bar", "count", "elapsed", "{task.description}", console=console(_WIDTH_IN_A_FILE)) as bars:
        bar = bars.add_task("", total=None)
        yield lambda description, done, total: bars.update(bar, description=description, completed=done, total=total)
