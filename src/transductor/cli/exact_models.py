"""``transductor compile``, ``extract``, ``harden``, ``certify``, ``look``: automata to models and back, on files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transductor.cli.refusals import refusals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from transductor.automata import DFA, MooreMachine, WeightedAutomaton
    from transductor.certification import AgreementCertificate

_SOURCE = (
    "A file (.json .att .txt .fst .dot .jff), regex:PATTERN, mso:FORMULA, wmso:FORMULA, task:NAME, or a name: "
    "see `transductor automaton list`."
)
_AS = "labels (a finite machine), series (the value of a word), or auto: labels where there are some."
Saved = Annotated[Path, typer.Argument(help="A folder written by transductor.save.", show_default=False)]
Alphabet = Annotated[
    str | None, typer.Option("--alphabet", "-a", help="The letters of an expression: ab, or with blanks: 'a b #'.")
]
Weights = Annotated[
    str | None, typer.Option("--weights", "-w", help="Weights of an AT&T file: rational, float, boolean, min_plus, …")
]
As = Annotated[str, typer.Option("--as", help=_AS)]
Words = Annotated[
    Path | None,
    typer.Option(help="What the model was trained for: token numbers, a sequence per line, equally long."),
]
TaskName = Annotated[
    str | None, typer.Option("--task", help="Instead of --words: sequences of a task, such as arithmetic:5.")
]
Length = Annotated[int, typer.Option(min=1, help="Of a task's sequences.")]
_SAMPLED = 4096


def compile_automaton(
    source: Annotated[str, typer.Argument(help=_SOURCE, show_default=False)],
    output: Annotated[Path, typer.Argument(help="Folder for the model.", show_default=False)],
    family: Annotated[str, typer.Option(help="Family of the head's matrices; auto is exact.")] = "auto",
    head: Annotated[str, typer.Option(help="rational, or lookback to read labels off the state before.")] = "rational",
    form: Annotated[
        str, typer.Option(help="model, head (without anything that reads it), or cascade (a stack of heads).")
    ] = "model",
    realisation: Annotated[str, typer.Option(help="regular (a coordinate per state) or smallest.")] = "regular",
    precision: Annotated[str, typer.Option(help="float32 or float64.")] = "float32",
    trainable: Annotated[bool, typer.Option("--trainable", help="A start for training, not frozen.")] = False,
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
        machine, letters = _opened(source, alphabet, weights, as_)
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
        save(compiled, output)
        typer.echo(f"{type(compiled).__name__}; {_how_exact(compiled)}")
        typer.echo("tokens: " + _shown([f"{number} = {letter}" for number, letter in enumerate(letters)], ", "))
    typer.echo(f"written: {output}")


def _how_exact(compiled: Any) -> str:
    from transductor.certification.exactness import exactness
    from transductor.certification.subjects import subject_of
    from transductor.model import StackedTransductor

    if isinstance(compiled, StackedTransductor):
        return f"a head for each of {len(compiled.heads)} level(s), exact at every length"
    found = exactness(subject_of(compiled)[0])
    return "its states round: `transductor certify` says how far it holds" if found is None else "exact at every length"


def extract(
    model: Saved,
    output: Annotated[
        Path, typer.Argument(help="File for the automaton, whose values are the labels.", show_default=False)
    ],
    words: Words = None,
    task: TaskName = None,
    length: Length = 50,
    label: Annotated[int | None, typer.Option(help="Write the language of the words with this label instead.")] = None,
    ask: Annotated[bool, typer.Option("--ask", help="Any model, by its answers alone: L*. Proves nothing.")] = False,
    max_states: Annotated[int, typer.Option(min=1, help="A machine with more is not looked for.")] = 2000,
) -> None:
    """Get the finite machine back that a trained model stands for."""
    from dataclasses import replace

    from transductor.automata import series_of_labels, write
    from transductor.automata.formats import SUFFIXES
    from transductor.model import load

    with refusals(TypeError, IndexError):
        able = [suffix for suffix, format in SUFFIXES.items() if format != "openfst"]  # which holds only costs
        if output.suffix.lower() not in able:
            raise ValueError(f"output must end in one of {', '.join(able)}; got {str(output)!r}")
        loaded = load(model)
        machine = _asked(loaded) if ask else _machine(loaded, _words(words, task, length), max_states)
        names: list[Any] = _letter_names(model, machine.letters)
        if SUFFIXES[output.suffix.lower()] == "att" and names == [*map(str, range(len(names)))]:
            names = list(range(1, len(names) + 1))
            typer.echo(
                "AT&T text keeps the number 0 for ε: token t is the letter t + 1; read it with --weights rational"
            )
        if label is None:
            written = write(series_of_labels(machine, names), output)
        else:
            if label not in machine.outputs:
                raise ValueError(f"--label must be one of {sorted(set(machine.outputs.tolist()))}; got {label}")
            written = write(replace(machine.recognising(label), alphabet=tuple(names)), output)
    typer.echo(f"written: {written}")


def _machine(model: Any, words: Tensor | None, max_states: int) -> MooreMachine:
    """By its states, with what was measured printed."""
    from transductor.extraction import extract as extracted
    from transductor.extraction import labelled
    from transductor.heads import RationalHead

    found = extracted(model, words=words, max_states=max_states)
    machine = found.machine
    typer.echo(
        f"{machine.states} states, {machine.letters} letters"
        + ("" if found.sink is None else f"; state {found.sink} stands for everything the words never showed")
    )
    typer.echo(f"spread       {found.spread:.3g}  (a typical state is 1)")
    typer.echo(f"separation   {found.separation:.3g}  ({found.ratio:.3g} times the spread)")
    typer.echo(f"agreement    {found.agreement:.2%} of the labels stay when representatives stand for states")
    if isinstance(model, RationalHead):
        typer.echo("a head has no labels: the values written are the numbers of the states")
    elif not found.labelled:
        answers = labelled(model, found, words=words)
        machine = answers.machine
        typer.echo(
            f"labels       those the model gives: {machine.states} states with their labels; "
            f"{answers.fit:.2%} of fresh words' labels agree"
        )
    return machine


def _asked(model: Any) -> MooreMachine:
    from transductor.extraction import extract_from_labels
    from transductor.model import SequenceModel

    if not isinstance(model, SequenceModel):
        raise TypeError(f"--ask needs a model that answers; got {type(model).__name__}")
    found = extract_from_labels(model, model.vocab_size)
    machine = found.machine
    typer.echo(f"{machine.states} states, {machine.letters} letters; {found.queries:,} words were asked for")
    typer.echo(
        f"{found.fit:.2%} of the labels of {found.words_tested:,} random words agree, up to length {found.longest}; "
        "nothing is known beyond"
    )
    return machine


def harden(
    model: Saved,
    output: Annotated[Path, typer.Argument(help="Folder for the hardened model.", show_default=False)],
    words: Words = None,
    task: TaskName = None,
    length: Length = 50,
    max_states: Annotated[int, typer.Option(min=1, help="A machine with more is not looked for.")] = 2000,
) -> None:
    """Make a trained model exact: its head becomes the machine it is near to; refused where none is."""
    import shutil

    from transductor.extraction import harden as hardened
    from transductor.model import load, save

    with refusals(TypeError, IndexError):
        if output.resolve() == model.resolve():
            raise ValueError("output must be another folder than the model's, which would be lost")
        found = hardened(load(model), words=_words(words, task, length), max_states=max_states)
        save(found.model, output)
        if (model / "data.json").exists():  # which words the tokens stand for
            shutil.copy(model / "data.json", output / "data.json")
    machine = found.extraction.machine
    typer.echo(
        f"{machine.states} states {found.extraction.separation:.3g} apart, spread {found.extraction.spread:.3g}; "
        f"{found.agreement:.2%} of the labels of words up to length 64 are the same"
    )
    typer.echo(f"written: {output}")


def certify(
    model: Annotated[Path | None, typer.Argument(help="A folder written by transductor.save.")] = None,
    against: Annotated[str | None, typer.Option(help=_SOURCE)] = None,
    domain: Annotated[str | None, typer.Option(help="The words that can occur, closed under prefixes.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the certificate here, as JSON.")] = None,
    horizon: Annotated[int, typer.Option(min=1, help="The longest words asked about without a proof for all.")] = 10**6,
    tolerance: Annotated[float, typer.Option(help="Of a series: relative to the sum over all paths.")] = 0.0,
    as_: As = "auto",
    alphabet: Alphabet = None,
    weights: Weights = None,
    check: Annotated[Path | None, typer.Option(help="A certificate to compute again, instead.")] = None,
    checked: Annotated[Path | None, typer.Option("--model", help="With --check: it must be about this model.")] = None,
) -> None:
    """Does a model agree with an automaton?  Exit status 0: it is proved or holds; 1: refuted; 2: no answer."""
    from transductor.certification import certify as certified
    from transductor.certification import check_certificate
    from transductor.model import load

    with refusals(TypeError, IndexError):
        if model is not None and checked is not None:
            raise ValueError("--model is the model given already; give it once")
        folder = checked if model is None else model
        loaded = None if folder is None else load(folder)
        if check is not None:
            if against is not None or output is not None or domain is not None:
                raise ValueError("--check takes the question from its certificate: no --against, --domain or --output")
            certificate = check_certificate(check, loaded)
            about = "" if folder is None else f", and is about {folder}"
            typer.echo(f"checked: everything in {check} follows from its numbers{about}")
        else:
            if loaded is None or against is None:
                raise ValueError("a model and --against are needed, or --check with a certificate")
            kind = "series" if as_ == "auto" and _one_output(loaded) else as_
            certificate = certified(
                loaded,
                against=_opened(against, alphabet, weights, kind)[0],
                domain=None if domain is None else _opened(domain, alphabet, weights, "labels")[0],  # type: ignore[arg-type]
                horizon=horizon,
                tolerance=tolerance,
            )
        _print(certificate)
        if output is not None:
            typer.echo(f"written: {certificate.write(output)}")
    raise typer.Exit(0 if certificate.holds else 1)


def _print(certificate: AgreementCertificate) -> None:
    typer.echo(f"{certificate.verdict}: {certificate.claim}")
    typer.echo(f"how:      {certificate.method}")
    if certificate.evidence.word is not None:
        blocks = [
            " ".join(map(str, letters)) if times == 1 else f"({' '.join(map(str, letters))})^{times}"
            for letters, times in certificate.evidence.word
        ]
        typer.echo(f"word:     {_shown(blocks, ' ')}")
    if certificate.margin is not None:
        typer.echo(f"margin:   {certificate.margin:.4g}")
    for number, assumption in enumerate(certificate.assumptions):
        typer.echo(f"{'assumes:  ' if number == 0 else '          '}{assumption}")


def look(
    model: Saved,
    output: Annotated[Path, typer.Option("--output", "-o", help="The figure: .png, .svg or .pdf.")] = Path("look.png"),
    against: Annotated[str | None, typer.Option(help=_SOURCE)] = None,
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
        target: Any = None if against is None else _opened(against, alphabet, weights, "labels")[0]
        head = getattr(loaded, "rational_head", loaded)
        tokens = getattr(getattr(head, "transitions", None), "vocab_size", None)
        names = None if tokens is None else _letter_names(model, tokens)
        found = portrait(loaded, target, _words(words, task, length), letters=names)
        written = [portrait_figure(found, output)] + ([] if data is None else [found.write(data)])
    typer.echo(found.title)
    typer.echo(found.summary or found.refusal)
    if found.compared:
        word = found.separating_word
        typer.echo("the learned machine is the target" if word is None else f"other than the target after {word}")
    typer.echo("written: " + ", ".join(map(str, written)))


def _opened(
    source: str, alphabet: str | None, weights: str | None, kind: str
) -> tuple[DFA | MooreMachine | WeightedAutomaton, Sequence[Any]]:
    """The automaton of a source, and its letters."""
    from transductor.automata import labels_of_series
    from transductor.automata.sources import automaton_from
    from transductor.checks import one_of
    from transductor.tasks import task_named

    one_of("--as", kind, ("auto", "labels", "series"))
    if source.startswith("task:"):
        machine = task_named(source.removeprefix("task:")).automaton()
        if machine is None:
            raise ValueError(f"{source} has no finite machine")
        return machine, range(machine.letters)
    letters = None if alphabet is None else (alphabet.split() if " " in alphabet else list(alphabet))
    series = automaton_from(source, letters, **({} if weights is None else {"weights": weights}))
    found = None if kind == "series" and series.weights.name != "boolean" else labels_of_series(series)
    if found is None and kind == "labels":
        raise ValueError(
            f"{source} is no finite machine with labels: it must have one initial state, at most one step of weight 1 "
            "for each state and letter, and whole numbers from 0 as final weights"
        )
    return (series if found is None else found), series.alphabet


def _words(path: Path | None, task: str | None, length: int) -> Tensor | None:
    import torch

    from transductor.tasks import task_named

    if path is not None and task is not None:
        raise ValueError("one of --words and --task is enough")
    if task is not None:
        return task_named(task).sample(_SAMPLED, length, torch.Generator().manual_seed(0))
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


def _letter_names(folder: Path, count: int) -> list[str]:
    """As the data the model was trained on calls its tokens; their numbers where that is not known."""
    import json

    if not (folder / "data.json").exists():
        return [str(token) for token in range(count)]
    try:
        names = json.loads((folder / "data.json").read_text(encoding="utf-8"))["vocabulary"]["tokens"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{folder / 'data.json'} does not describe data: {error}") from None
    if not isinstance(names, list) or len(names) != count:
        raise ValueError(f"{folder / 'data.json'} does not describe data of {count} tokens")
    return list(map(str, names))


def _one_output(model: Any) -> bool:
    from transductor.model import RationalReadout

    return isinstance(model, RationalReadout) and model.readout.out_features == 1


def _shown(parts: Sequence[str], between: str) -> str:
    return between.join(parts[:40]) + (f"{between}…" if len(parts) > 40 else "")
