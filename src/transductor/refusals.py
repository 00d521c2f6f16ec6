"""How a command answers what a user did wrong: one line and exit status 2, no traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

__all__ = ["refusals"]


@contextmanager
def refusals(*kinds: type[Exception]) -> Iterator[None]:
    """Bad values, files that cannot be used, missing extras; and errors of the given kinds."""
    refused: tuple[type[Exception], ...] = (ValueError, OSError, ImportError, *kinds)
    try:
        yield
    except refused as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
