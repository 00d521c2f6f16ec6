"""Options that several commands take, and how their values are read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transductor.cli.terminal import refusal

if TYPE_CHECKING:
    from torch import Tensor

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
_FORMATS = "A file (.json .att .txt .fst .dot .jff), regex:PATTERN, mso:FORMULA, wmso:FORMULA,"
SOURCE = f"{_FORMATS} or a name: see `list`."
SOURCE_OR_TASK = f"{_FORMATS} task:NAME, or a name: see `transductor automaton list`."
_AS = "labels (a finite machine), series (the value of a word), or auto: labels where there are some."
As = Annotated[str, typer.Option("--as", help=_AS)]
Words = Annotated[
    Path | None,
    typer.Option(help="What the model was trained for: token numbers, a sequence per line, equally long."),
]
TaskName = Annotated[
    str | None, typer.Option("--task", help="Instead of --words: sequences of a task, such as arithmetic:5.")
]
Length = Annotated[int, typer.Option(min=1, help="Length of a task's sequences.")]
_SEQUENCES_OF_A_TASK = 4096
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


def automaton_of(source: str, alphabet: str | None, weights: str | None) -> WeightedAutomaton:
    """Return the automaton that a source names."""
    from transductor.automata.sources import automaton_from

    letters = None if alphabet is None else split_letters(alphabet)
    return automaton_from(source, letters, **({} if weights is None else {"weights": weights}))


def automaton_or_machine(
    source: str, alphabet: str | None, weights: str | None, kind: str
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


def words_of(path: Path | None, task: str | None, length: int) -> Tensor | None:
    """Return the words of a file or of a task, one per row; None without either."""
    import torch

    from transductor.tasks import task_named

    if path is not None and task is not None:
        raise ValueError("one of --words and --task is enough")
    if task is not None:
        return task_named(task).sample(_SEQUENCES_OF_A_TASK, length, torch.Generator().manual_seed(0))
    if path is None:
        return None
    rows: list[list[int]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            row = [int(token) for token in line.split()]
        except ValueError:
            raise ValueError(f"{path}, line {number}: tokens must be whole numbers; got {line[:40]!r}") from None
        if not row or (rows and len(row) != len(rows[0])):
            wanted = f"{len(rows[0])} tokens, as line 1 has" if rows else "at least one token"
            raise ValueError(f"{path}, line {number}: there must be {wanted}; got {len(row)}")
        rows.append(row)
    if not rows:
        raise ValueError(f"{path} has no sequences")
    return torch.tensor(rows)


def split_letters(text: str) -> list[str]:
    """Return letters written together, or with blanks between them."""
    return text.split() if " " in text else list(text)


def letter_names(folder: Path, count: int) -> list[str]:
    """Return the names that the checkpoint or the training data gave the tokens; their numbers where there are none."""
    from transductor.model import letters_of

    names: Any = letters_of(folder)
    origin = folder / "config.json"
    if names is None and (folder / "data.json").exists():
        origin = folder / "data.json"
        try:
            names = json.loads(origin.read_text(encoding="utf-8"))["vocabulary"]["tokens"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{origin} does not describe data: {error}") from None
    if names is None:
        return [str(token) for token in range(count)]
    if not isinstance(names, list | tuple) or len(names) != count:
        raise ValueError(f"{origin} does not describe data of {count} tokens")
    return list(map(str, names))


def token_names(folder: Path | None, letters: str | None, model: Any) -> list[str]:
    """Return the names of a model's tokens: those it was saved with, or those that ``--letters`` gives."""
    head = getattr(model, "rational_head", model)
    count = getattr(getattr(head, "transitions", model), "vocab_size", None) or 0
    saved = [str(token) for token in range(count)] if folder is None else letter_names(folder, count)
    if letters is None:
        return saved
    if saved != [str(token) for token in range(count)]:
        raise ValueError(f"--letters is for models without names; this one has {abridged(saved, ', ')}")
    return split_letters(letters)


def abridged(parts: Sequence[str], between: str) -> str:
    """Join at most forty parts."""
    return between.join(parts[:_MOST_PRINTED]) + (f"{between}…" if len(parts) > _MOST_PRINTED else "")
