"""What commands share when they talk to a person: the console, progress bars, refusals and interruptions."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn

_NO_MEMORY = "DefaultCPUAllocator: "
_ARGUMENTS = re.compile(r"\b(labels|text_column|label_column)(?= must name)")  # on a shell these are options


def console(width_in_a_file: int | None = None, **options: Any) -> Console:
    """Return the console; outside a terminal it is wide enough that a table in a log file is not squeezed.

    Square brackets are text: rich would take ``[a]`` in a file name, a letter or ``transductor[cpu]`` for a colour.
    """
    from rich.console import Console

    terminal = Console(markup=False, **options)
    if width_in_a_file is None or terminal.is_terminal or "COLUMNS" in os.environ:
        return terminal
    return Console(markup=False, width=width_in_a_file, **options)


def progress(*columns: str | ProgressColumn, **options: Any) -> Progress:
    """Return progress bars with these columns: bar, count, elapsed, remaining, a column of rich, or a text."""
    from rich import progress as rich

    named: dict[str, Callable[[], ProgressColumn]] = {
        "bar": rich.BarColumn,
        "count": rich.MofNCompleteColumn,
        "elapsed": rich.TimeElapsedColumn,
        "remaining": rich.TimeRemainingColumn,
    }

    def made(column: str | ProgressColumn) -> ProgressColumn:
        if not isinstance(column, str):
            return column
        return named[column]() if column in named else rich.TextColumn(column, markup=False)

    return rich.Progress(*map(made, columns), **options)


def print_written(*paths: Path) -> None:
    """Print which files were written."""
    typer.echo("written: " + ", ".join(map(str, paths)))


def refusal(error: object, status: int = 2) -> typer.Exit:
    """Print an error as one line; the value returned ends the command with this exit status."""
    typer.echo(f"error: {_ARGUMENTS.sub(lambda name: '--' + name[0].replace('_', '-'), str(error))}", err=True)
    return typer.Exit(status)


@contextmanager
def refusals(*kinds: type[Exception]) -> Iterator[None]:
    """Answer bad values, unusable files, missing extras and errors of these kinds by one line and exit status 2."""
    refused: tuple[type[Exception], ...] = (ValueError, OSError, ImportError, *kinds)
    try:
        yield
    except BrokenPipeError:  # the reader of our output has ended, as `head` does: typer ends quietly then
        raise
    except refused as error:
        raise refusal(error) from None
    except (MemoryError, RuntimeError) as error:
        # Torch has no class of its own for a processor without memory; what it says begins so, or ends so.
        if not isinstance(error, MemoryError) and "out of memory" not in str(error) and _NO_MEMORY not in str(error):
            raise
        asked = re.search(r"allocate ([\d.]+ ?\w+)", str(error))
        wanted = f": {asked[1]} were asked for at once" if asked else ""
        advice = "try a smaller --batch-size, shorter sequences, or a model with --attention none or a window"
        raise refusal(f"there is not enough memory{wanted}; {advice}") from None


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show on a terminal that something is being done whose length is not known; elsewhere nothing is shown."""
    from rich.text import Text

    terminal = console(stderr=True)
    if not terminal.is_terminal:
        yield
        return
    with terminal.status(Text(f"{what} …")):  # rich reads colours out of a plain string
        yield


@contextmanager
def interruptions(message: Callable[[], str]) -> Iterator[None]:
    """Answer Ctrl-C by the message and exit status 130, SIGTERM and SIGHUP by theirs: 143 and 129.

    Where these two come while a model is trained, its state is saved first, and the message says so.
    """
    from transductor.endings import EndedBySignal, answered_signals

    try:
        with answered_signals():
            yield
    except EndedBySignal as ended:
        kept = "" if ended.saved is None else f" after the state of step {ended.step:,} was saved in {ended.saved}"
        with contextlib.suppress(OSError):  # SIGHUP comes when the terminal is gone
            typer.echo(f"{ended}{kept}: {message()}", err=True)
        raise typer.Exit(128 + ended.number) from None
    except KeyboardInterrupt:
        typer.echo(message(), err=True)
        raise typer.Exit(130) from None
