"""The command ``transductor``, assembled; commands import torch when they run, so that ``--help`` is quick."""

from __future__ import annotations

from typing import Annotated

import typer

from transductor.cli.automaton import automaton
from transductor.cli.bench import bench
from transductor.cli.certification import certify
from transductor.cli.compilation import compile_automaton
from transductor.cli.corpora import corpus
from transductor.cli.demo import demo
from transductor.cli.doctor import doctor
from transductor.cli.explore import explore
from transductor.cli.extraction import extract, harden, look
from transductor.cli.fit import fit
from transductor.cli.models import export, info
from transductor.cli.prediction import predict
from transductor.cli.studies import report, reproduce
from transductor.cli.theory import OPTIONS_OF_STATEMENTS, theory
from transductor.cli.training import evaluate, train

app = typer.Typer(
    name="transductor",
    help="Rational Transductors: a Transformer with a weighted automaton as its second stream.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(bench, name="bench")
app.add_typer(automaton, name="automaton")
for command in (fit, train, evaluate, predict, reproduce, report, corpus):
    app.command()(command)
app.command("compile")(compile_automaton)
app.command(context_settings=OPTIONS_OF_STATEMENTS)(theory)
for model_command in (extract, harden, certify, look, explore, export, doctor, demo, info):
    app.command()(model_command)


@app.callback(invoke_without_command=True)
def _version(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        from transductor import __version__

        typer.echo(f"transductor {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line."""
    app()
