"""``transductor certify``: whether a model agrees with an automaton, with the certificate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transductor.cli.options import (
    SOURCE_OR_TASK,
    Alphabet,
    As,
    Letters,
    Weights,
    abridged,
    automaton_or_machine,
    token_names,
)
from transductor.cli.terminal import print_written, refusals

if TYPE_CHECKING:
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
    alphabet: Alphabet = None,
    weights: Weights = None,
    letters: Letters = None,
    check: Annotated[
        Path | None, typer.Option(help="Instead: a certificate to compute again; with --model and --against, of these.")
    ] = None,
    checked: Annotated[Path | None, typer.Option("--model", help="With --check: it must be about this model.")] = None,
) -> None:
    """Does a model agree with an automaton?  Letters are matched by name.

    Exit status 0: proved, for all lengths; 1: refuted; 2: no answer; 3: holds up to a length.  Where only the head was
    analysed, 4: separated (token and state determine the label); 5: confused.
    """
    from transductor.certification import certify as certified
    from transductor.certification import check_certificate, in_token_order
    from transductor.model import load

    with refusals(TypeError, IndexError):
        if model is not None and checked is not None:
            raise ValueError("the model is an argument already, and --model names it again; give it once")
        folder = checked if model is None else model
        loaded = None if folder is None else load(folder)
        if check is not None:
            if output is not None or domain is not None:
                raise ValueError("--check takes the question from its certificate: no --domain or --output")
            machine, names = (None, None)
            if against is not None:
                machine, names = automaton_or_machine(against, alphabet, weights, as_)
            certificate = check_certificate(
                check, loaded, machine, letters=None if names is None else [*map(str, names)]
            )
            about = [f"about {each}" for each in (folder, against) if each is not None]
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
            tokens = token_names(model or checked, letters, loaded)
            asked = [
                None if source is None else automaton_or_machine(source, alphabet, weights, as_kind)
                for source, as_kind in ((against, kind), (domain, "labels"))
            ]
            target, inside = (
                None if each is None else in_token_order(each[0], [*map(str, each[1])], tokens) for each in asked
            )
            certificate = certified(
                loaded,
                against=target,  # type: ignore[arg-type]
                domain=inside,  # type: ignore[arg-type]
                horizon=horizon,
                tolerance=tolerance,
                letters=tokens,
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


def _print(certificate: AgreementCertificate) -> None:
    typer.echo(f"{certificate.verdict}: {certificate.claim}")
    typer.echo(f"how:      {certificate.method}")
    if certificate.evidence.word is not None:
        blocks = [
            " ".join(map(str, letters)) if times == 1 else f"({' '.join(map(str, letters))})^{times}"
            for letters, times in certificate.evidence.word
        ]
        typer.echo(f"word:     {abridged(blocks, ' ')}")
    if certificate.margin is not None:
        typer.echo(f"margin:   {certificate.margin:.4g}")
    typer.echo(f"covers:   {'; '.join(certificate.covers)}")
    for number, assumption in enumerate(certificate.assumptions):
        typer.echo(f"{'assumes:  ' if number == 0 else '          '}{assumption}")


def _one_output(model: Any) -> bool:
    from transductor.model import RationalReadout

    return isinstance(model, RationalReadout) and model.readout.out_features == 1
