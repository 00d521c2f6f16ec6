"""``transductor certify``: whether a model agrees with an automaton, with the certificate."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transductor.cli.models import model_folder
from transductor.cli.options import SOURCE_OR_TASK, Alphabet, As, Letters, Weights, abridged
from transductor.cli.own_words import Accept, OwnWords, own_automaton, own_words, token_tables
from transductor.cli.terminal import print_written, refusals, working

if TYPE_CHECKING:
    from transductor.automata import MooreMachine, WeightedAutomaton
    from transductor.certification import AgreementCertificate


def certify(
    model: Annotated[Path | None, typer.Argument(help="A folder written by transductor.save.")] = None,
    against: Annotated[str | None, typer.Option(help=SOURCE_OR_TASK)] = None,
    domain: Annotated[str | None, typer.Option(help="The words that can occur, closed under prefixes.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the certificate here, as JSON.")] = None,
    rocq: Annotated[
        Path | None, typer.Option("--rocq", help="Write what is proved as a .v file that Rocq accepts by computation.")
    ] = None,
    horizon: Annotated[int, typer.Option(min=1, help="The longest words asked about without a proof for all.")] = 10**6,
    tolerance: Annotated[
        float, typer.Option(help="Error allowed for a series, relative to the sum over all paths.")
    ] = 0.0,
    as_: As = "auto",
    accept: Accept = None,
    nonempty: Annotated[bool, typer.Option("--nonempty", help="Say nothing of the empty word.")] = False,
    alphabet: Alphabet = None,
    weights: Weights = None,
    letters: Letters = None,
    tables: Annotated[
        Path | None,
        typer.Option(
            "--tables", help="Folder: write specification and domain over the model's tokens, for checker.py."
        ),
    ] = None,
    check: Annotated[
        Path | None, typer.Option(help="Instead: a certificate to compute again; with --model and --against, of these.")
    ] = None,
    checked: Annotated[Path | None, typer.Option("--model", help="With --check: it must be about this model.")] = None,
) -> None:
    """Does a model agree with an automaton?  Letters and classes are matched by name.

    A model that was trained from a file is asked about <start> and then letters; an automaton over its letters is read
    that way, and what else could come is outside of the domain.

    Exit status 0: proved, for all lengths; 1: refuted; 2: no answer; 3: holds up to a length.  Where only the head was
    analysed, 4: separated (token and state determine the label); 5: confused.
    """
    from transductor.automata import MooreMachine
    from transductor.certification import certify as certified
    from transductor.certification import check_certificate
    from transductor.model import load
    from transductor.results import write_atomically

    with refusals(TypeError, IndexError):
        if model is not None and checked is not None:
            raise ValueError("the model is an argument already, and --model names it again; give it once")
        given = checked if model is None else model
        folder = None if given is None else model_folder(given)
        loaded = None if folder is None else load(folder)
        if check is not None:
            if output is not None or domain is not None or tables is not None:
                raise ValueError("--check takes the question from its certificate: no --domain, --output or --tables")
            machine, own = None, None
            if against is not None:
                own = _own(folder, loaded, letters, nonempty) if folder is not None else _own_of_certificate(check)
                machine = _lifted(own_automaton(against, own, alphabet, weights, as_, accept), own)
            names = None if own is None else [*own.alphabet.names]
            certificate = check_certificate(check, loaded, machine, letters=names)
            about = [f"about {each}" for each in (given, against) if each is not None]
            typer.echo(
                f"checked: everything in {check} follows from its numbers{''.join(f', it is {each}' for each in about)}"
            )
            if len(about) < 2:
                missing = " and ".join(["--model"] * (folder is None) + ["--against"] * (against is None))
                typer.echo(f"          whether it is about a model and a specification of yours: give {missing}")
        else:
            if loaded is None or against is None:
                raise ValueError("a model and --against are needed, or --check with a certificate")
            kind = "series" if as_ == "auto" and _one_output(loaded) else as_
            own = _own(folder, loaded, letters, nonempty)
            target = _lifted(own_automaton(against, own, alphabet, weights, kind, accept), own)
            inside = own.alphabet.domain()
            if domain is not None:
                inside = _inside(own_automaton(domain, replace(own, classes=None), alphabet, weights, "labels"), own)
            with working("certifying"):
                certificate = certified(
                    loaded,
                    against=target,
                    domain=inside,
                    horizon=horizon,
                    tolerance=tolerance,
                    letters=own.alphabet.names,
                    classes=own.classes,
                )
            if own.alphabet.restricted:
                typer.echo(f"domain:   {own.described()}")
            if tables is not None:
                if not isinstance(target, MooreMachine):
                    raise ValueError("--tables is for machines with labels; this automaton has values")
                tables.mkdir(parents=True, exist_ok=True)
                written = {"specification": target} | ({} if inside is None else {"domain": inside})
                print_written(
                    *(
                        write_atomically(tables / f"{name}.json", token_tables(each, own.alphabet.names))
                        for name, each in written.items()
                    )
                )
        _print(certificate)
        if output is not None:
            print_written(certificate.write(output))
        if rocq is not None:
            from transductor.certification.rocq import write_rocq

            if certificate.model is None:
                raise ValueError("--rocq needs a certificate that names its checkpoint")
            print_written(write_rocq(certificate, rocq, model_sha256=certificate.model["sha256"]))
    raise typer.Exit(_status(certificate))


def _status(certificate: AgreementCertificate) -> int:
    """Return the exit status, one for each word."""
    if certificate.about == "head":
        return 5 if certificate.outcome == "confused" else 4
    return {"proved": 0, "refuted": 1, "bounded": 3}[certificate.outcome]


def _own(folder: Path | None, model: Any, letters: str | None, nonempty: bool) -> OwnWords:
    """Return the model's names; with ``--nonempty`` the label of the empty word means nothing."""
    own = own_words(folder, model, letters)
    return replace(own, alphabet=replace(own.alphabet, empty_word=own.alphabet.empty_word and not nonempty))


