"""``transductor info`` and ``transductor export``: a saved model described, and written for other runtimes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from transductor.cli.options import SavedModel
from transductor.cli.terminal import console, print_written, refusal, refusals


def info(
    model: Annotated[Path, typer.Argument(help="A folder written by transductor.save.")],
    config: Annotated[bool, typer.Option("--config", help="Print the configuration as JSON too.")] = False,
) -> None:
    """Print a model card: parameters, families, laws as measured now, cost of one step."""
    from transductor.configuration import to_json
    from transductor.model import CheckpointError, load
    from transductor.model.card import model_card
    from transductor.report import card_view

    try:
        card = model_card(load(model))
    except CheckpointError as error:
        raise refusal(error, status=1) from None
    console().print(card_view(card))
    if config:
        typer.echo(to_json(card.config))


def export(
    model: SavedModel,
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
            exported = export_onnx(load(model), output, mask=mask, streaming=streaming)
            written = exported.path
            typer.echo(f"in:  {', '.join(exported.inputs)}\nout: {', '.join(exported.outputs)}")
            typer.echo(str(exported.certificate or "not compared: onnxruntime is not installed"))
    print_written(written)
