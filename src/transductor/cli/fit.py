"""``transductor fit``: from a file of labelled sequences to a machine and a model that is proved to be it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from transductor.cli.terminal import console, interruptions, print_written, progress, refusals

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def fit(
    data: Annotated[
        Path, typer.Argument(help="One sequence per line; or .jsonl, .csv, .tsv with labels.", show_default=False)
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder of the run; the same command there goes on.")
    ] = Path("fit"),
    labels: Annotated[Path | None, typer.Option(help="The labels of plain text, line by line beside DATA.")] = None,
    goal: Annotated[
        str | None,
        typer.Option(
            help="recognition (a label per sequence), tagging (per token) or regression; guessed if left out."
        ),
    ] = None,
    budget: Annotated[str, typer.Option(help="How long it may take: 90s, 3m, 1h.")] = "3m",
    recipes: Annotated[
        str,
        typer.Option(
            help="all, none, or some of dense, orthogonal, stochastic, small, universal, transductor, attention, "
            "transformer, lstm, between commas."
        ),
    ] = "all",
    split: Annotated[str, typer.Option(help="Where tokens end: blanks, or characters.")] = "blanks",
    text_column: Annotated[str | None, typer.Option(help="Column or field that holds the sequence.")] = None,
    label_column: Annotated[str | None, typer.Option(help="Column or field that holds the label.")] = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
) -> None:
    """Find the machine behind labelled sequences, prove that a model is it, and write a report.

    Exit status 0: a machine was found, and the model is proved to be it; 1: no machine is claimed, the best model is
    kept, and the report says why and what to do; 2: something cannot be used; 3: a machine was found (a weighted
    automaton, where labels are numbers), and the model is proved to be it up to a length.
    """
    from transductor.learning import fit as fitted
    from transductor.report.fit import fit_report, fit_table
    from transductor.training import FileData

    with refusals(), interruptions(lambda: "interrupted; the same command goes on from here"):
        seconds = seconds_of(budget)
        options: dict[str, Any] = {"split": split, "text_column": text_column, "label_column": label_column}
        beside = None if labels is None else str(labels)
        source = (
            FileData.guessed(str(data), beside, **options)
            if goal is None
            else FileData(goal, str(data), beside, **options)
        )
        if goal is None:
            typer.echo(f"goal: {source.goal} (guessed from the labels; --goal says otherwise)")
        with progress("{task.description:>12}", "bar", "count", "{task.fields[words]}", console=console(120)) as bars:
            result = fitted(source, output, budget=seconds, recipes=_names(recipes), seed=seed, on_progress=_Bars(bars))
        facts = result.record.measurements
        shown = console(160)
        if facts["recipes"]:
            shown.print(fit_table(result.record))
            shown.print(facts["chosen"]["sentence"], highlight=False)
        shown.print(facts["answer"]["sentence"], style="bold", highlight=False)
        for sentence in (*facts["answer"]["sureness"], *facts["answer"]["advice"]):
            shown.print(f"  {sentence}", highlight=False)
        print_written(*_written(result.folder, fit_report(result.folder)))
    raise typer.Exit(0 if result.proved else 1 if result.machine is None else 3)


def seconds_of(text: str) -> float:
    """Return a duration such as 90, 90s, 3m or 1h in seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d*)?)\s*([smh]?)", text.strip())
    if match is None or float(match[1]) == 0:
        raise ValueError(f"--budget must be a time such as 90s, 3m or 1h; got {text!r}")
    return float(match[1]) * _UNITS[match[2] or "s"]


def _names(text: str) -> list[str] | None:
    """Return the names of recipes; None for all of them."""
    if text == "all":
        return None
    return [] if text == "none" else [name.strip() for name in text.split(",") if name.strip()]


class _Bars:
    """One bar for each thing that is being done, made when it begins."""

    def __init__(self, bars: Any) -> None:
        self.bars = bars
        self.tasks: dict[str, Any] = {}

    def __call__(self, name: str, done: int, total: int, words: str) -> None:
        if name not in self.tasks:
            self.tasks[name] = self.bars.add_task(name, total=total, words="")
        self.bars.update(self.tasks[name], completed=done, total=total, words=words)


def _written(folder: Path, report: list[Path]) -> list[Path]:
    kept = [folder / name for name in ("model", "machine.json", "certificate.json.gz", "record.json")]
    return [path for path in kept if path.exists()] + report
