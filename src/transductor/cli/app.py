"""The command line: parse, call, print.  torch is imported inside commands, so that ``--help`` is quick."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transductor.cli.automaton import automaton
from transductor.cli.doctor import doctor
from transductor.cli.exact_models import certify, compile_automaton, extract, harden, look
from transductor.cli.export import export
from transductor.cli.refusals import chosen_device
from transductor.cli.studies import report, reproduce
from transductor.cli.training import evaluate, predict, train

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(
    name="transductor",
    help="Rational Transductors: a Transformer with a weighted automaton as its second stream.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


bench = typer.Typer(help="Measure speed and memory on this machine, beside the peers.", no_args_is_help=True)
app.add_typer(bench, name="bench")
app.add_typer(automaton, name="automaton")
for command in (train, evaluate, predict, reproduce, report):
    app.command()(command)
app.command("compile")(compile_automaton)
for verb in (extract, harden, certify, look, export, doctor):
    app.command()(verb)


@app.callback(invoke_without_command=True)
def _version(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        from transductor import __version__

        typer.echo(f"transductor {__version__}")
        raise typer.Exit


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the record, the figure and both models.")] = Path("runs/demo"),
    steps: Annotated[int, typer.Option(min=1, help="Training steps of each model.")] = 1500,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds, counted from --seed.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda, …")] = "cpu",
) -> None:
    """Train a Rational Transductor and a Transformer of the same size on mod-5 counting; compare them."""
    from dataclasses import replace

    import torch
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from transductor.model import save
    from transductor.report import demo_figure, demo_table
    from transductor.report.style import LABELS
    from transductor.studies import DemoStudy, run_demo
    from transductor.training import TrainingPoint

    if out.exists() and not out.is_dir():
        raise typer.BadParameter(f"{out} is a file; a folder is wanted", param_hint="--out")
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise typer.BadParameter(f"{device!r} cannot be used here: {reason}", param_hint="--device") from None
    study = DemoStudy(seeds=tuple(range(seed, seed + seeds)))
    study = replace(study, training=replace(study.training, steps=steps))
    console = Console()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("accuracy {task.fields[accuracy]:6.1%}"),
        TimeRemainingColumn(),
    )
    try:
        with Progress(*columns, console=console) as progress:
            bars: dict[tuple[str, int], int] = {}

            def on_step(model: str, run_seed: int, point: TrainingPoint) -> None:
                bar = bars.get((model, run_seed))
                if bar is None:
                    title = f"{LABELS[model]:<20}" + (f" seed {run_seed}" if seeds > 1 else "")
                    bar = bars[model, run_seed] = progress.add_task(title, total=steps, accuracy=0.0)
                progress.update(bar, completed=point.step, accuracy=point.accuracy)  # type: ignore[arg-type]

            record, models = run_demo(study, on_step, device)
    except KeyboardInterrupt:
        console.print("interrupted; nothing was written")
        raise typer.Exit(130) from None
    console.print(demo_table(record))
    written = [record.write(out / "record.json"), demo_figure(record, out / "figure.png")]
    written += [save(model, out / name) for name, model in models.items()]
    console.print("written: " + ", ".join(map(str, written)), soft_wrap=True)


@app.command()
def info(
    model: Annotated[Path, typer.Argument(help="A folder written by transductor.save.")],
    config: Annotated[bool, typer.Option("--config", help="Print the configuration as JSON too.")] = False,
) -> None:
    """Print a model card: parameters, families, laws as measured now, cost of one step."""
    from rich.console import Console

    from transductor.configuration import to_json
    from transductor.model import CheckpointError, load
    from transductor.model.card import model_card
    from transductor.report import card_view

    try:
        card = model_card(load(model))
    except CheckpointError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None
    Console().print(card_view(card))
    if config:
        typer.echo(to_json(card.config))


Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Output = Annotated[Path | None, typer.Option(help="Folder for record and figure (--quick: runs/bench).")]
RESULTS, TRIAL = Path("benchmarks/results"), Path("runs/bench")


@bench.command("scan")
def bench_scan(
    device: Device = "auto",
    quick: Annotated[bool, typer.Option("--quick", help="A tiny sweep: seconds, to see that all runs.")] = False,
    output: Output = None,
    only: Annotated[list[str] | None, typer.Option(help="lengths (beside peers) or shapes (ours alone).")] = None,
) -> None:
    """Time the scan beside its peers: correctness first, then latency, distance to the floor, memory."""
    from dataclasses import replace

    from transductor.bench import LatencyStudy, WrongResult, run_latency
    from transductor.bench.latency import PARTS
    from transductor.report import latency_figure, latency_tables
    from transductor.results import Record

    parts = _parts(only, PARTS)
    device = chosen_device(device)
    study = replace(LatencyStudy.small() if quick else LatencyStudy.for_device(device), parts=parts)
    console = _console()
    folder = output or (TRIAL if quick else RESULTS)

    def keep(record: Record) -> Path:
        return record.write(folder / f"{record.name}.json")

    try:
        with _stages(console) as on_cell:
            record = run_latency(study, device, on_cell, keep=keep)
    except WrongResult as error:
        typer.echo(f"error: {error}; nothing is written", err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        console.print(f"interrupted; what was measured is in {folder}")
        raise typer.Exit(130) from None
    written = [keep(record)]
    console.print(latency_tables(record))
    written.append(latency_figure(record, folder / f"{record.name}.png"))
    console.print("written: " + ", ".join(map(str, written)), soft_wrap=True)


@bench.command("model")
def bench_model(
    device: Device = "auto",
    quick: Annotated[bool, typer.Option("--quick", help="A miniature: seconds, nothing compiled.")] = False,
    output: Output = None,
    only: Annotated[list[str] | None, typer.Option(help="training or decoding.")] = None,
) -> None:
    """Time a training step and decoding of a Rational Transductor beside the same Transformer without the head."""
    from transductor.bench import ModelCostStudy, run_model_cost
    from transductor.bench.model_cost import PARTS
    from transductor.report import model_cost_tables

    parts = _parts(only, PARTS)
    device = chosen_device(device)
    study = ModelCostStudy.small() if quick else ModelCostStudy.for_device(device)
    console = _console()
    try:
        with _stages(console) as on_stage:
            records = run_model_cost(study, device, on_stage, parts)
    except KeyboardInterrupt:
        console.print("interrupted; nothing was written")
        raise typer.Exit(130) from None
    folder = output or (TRIAL if quick else RESULTS)
    written = [record.write(folder / f"{record.name}.json") for record in records]
    console.print(model_cost_tables(*records))
    console.print("written: " + ", ".join(map(str, written)), soft_wrap=True)


def _parts(only: list[str] | None, allowed: tuple[str, ...]) -> tuple[str, ...]:
    """What ``--only`` asks for, in the order of ``allowed``; all without it."""
    if not set(only or ()) <= set(allowed):
        raise typer.BadParameter(
            f"must be one of {', '.join(allowed)}; got {', '.join(only or ())}", param_hint="--only"
        )
    return tuple(part for part in allowed if not only or part in only)


def _console() -> Console:
    """Wide where nobody watches: a table in a log file must not be squeezed into 80 columns."""
    from rich.console import Console

    console = Console()
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(width=220)


@contextmanager
def _stages(console: Console) -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar; gives the function that moves it."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}")
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("", total=None)
        yield lambda description, done, total: progress.update(
            bar, description=description, completed=done, total=total
        )


def main() -> None:
    """Entry point."""
    app()
