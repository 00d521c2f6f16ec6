"""The command line: parse, call, print.  torch is imported inside commands, so that ``--help`` is quick."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["app", "main"]

app = typer.Typer(
    name="transductor",
    help="Rational Transductors: a Transformer with a weighted automaton as its second stream.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


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

    from transductor.experiments import DemoStudy, run_demo
    from transductor.model import save
    from transductor.report import demo_figure, demo_table
    from transductor.report.style import LABELS
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


def main() -> None:
    """Entry point."""
    app()
