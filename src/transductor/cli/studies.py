"""``transductor reproduce`` and ``transductor report``: every study, and its tables and figures."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transductor.cli.options import chosen_device
from transductor.cli.terminal import console, interruptions, print_written, progress, refusals

if TYPE_CHECKING:
    from transductor.studies import Study

_FOLDER = Path("runs/reproduce")
_LATENCY = "latency"


def reproduce(
    studies: Annotated[
        list[str] | None,
        typer.Argument(
            help="Names; without any, all that train, but for those of source code. latency times the scan."
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds, from 0.")] = 5,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="One seed, everything short: minutes, a check that everything runs; files say so."
        ),
    ] = False,
    jobs: Annotated[
        int, typer.Option(min=0, help="Processes; 0 for as many as there are cores, or GPUs with --device cuda.")
    ] = 0,
    backend: Annotated[
        str, typer.Option(help="loky (this computer), or the cluster that dask or ray reach, or start here.")
    ] = "loky",
    device: Annotated[str, typer.Option(help="cpu, cuda or auto.")] = "cpu",
    together: Annotated[
        bool | None,
        typer.Option(
            "--together/--apart",
            help="Train the seeds of an arm as one job, which is quicker for small models, or each by itself; together "
            "on a GPU, apart on a CPU.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="Folder for the records; what is there already is not done again."),
    ] = _FOLDER,
) -> None:
    """Train and judge every arm of the studies; the same command again goes on where it was interrupted."""
    from concurrent.futures import BrokenExecutor

    from rich.progress import BarColumn, TextColumn
    from rich.table import Column

    from transductor.studies.reproduction import Job, pending
    from transductor.studies.reproduction import reproduce as run
    from transductor.studies.running import DamagedRecordWarning
    from transductor.studies.spreading import processes_for
    from transductor.training import TrainingError

    terminal = console()
    with refusals(TrainingError, BrokenExecutor), warnings.catch_warnings():
        device = chosen_device(device)
        chosen = _studies(studies, seeds, quick)
        workers = jobs or processes_for(device)
        together = device != "cpu" if together is None else together
        with warnings.catch_warnings(record=True) as damaged:
            warnings.simplefilter("always")
            left, done = pending(chosen, output, together=together)
        for warning in damaged:
            terminal.print(f"warning: {warning.message}", soft_wrap=True)
        # These damaged records were named above; those of unfinished runs are still to come.
        warnings.filterwarnings("ignore", message=".*the run is done again", category=DamagedRecordWarning)
        terminal.print(
            f"{done} runs are there already, {sum(len(job.seeds) for job in left)} are to be done", highlight=False
        )
        if device != "cpu" and not jobs:
            several = "1 process on the GPU" if workers == 1 else f"{workers} processes, one for each GPU"
            terminal.print(f"{several}; small models leave room for more: --jobs N", highlight=False)
        # The name takes what is left of the line, so that a long one does not hide the times.
        name = TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"))
        columns = BarColumn(20), "count", "elapsed", "remaining", name
        advice = f"interrupted; what was done is in {output}, and the same command goes on from there"
        with interruptions(lambda: advice), progress(*columns, console=terminal, expand=True) as bars:
            bar = bars.add_task("", total=len(left))

            def on_job(job: Job, count: int, total: int) -> None:
                bars.update(bar, completed=count, total=total, description=f"done: {job.name}")

            run(chosen, output, jobs=workers, backend=backend, device=device, together=together, on_job=on_job)
        if _LATENCY in (studies or ()):
            _latency(output, device, quick)
    if chosen:
        report(output, output)


def report(
    folder: Annotated[Path, typer.Argument(help="Folder of records, as reproduce leaves it.")] = _FOLDER,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder for tables and figures; the same without it.")
    ] = None,
) -> None:
    """Rebuild every table and figure from the records alone."""
    from transductor.report import study_report

    with refusals():
        if not folder.is_dir():
            raise ValueError(f"{folder} is not a folder of records; transductor reproduce makes one")
        written = study_report(folder, output or folder)
        if not written:
            raise ValueError(f"there are no records in {folder}")
    print_written(*written)


def _studies(names: list[str] | None, seeds: int, quick: bool) -> list[Study]:
    from transductor.studies import OF_CODE, STUDIES, quick_code

    known = STUDIES | OF_CODE
    unknown = [name for name in names or () if name not in (*known, _LATENCY)]
    if unknown:
        raise ValueError(f"studies must be among {', '.join(known)}, {_LATENCY}; got {unknown[0]!r}")
    chosen = [known[name] for name in dict.fromkeys(names or STUDIES) if name in known]
    if quick:
        return [quick_code(study) if study.name in OF_CODE else study.shortened() for study in chosen]
    return [replace(study, seeds=tuple(range(seeds))) for study in chosen]


def _latency(output: Path, device: str, quick: bool) -> None:
    from transductor.bench import LatencyStudy, run_latency
    from transductor.report import latency_figure

    record = run_latency(LatencyStudy.small() if quick else LatencyStudy.for_device(device), device)
    name = f"{record.name}_quick" if quick else record.name
    record.write(output / _LATENCY / f"{name}.json")
    print_written(latency_figure(record, output / _LATENCY / f"{name}.png"))
