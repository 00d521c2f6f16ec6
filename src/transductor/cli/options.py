"""Options that several commands take, and how their values are read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transductor.cli.terminal import refusal

if TYPE_CHECKING:
    from transductor.automata import DFA, MooreMachine, WeightedAutomaton

Alphabet = Annotated[
    str | None, typer.Option("--alphabet", "-a", help="The letters of an expression: ab, or with blanks: 'a b #'.")
]
Weights = Annotated[
    str | None, typer.Option("--weights", "-w", help="Weights of an AT&T file: rational, float, boolean, min_plus, …")
]
Letters = Annotated[
    str | None,
    typer.Option("--letters", help="Names of the model's tokens 0, 1, …, where it has none: ab, or 'a b #'."),
]
SavedModel = Annotated[Path, typer.Argument(help="A folder written by transductor.save.", show_default=False)]
_FORMATS = "A file (.json .att .txt .fst .dot .jff .regex .mso .fo .wmso), regex:PATTERN, mso:FORMULA, wmso:FORMULA,"
SOURCE = f"{_FORMATS} or a name: see `list`."
SOURCE_OR_TASK = f"{_FORMATS} task:NAME, or a name: see `transductor automaton list`."
_AS = "labels (a finite machine), series (the value of a word), or auto: labels where there are some."
As = Annotated[str, typer.Option("--as", help=_AS)]
Words = Annotated[
    Path | None,
    typer.Option(
        help="What the model was trained for, spelled as in its data: a sequence per line, .jsonl or .csv. Letters are "
        "taken to follow each other as they do here."
    ),
]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="The same as OUTPUT, which can then be left out.")]
TaskName = Annotated[
    str | None, typer.Option("--task", help="Instead of --words: sequences of a task, such as arithmetic:5.")
]
Length = Annotated[int, typer.Option(min=1, help="Length of a task's sequences.")]
_MOST_PRINTED = 40


def chosen_device(device: str) -> str:
    """Return ``cpu`` or ``cuda`` as asked for; ``auto`` is CUDA where there is one."""
    import torch

    if device not in ("auto", "cpu", "cuda"):
        raise refusal(f"--device must be auto, cpu or cuda; got {device!r}")
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return check_torch_device(device)


def check_torch_device(device: str) -> str:
    """Return a device; end the command with one line where torch cannot make a tensor on it."""
    if device != "cpu":
        import torch

        try:
            torch.empty(1, device=device)
        except (RuntimeError, AssertionError) as error:
            raise refusal(f"--device {device} cannot be used here: {str(error).splitlines()[0]}") from None
    return device


TorchDevice = Annotated[str, typer.Option("--device", help="cpu, cuda, …", callback=check_torch_device)]


def chosen_output(argument: Path | None, option: Path | None, name: str = "OUTPUT") -> Path:
    """Return where to write: as an argument or as ``--output``, once."""
    if (argument is None) == (option is None):
        raise ValueError(f"{name} must be given once: as an argument, or as --output (-o)")
    return argument or option or Path()


def automaton_of(source: str, alphabet: str | Sequence[str] | None, weights: str | None) -> WeightedAutomaton:
    """Return the automaton that a source names."""
    from transductor.automata.sources import automaton_from

    letters = split_letters(alphabet) if isinstance(alphabet, str) else alphabet
    return automaton_from(source, letters, **({} if weights is None else {"weights": weights}))


def automaton_or_machine(
    source: str, alphabet: str | Sequence[str] | None, weights: str | None, kind: str
) -> tuple[DFA | MooreMachine | WeightedAutomaton, Sequence[Any]]:
    """Return the automaton, or the finite machine with labels, that a source or task names, and its letters."""
    from transductor.automata import labels_of_series
    from transductor.checks import one_of
    from transductor.tasks import task_named

    one_of("--as", kind, ("auto", "labels", "series"))
    if source.startswith("task:"):
        machine = task_named(source.removeprefix("task:")).automaton()
        if machine is None:
            raise ValueError(f"{source} has no finite machine")
        return machine, range(machine.letters)
    series = automaton_of(source, alphabet, weights)
    labelled = None if kind == "series" and series.weights.name != "boolean" else labels_of_series(series)
    if labelled is None and kind == "labels":
        raise ValueError(
            f"{source} is no finite machine with labels: it must have one initial state, at most one step of weight 1 "
            "for each state and letter, and whole numbers from 0 as final weights"
        )
    return (series if labelled is None else labelled), series.alphabet


def split_letters(text: str) -> list[str]:
    """Return letters written together, or with blanks between them."""
    return text.split() if " " in text else list(text)


def abridged(parts: Sequence[str], between: str) -> str:
    """Join at most forty parts."""
    return between.join(parts[:_MOST_PRINTED]) + (f"{between}…" if len(parts) > _MOST_PRINTED else "")
