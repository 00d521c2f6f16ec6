"""``transductor compile``: an automaton as a model that equals it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from transductor.cli.options import SOURCE_OR_TASK, Alphabet, As, Weights, abridged, automaton_or_machine
from transductor.cli.terminal import print_written, refusals


def compile_automaton(
    source: Annotated[str, typer.Argument(help=SOURCE_OR_TASK, show_default=False)],
    output: Annotated[Path, typer.Argument(help="Folder for the model.", show_default=False)],
    family: Annotated[str, typer.Option(help="Family of the head's matrices; auto is exact.")] = "auto",
    head: Annotated[str, typer.Option(help="rational, or lookback to read labels off the state before.")] = "rational",
    form: Annotated[
        str, typer.Option(help="model, head (without anything that reads it), or cascade (a stack of heads).")
    ] = "model",
    realisation: Annotated[str, typer.Option(help="regular (a coordinate per state) or smallest.")] = "regular",
    precision: Annotated[str, typer.Option(help="float32 or float64.")] = "float32",
    trainable: Annotated[bool, typer.Option("--trainable", help="A start for training: nothing is frozen.")] = False,
    as_: As = "auto",
    alphabet: Alphabet = None,
    weights: Weights = None,
) -> None:
    """Turn an automaton into a model that equals it on every word; nothing is trained."""
    import torch

    from transductor.checks import one_of
    from transductor.compilation import compile_cascade, compile_head, compile_model
    from transductor.model import save

    with refusals(TypeError, IndexError):
        one_of("--form", form, ("model", "head", "cascade"))
        one_of("--precision", precision, ("float32", "float64"))
        machine, letters = automaton_or_machine(source, alphabet, weights, as_)
        dtype = getattr(torch, precision)
        compiled: Any
        if form == "cascade":
            if (family, head, realisation, trainable) != ("auto", "rational", "regular", False):
                raise ValueError("--form cascade takes no --family, --head, --realisation or --trainable")
            compiled = compile_cascade(machine, dtype=dtype)  # type: ignore[arg-type]  # refuses a series
        else:
            into: Any = compile_model if form == "model" else compile_head
            compiled = into(
                machine, family=family, head=head, realisation=realisation, dtype=dtype, trainable=trainable
            )
        save(compiled, output, letters=[*map(str, letters)])
        typer.echo(f"{type(compiled).__name__}; {_how_exact(compiled)}")
        typer.echo("tokens: " + abridged([f"{number} = {letter}" for number, letter in enumerate(letters)], ", "))
    print_written(output)


def _how_exact(compiled: Any) -> str:
    from transductor.certification.exactness import exactness
    from transductor.certification.subjects import subject_of
    from transductor.model import StackedTransductor

    if isinstance(compiled, StackedTransductor):
        return f"a head for each of {len(compiled.heads)} level(s), exact at every length"
    if exactness(subject_of(compiled)[0]) is None:
        return "its states round: `transductor certify` says how far it holds"
    return "exact at every length"
