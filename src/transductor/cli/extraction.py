"""``transductor extract``, ``harden`` and ``look``: the finite machine behind a trained model."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transductor.cli.models import model_folder
from transductor.cli.options import (
    SOURCE_OR_TASK,
    Alphabet,
    Length,
    Output,
    SavedModel,
    TaskName,
    Weights,
    Words,
    chosen_output,
)
from transductor.cli.own_words import Accept, OwnWords, own_automaton, own_words, words_of, words_of_data
from transductor.cli.terminal import print_written, refusals, working

if TYPE_CHECKING:
    from transductor.automata import MooreMachine

MostStates = Annotated[int, typer.Option("--max-states", min=1, help="A machine with more states is not looked for.")]
_WAYS = {
    "walk": "a walk through the states of its head",
    "reduced walk": "a walk through the states of its head, without the dimensions that are hardly used",
    "questions": "its answers (L*), with counterexamples from the words; nothing is known of longer words",
}


def extract(
    model: SavedModel,
    output: Annotated[
        Path | None, typer.Argument(help="File for the automaton, whose values are the labels.", show_default=False)
    ] = None,
    output_option: Output = None,
    words: Words = None,
    task: TaskName = None,
    length: Length = 50,
    label: Annotated[
        str | None, typer.Option(help="Write the language of the words of this class, or with this label, instead.")
    ] = None,
    ask: Annotated[bool, typer.Option("--ask", help="Any model, by its answers alone: L*. Proves nothing.")] = False,
    max_states: MostStates = 2000,
) -> None:
    """Write the finite machine that a trained model stands for."""
    from transductor.automata import series_of_labels, write
    from transductor.automata.formats import SUFFIXES
    from transductor.model import load

    with refusals(TypeError, IndexError):
        file = chosen_output(output, output_option)
        allowed = [suffix for suffix, format in SUFFIXES.items() if format != "openfst"]  # OpenFst holds only costs
        if file.suffix.lower() not in allowed:
            raise ValueError(f"output must end in one of {', '.join(allowed)}; got {str(file)!r}")
        folder = model_folder(model)
        loaded = load(folder)
        own = own_words(folder, loaded)
        if ask:
            with working("asking the model"):
                machine, measured = _machine_by_answers(loaded, own)
        else:
            with working("looking for the machine"):
                known = _known_words(words, task, length, own)
                machine, measured = _machine_by_states(loaded, own, known, max_states)
        for line in measured:
            typer.echo(line)
        names: list[Any] = [*own.alphabet.letter_names]
        if SUFFIXES[file.suffix.lower()] == "att" and names == [*map(str, range(len(names)))]:
            names = list(range(1, len(names) + 1))
            typer.echo(
                "AT&T text keeps the number 0 for ε: token t is the letter t + 1; read it with --weights rational, and "
                f"certify against it with --letters '{' '.join(map(str, names))}'"
            )
        if label is None:
            if own.classes is not None:
                typer.echo("values       " + ", ".join(f"{number}: {name}" for number, name in enumerate(own.classes)))
            written = write(series_of_labels(machine, names), file)
        else:
            chosen = own.class_named("--label", label)
            if chosen not in machine.outputs:
                raise ValueError(f"--label must be one of {sorted(set(machine.outputs.tolist()))}; got {label}")
            written = write(replace(machine.recognising(chosen), alphabet=tuple(names)), file)
    print_written(written)


def _known_words(words: Path | None, task: str | None, length: int, own: OwnWords) -> dict[str, Any]:
    """Return the words that a machine is looked for with: those given, or else those that the model was trained on."""
    given = words_of(words, task, length, own)
    return {"words": given, "examples": words_of_data(own) if given is None else None}


def _machine_by_states(
    model: Any, own: OwnWords, words: dict[str, Any], max_states: int
) -> tuple[MooreMachine, list[str]]:
    """Extract a machine from the states of a head, and say what was measured."""
    from transductor.extraction import extract as extracted
    from transductor.extraction import labelled
    from transductor.heads import RationalHead

    extraction = extracted(model, **words, alphabet=own.alphabet, max_states=max_states)
    machine, sink = extraction.machine, extraction.sink
    measured = [
        f"{machine.states} states, {machine.letters} letters"
        + ("" if sink is None else f"; state {sink} stands for everything the words never showed"),
        f"known from   {_WAYS[extraction.way]}",
        f"spread       {extraction.spread:.3g}  (a typical state is 1)",
        f"separation   {extraction.separation:.3g}  ({extraction.ratio:.3g} times the spread)",
        f"agreement    {extraction.agreement:.2%} of the labels stay when representatives stand for states",
    ]
    if isinstance(model, RationalHead):
        measured.append("a head has no labels: the values written are the numbers of the states")
    elif not extraction.labelled:
        answers = labelled(model, extraction, words=words["words"] or words["examples"])
        machine = answers.machine
        measured.append(
            f"labels       those the model gives: {machine.states} states with their labels; "
            f"{answers.fit:.2%} of fresh words' labels agree"
        )
    return machine, measured


def _machine_by_answers(model: Any, own: OwnWords) -> tuple[MooreMachine, list[str]]:
    """Learn a machine from the answers of a model alone, and say how well it fits."""
    from transductor.extraction import extract_from_labels
    from transductor.model import SequenceModel

    if not isinstance(model, SequenceModel):
        raise TypeError(f"--ask needs a model that answers; got {type(model).__name__}")
    answers = extract_from_labels(model, own.alphabet)
    machine = answers.machine
    return machine, [
        f"{machine.states} states, {machine.letters} letters; {answers.queries:,} words were asked for",
        f"{answers.fit:.2%} of the labels of {answers.words_tested:,} random words agree, up to length "
        f"{answers.longest}; nothing is known beyond",
    ]


def harden(
    model: SavedModel,
    output: Annotated[Path | None, typer.Argument(help="Folder for the hardened model.", show_default=False)] = None,
    output_option: Output = None,
    words: Words = None,
    task: TaskName = None,
    length: Length = 50,
    max_states: MostStates = 2000,
) -> None:
    """Make a trained model exact: its head becomes the machine it is near to; refused where none is.

    Of a model that was trained from a file, <start> is read first as before; <end>, <unknown> and any further <start>
    leave the state as it is.
    """
    from transductor.extraction import harden as hardened
    from transductor.model import letters_of, load, save
    from transductor.model.storage import classes_of

    with refusals(TypeError, IndexError):
        target, folder = chosen_output(output, output_option), model_folder(model)
        if target.resolve() == folder.resolve():
            raise ValueError("output must be another folder than the model's, which would be lost")
        loaded = load(folder)
        own = own_words(folder, loaded)
        known = _known_words(words, task, length, own)
        with working("looking for the machine"):
            hardening = hardened(loaded, **known, alphabet=own.alphabet, max_states=max_states)
        save(hardening.model, target, letters=letters_of(folder), classes=classes_of(folder))
        if (folder / "data.json").exists():  # which words the tokens stand for
            shutil.copy(folder / "data.json", target / "data.json")
    extraction = hardening.extraction
    typer.echo(
        f"{extraction.machine.states} states {extraction.separation:.3g} apart, spread {extraction.spread:.3g}; "
        f"{hardening.agreement:.2%} of the labels of held-out words up to length 64 are the same"
    )
    typer.echo(f"known from {_WAYS[extraction.way]}")
    print_written(target)


def look(
    model: SavedModel,
    output: Annotated[Path, typer.Option("--output", "-o", help="The figure: .png, .svg or .pdf.")] = Path("look.png"),
    against: Annotated[str | None, typer.Option(help=SOURCE_OR_TASK)] = None,
    words: Words = None,
    task: TaskName = None,
    length: Length = 50,
    drift: Annotated[int, typer.Option(min=1, help="How many letters drift is followed for.")] = 10_000,
    data: Annotated[Path | None, typer.Option(help="Write the numbers of the figure here, as JSON.")] = None,
    accept: Accept = None,
    alphabet: Alphabet = None,
    weights: Weights = None,
) -> None:
    """Draw a head: trajectory, eigenvalues, leak per letter, drift against length, its machine beside the target."""
    from transductor.model import load
    from transductor.portraits import portrait
    from transductor.report import portrait_figure

    with refusals(TypeError, IndexError):
        folder = model_folder(model)
        loaded = load(folder)
        own = own_words(folder, loaded)
        target: Any = None
        if against is not None:
            target = own_automaton(against, own, alphabet, weights, "labels", accept)
        known = _known_words(words, task, length, own)
        with working("looking at the head"):
            drawn = portrait(loaded, target, **known, alphabet=own.alphabet, classes=own.classes, length=drift)
        written = [portrait_figure(drawn, output)] + ([] if data is None else [drawn.write(data)])
    typer.echo(drawn.title)
    typer.echo(drawn.summary or drawn.refusal)
    if drawn.compared:
        word = drawn.separating_word
        spelled = "ε" if word == [] else " ".join(drawn.letters[letter] for letter in word or ())
        typer.echo("the learned machine is the target" if word is None else f"other than the target after {spelled}")
    print_written(*written)
