"""``transductor export``: a saved model as an ONNX file or a ``torch.export`` program."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from transductor.cli.refusals import refusals


def export(
    model: Annotated[Path, typer.Argument(help="A folder written by transductor.save.", show_default=False)],
    output: Annotated[
        Path, typer.Argument(help="OUT.onnx (any runtime) or OUT.pt2 (torch.export).", show_default=False)
    ],
    mask: Annotated[bool, typer.Option("--mask", help="Take a mask beside the tokens: left or right padding.")] = False,
    streaming: Annotated[
        bool, typer.Option("--streaming", help="ONNX: one token and a state in, logits and the next state out.")
    ] = False,
    backend: Annotated[
        str | None, typer.Option(help="pt2: backend of the scan; chunked also runs where numba or a GPU is missing.")
    ] = None,
) -> None:
    """Write a model for other runtimes, for every batch size and length, and compare it with the model."""
    from transductor.integrations.export import export_onnx, export_program
    from transductor.model import load

    with refusals(TypeError):
        if output.suffix not in (".onnx", ".pt2"):
            raise ValueError(f"OUT must end in .onnx or .pt2; got {output}")
        if output.suffix == ".pt2":
            if streaming:
                raise ValueError("--streaming is for .onnx")
            written = export_program(load(model), output, mask=mask, backend=backend)
            typer.echo("the program equals the model bit for bit; import transductor before torch.export.load")
        else:
            if backend is not None:
                raise ValueError("--backend is for .pt2: in ONNX the scan is ONNX's own")
            found = export_onnx(load(model), output, mask=mask, streaming=streaming)
            written = found.path
            typer.echo(f"in:  {', '.join(found.inputs)}\nout: {', '.join(found.outputs)}")
            typer.echo(str(found.certificate or "not compared: onnxruntime is not installed"))
    typer.echo(f"written: {written}")
