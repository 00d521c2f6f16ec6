"""``transductor extract``, ``harden`` and ``look``: the finite machine behind a trained model."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transductor.cli.options import (
    SOURCE_OR_TASK,
    Alphabet,
    Length,
    SavedModel,
    TaskName,
    Weights,
    Words,
    automaton_or_machine,
    letter_names,
    words_of,
)
from transductor.cli.terminal import print_written, refusals

if TYPE_CHECKING:
    from torch import Tensor

    from transductor.automata import MooreMachine

MostStates = Annotated[int, typer.Option("--max-states", min=1, help="A machine with more states is not looked for.")]


def extract(
    model: SavedModel,
    output: Annotated[
        Path, typer.Argument(help="File for the automaton, whose values are the labels.", show_default=False)
    ],
    words: Words = None,
    task: TaskName = None,
    length: Length = 50,
    label: Annotated[int | None, typer.Option(help="Write the language of the words with this label instead.")] = None,
    ask: Annotated[bool, typer.Option("--ask", help="Any model, by its answers alone: L*. Proves nothing.")] = False,
    max_states: MostStates = 2000,
) -> None:
    """Write the finite machine that a trained model stands for."""
    from transductor.automata import series_of_labels, write
    from transductor.automata.formats import SUFFIXES
    from transductor.model import load

    with refusals(TypeError, IndexError):
        allowed = [suffix for suffix, format in SUFFIXES.items() if format != "openfst"]  # OpenFst holds only costs
        if output.suffix.lower() not in allowed:
            raise ValueError(f"output must end in one of {', '.join(allowed)}; got {str(output)!r}")
        loaded = load(model)
        if ask:
            machine = _machine_by_answers(loaded)
        else:
            machine = _machine_by_states(loaded, words_of(words, task, length), max_states)
        names: list[Any] = letter_names(model, machine.letters)
        if SUFFIXES[output.suffix.lower()] == "att" and names == [*map(str, range(len(names)))]:
            names = list(range(1, len(names) + 1))
            typer.echo(
                "AT&T text keeps the number 0 for ε: token t is the letter t + 1; read it with --weights rational, and "
                f"certify against it with --letters '{' '.join(map(str, names))}'"
            )
        if label is None:
            written = write(series_of_labels(machine, names), output)
        else:
            if label not in machine.outputs:
                raise ValueError(f"--label must be one of {sorted(set(machine.outputs.tolist()))}; got {label}")
            written = write(replace(machine.recognising(label), alphabet=tuple(names)), output)
    print_written(written)


def _machine_by_states(model: Any, words: Tensor | None, max_states: int) -> MooreMachine:
    """Extract a machine from the states of a head, and print what was measured."""
    from transductor.extraction import extract as extracted
    from transductor.extraction import labelled
    from transductor.heads import RationalHead

    extraction = extracted(model, words=words, max_states=max_states)
    machine, sink = extraction.machine, extraction.sink
    typer.echo(
        f"{machine.states} states, {machine.letters} letters"
        + ("" if sink is None else f"; state {sink} stands for everything the words never showed")
    )
    typer.echo(f"spread       {extraction.spread:.3g}  (a typical state is 1)")
    typer.echo(f"separation   {extraction.separation:.3g}  ({extraction.ratio:.3g} times the spread)")
    typer.echo(f"agreement    {extraction.agreement:.2%} of the labels stay when representatives stand for states")
    if isinstance(model, RationalHead):
        typer.echo("a head has no labels: the values written are the numbers of the states")
    elif not extraction.labelled:
        answers = labelled(model, extraction, words=words)
        machine = answers.machine
        typer.echo(
            f"labels       those the model gives: {machine.states} states with their labels; "
            f"{answers.fit:.2%} of fresh words' labels agree"
        )
    return machine


def _machine_by_answers(model: Any) -> MooreMachine:
    """Learn a machine from the answers of a model alone, and print how well it fits."""
    from transductor.extraction import extract_from_labels
    from transductor.model import SequenceModel

    if not isinstance(model, SequenceModel):
        raise TypeError(f"--ask needs a model that answers; got {type(model).__name__}")
    answers = extract_from_labels(model, model.vocab_size)
    machine = answers.machine
    typer.echo(f"{machine.states} states, {machine.letters} letters; {answers.queries:,} words were asked for")
    typer.echo(
        f"{answers.fit:.2%} of the labels of {answers.words_tested:,} random words agree, up to length "
        f"{answers.longest}; nothing is known beyond"
    )
    return machine


def harden(
    model: SavedModel,
    output: Annotated[Path, typer.Argument(help="Folder for the hardened model.", show_default=False)],
    words: Words = None,
    task: TaskName = None,
    length: Length = 50,
    max_states: MostStates = 2000,
) -> None:
    """Make a trained model exact: its head becomes the machine it is near to; refused where none is."""
    from transductor.extraction import harden as hardened
    from transductor.model import letters_of, load, save

    with refusals(TypeError, IndexError):
        if output.resolve() == model.resolve():
            raise ValueError("output must be another folder than the model's, which would be lost")
        hardening = hardened(load(model), words=words_of(words, task, length), max_states=max_states)
        save(hardening.model, output, letters=letters_of(model))
        if (model / "data.json").exists():  # which words the tokens stand for
            shutil.copy(model / "data.json", output / "data.json")
    extraction = hardening.extraction
    typer.echo(
        f"{extraction.machine.states} states {extraction.separation:.3g} apart, spread {extraction.spread:.3g}; "
        f"{hardening.agreement:.2%} of the labels of held-out words up to length 64 are the same"
    )
    print_written(output)


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
