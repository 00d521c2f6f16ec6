"""``transductor corpus``: source code to train on, fetched by name and hash."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from transductor.cli.terminal import refusals, working

_LIBRARY = "standard_library"


def corpus(
    name: Annotated[str, typer.Argument(help="python, c, or standard_library: this Python's own, without a network.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder; else NAME in $TRANSDUCTOR_CORPORA, or in the user's cache."),
    ] = None,
    archives: Annotated[
        Path | None, typer.Option(help="Where packages are kept when they are fetched; else in the folder.")
    ] = None,
) -> None:
    """Fetch packages by pip, check their hashes, and write their source code, split by package, without duplicates."""
    from transductor.corpora import PARTS, built_from_packages, built_from_standard_library, corpora_folder

    with refusals():
        folder = corpora_folder() / name if output is None else output
        with working(f"making {folder}"):
            made = (
                built_from_standard_library(folder)
                if name == _LIBRARY
                else built_from_packages(name, folder, archives=archives)
            )
    for part in PARTS:
        described = made.manifest["parts"][part]
        typer.echo(f"{part}: {described['files']:,} files, {described['bytes']:,} bytes")
    typer.echo(f"{folder}, sha256 {made.sha256}")