def _own_of_certificate(path: Path) -> OwnWords:
    """Return the names that a certificate holds; what it says is checked elsewhere."""
    from transductor.automata import TokenAlphabet
    from transductor.certification.certificates import read_content

    content = read_content(path)
    names, classes = content.get("letters"), content.get("classes")
    if not names:
        raise ValueError(f"{path} names no letters; give the model it is about with --model")
    return OwnWords(TokenAlphabet.of_names(names), None if classes is None else tuple(classes))


def _lifted(automaton: MooreMachine | WeightedAutomaton, own: OwnWords) -> MooreMachine | WeightedAutomaton:
    """Return a specification over letters as one over the model's tokens."""
    from transductor.automata import MooreMachine

    if isinstance(automaton, MooreMachine):
        return own.alphabet.lifted(automaton)
    if own.alphabet.restricted:
        raise ValueError(
            "values of words are certified for models all of whose tokens are letters; this one has <start>"
        )
    return automaton


def _inside(words: MooreMachine | WeightedAutomaton, own: OwnWords) -> MooreMachine:
    """Return the domain over tokens: label 1 on the beginnings of words that can occur, 0 elsewhere."""
    import numpy as np

    from transductor.automata import MooreMachine

    assert isinstance(words, MooreMachine)  # labels were asked for
    lifted = own.alphabet.lifted(words)
    outputs = np.where(lifted.outputs == 1, 1, 0)
    outputs[lifted.start] = 1 if own.alphabet.begin is not None else outputs[lifted.start]
    return MooreMachine(lifted.transitions, outputs, lifted.start)


def _print(certificate: AgreementCertificate) -> None:
    typer.echo(f"{certificate.verdict}: {certificate.claim}")
    typer.echo(f"how:      {certificate.method}")
    if certificate.evidence.word is not None:
        names = certificate.question.letters
        blocks = [
            " ".join(names[letter] if names else str(letter) for letter in letters) if times == 1
            else f"({' '.join(names[letter] if names else str(letter) for letter in letters)})^{times}"
            for letters, times in certificate.evidence.word
        ]  # fmt: skip
        typer.echo(f"word:     {abridged(blocks, ' ')}")
    if certificate.margin is not None:
        typer.echo(f"margin:   {certificate.margin:.4g}")
    typer.echo(f"covers:   {'; '.join(certificate.covers)}")
    for number, assumption in enumerate(certificate.assumptions):
        typer.echo(f"{'assumes:  ' if number == 0 else '          '}{assumption}")


def _one_output(model: Any) -> bool:
    from transductor.model import RationalReadout

    return isinstance(model, RationalReadout) and model.readout.out_features == 1
