"""``transductor info`` and ``transductor export``: a saved model described, and written for other runtimes.

Also what other commands read models with: the folder that a path means, and the data a model was trained on.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transductor.cli.options import SavedModel, chosen_output
from transductor.cli.terminal import console, print_written, refusals

if TYPE_CHECKING:
    from transductor.model import SequenceModel
    from transductor.training import FileData


def model_folder(path: Path) -> Path:
    """Return the folder of the model that a path means: the path itself, or ``model`` in the folder of a run."""
    if (path / "config.json").exists() or not (path / "model" / "config.json").exists():
        return path
    return path / "model"


def trained_model(path: Path, device: str = "cpu") -> tuple[SequenceModel[Any], FileData]:
    """Return a model that was trained on data in files, and those data with their vocabulary.

    Raises:
        ValueError: If there is no model, or it was not trained on files.
    """
    from transductor.automata.token_alphabet import RESERVED
    from transductor.model import SequenceModel, load

    folder = model_folder(path)
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder with a model")
    model = load(folder, device=device)
    if not isinstance(model, SequenceModel):
        raise ValueError(f"{folder} holds a head; a model is needed, which has a readout too")
    data = described_data(folder)
    if data is None:
        raise ValueError(f"{folder} has no data.json: it was not trained with --data")
    assert data.vocabulary is not None
    if missing := [name for name in RESERVED if name not in data.vocabulary.tokens]:
        raise ValueError(f"{folder / 'data.json'}: tokens must contain {missing[0]}")
    return model, data


def described_data(folder: Path) -> FileData | None:
    """Return what a model was trained on, with its vocabulary; None where there is no ``data.json``.

    Raises:
        ValueError: If the file describes no data, or names others than the sealed checkpoint beside it.
    """
    from transductor.configuration import ConfigurationError, from_plain
    from transductor.json_reading import JSONError, read_json
    from transductor.model import letters_of
    from transductor.model.storage import classes_of
    from transductor.training import FileData

    file = folder / "data.json"
    if not file.exists():
        return None
    try:
        data = from_plain(read_json(file))
    except (ConfigurationError, JSONError, RecursionError) as error:
        raise ValueError(f"{file} does not describe data: {error}") from None
    if not isinstance(data, FileData) or data.vocabulary is None:
        raise ValueError(f"{file} does not describe data")
    sealed = {"tokens": letters_of(folder), "classes": classes_of(folder)}
    for kind, names in sealed.items():
        if names is not None and names != getattr(data.vocabulary, kind):
            raise ValueError(f"{file} names other {kind} than config.json beside it")
    return data


def write_data(source: FileData, folder: Path) -> None:
    """Write what a model was trained on beside it, for :func:`trained_model`."""
    from transductor.configuration import to_json
    from transductor.results import write_atomically

    write_atomically(folder / "data.json", to_json(source).encode())


def info(
    model: Annotated[Path, typer.Argument(help="A folder written by transductor.save.")],
    config: Annotated[bool, typer.Option("--config", help="Print the configuration as JSON too.")] = False,
) -> None:
    """Print a model card: parameters, families, laws as measured now, cost of one step."""
    from transductor.configuration import to_json
    from transductor.model import load
    from transductor.model.card import model_card
    from transductor.report import card_view

    with refusals():
        card = model_card(load(model_folder(model)))
    console().print(card_view(card))
    if config:
        typer.echo(to_json(card.config))


def export(
    model: SavedModel,
    out: Annotated[
        Path | None, typer.Argument(help="OUT.onnx (any runtime) or OUT.pt2 (torch.export).", show_default=False)
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The same, as an option.")] = None,
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
        file = chosen_output(out, output, "OUT")
        if file.suffix not in (".onnx", ".pt2"):
            raise ValueError(f"OUT must end in .onnx or .pt2; got {file}")
        if file.suffix == ".pt2":
            if streaming:
                raise ValueError("--streaming is for .onnx")
            written = export_program(load(model_folder(model)), file, mask=mask, backend=backend)
            typer.echo("the program equals the model bit for bit; import transductor before torch.export.load")
        else:
            if backend is not None:
                raise ValueError("--backend is for .pt2: in ONNX the scan is ONNX's own")
            exported = export_onnx(load(model_folder(model)), file, mask=mask, streaming=streaming)
            written = exported.path
            typer.echo(f"in:  {', '.join(exported.inputs)}\nout: {', '.join(exported.outputs)}")
            typer.echo(str(exported.certificate or "not compared: onnxruntime is not installed"))
    print_written(written)
