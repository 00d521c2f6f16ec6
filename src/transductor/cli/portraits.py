"""``transductor look``: a head as one figure."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from transductor.cli.options import Alphabet, SavedModel, Weights
from transductor.cli.sources import (
    SOURCE_OR_TASK,
    Length,
    TaskName,
    Words,
    automaton_or_machine,
    letter_names,
    words_of,
)
from transductor.cli.terminal import print_written, refusals


def look(
    model: SavedModel,
    output: Annotated[Path, typer.Option("--output", "-o", help="The figure: .png, .svg or .pdf.")] = Path("look.png"),
    against: Annotated[str | None, typer.Option(help=SOURCE_OR_TASK)] = None,
    words: Words = None,
    task: TaskName = None,
    length: Length = 50,
    data: Annotated[Path | None, typer.Option(help="Write the numbers of the figure here, as JSON.")] = None,
    alphabet: Alphabet = None,
    weights: Weights = None,
) -> None:
    """Draw a head: trajectory, eigenvalues, leak per letter, drift against length, its machine beside the target."""
    from transductor.model import load
    from transductor.portraits import portrait
    from transductor.report import portrait_figure

    with refusals(TypeError, IndexError):
        loaded = load(model)
        target: Any = None if against is None else automaton_or_machine(against, alphabet, weights, "labels")[0]
        head = getattr(loaded, "rational_head", loaded)
        tokens = getattr(getattr(head, "transitions", None), "vocab_size", None)
        names = None if tokens is None else letter_names(model, tokens)
        drawn = portrait(loaded, target, words_of(words, task, length), letters=names)
        written = [portrait_figure(drawn, output)] + ([] if data is None else [drawn.write(data)])
    typer.echo(drawn.title)
    typer.echo(drawn.summary or drawn.refusal)
    if drawn.compared:
        word = drawn.separating_word
        typer.echo("the learned machine is the target" if word is None else f"other than the target after {word}")
    print_written(*written)
