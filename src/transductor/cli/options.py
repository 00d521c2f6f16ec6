"""Options that several commands take, and how their values are read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Alphabet = Annotated[
    str | None, typer.Option("--alphabet", "-a", help="The letters of an expression: ab, or with blanks: 'a b #'.")
]
Weights = Annotated[
    str | None, typer.Option("--weights", "-w", help="Weights of an AT&T file: rational, float, boolean, min_plus, …")
]
SavedModel = Annotated[Path, typer.Argument(help="A folder written by transductor.save.", show_default=False)]
TorchDevice = Annotated[str, typer.Option("--device", help="cpu, cuda, …")]


def chosen_device(device: str) -> str:
    """Return ``cpu`` or ``cuda`` as asked for; ``auto`` is CUDA where there is one."""
    import torch

    if device not in ("auto", "cpu", "cuda"):
        raise typer.BadParameter(f"must be auto, cpu or cuda; got {device!r}", param_hint="--device")
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise typer.BadParameter("there is no CUDA device here", param_hint="--device")
    return device


def check_torch_device(device: str) -> None:
    """Refuse a device on which torch cannot make a tensor."""
    import torch

    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise typer.BadParameter(f"{device!r} cannot be used here: {reason}", param_hint="--device") from None
