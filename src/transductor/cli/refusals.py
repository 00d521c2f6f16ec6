"""How a command answers what a user did wrong: one line and exit status 2, no traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer


@contextmanager
def refusals(*kinds: type[Exception]) -> Iterator[None]:
    """Bad values, files that cannot be used, missing extras; and errors of the given kinds."""
    refused: tuple[type[Exception], ...] = (ValueError, OSError, ImportError, *kinds)
    try:
        yield
    except refused as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None


def chosen_device(device: str) -> str:
    """``auto``, ``cpu`` or ``cuda`` as asked for; ``auto`` is CUDA where there is one."""
    import torch

    if device not in ("auto", "cpu", "cuda"):
        raise typer.BadParameter(f"must be auto, cpu or cuda; got {device!r}", param_hint="--device")
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise typer.BadParameter("there is no CUDA device here", param_hint="--device")
    return device
