"""The options of ``transductor train``: from a shell or a TOML file to data, a model and settings.

Torch is imported when a command runs, so the names that ``--help`` lists are written here; a test compares them with
the library's.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from transductor.cli.terminal import refusals
from transductor.file_reading import bytes_of
from transductor.json_reading import most_frequent

if TYPE_CHECKING:
    from transductor.heads import HeadConfig, RationalHead
    from transductor.model import BackboneConfig, SequenceModel
    from transductor.tasks import Task
    from transductor.training import FileData, TrainingSettings

MODELS: Final = ("transductor", "readout", "transformer", "lstm", "linear_rnn")
HEADS: Final = ("rational", "lookback", "universal", "random_features", "filter")
POSITIONS: Final = ("none", "learned", "sinusoidal", "rotary", "relative")
# fmt: off
FAMILIES: Final = (
    "dense", "affine", "diagonal", "signed_diagonal", "permutation", "sinkhorn", "dplr", "orthogonal", "cayley",
    "scaled_cayley", "squared_cayley", "exponential", "signed_cayley", "householder", "stochastic", "shared_basis",
    "butterfly", "toeplitz", "hankel", "block_sparse", "random", "column_choice", "positive",
)
# Settings of training whose options have the same names.
_SETTINGS: Final = (
    "steps", "length", "shortest", "batch_size", "learning_rate", "weight_decay", "gradient_clip",
    "label_smoothing", "seed", "optimiser", "schedule", "warmup", "clipping", "head_learning_rate", "double",
    "explosion", "betas", "precision",
)
# fmt: on

# Options that mean something only for data in files, or only for tasks.
_FOR_DATA: Final = ("labels", "goal", "split", "text_column", "label_column", "held_out", "held_out_longest")
_FOR_TASKS: Final = ("length", "shortest")
_MOST_BYTES: Final = 2**15  # Python's own reader takes cubic time for a name of many parts
_LARGE: Final = 4 * 2**20  # bytes; reading a larger file takes more than two seconds
_PATHS: Final = ("data", "labels", "output")


def flag(name: str) -> str:
    """Return an option as it is written on a shell."""
    return "--" + name.replace("_", "-")


def read_config(context: typer.Context, path: Path | None) -> Path | None:
    """Take the values of a TOML file as defaults of the other options, so that options given on the shell win.

    Names are those of the options; a table groups names that begin alike (``[curriculum]`` with ``start``).  Paths are
    relative to the file.
    """
    if path is None:
        return None
    with refusals():
        flat = flat_toml(path)
        # The folder of a run is an argument and an option; in a file it has one name.
        allowed = {
            name for parameter in context.command.params if (name := parameter.name or "") not in ("config", "run")
        }
        booleans = {parameter.name for parameter in context.command.params if getattr(parameter, "is_flag", False)}
        pairs = {parameter.name for parameter in context.command.params if parameter.nargs == 2}
        for name, value in flat.items():
            if name not in allowed:
                near = difflib.get_close_matches(name, sorted(allowed), 3, 0.5)
                hint = f"did you mean {' or '.join(near)}?" if near else f"it may have {', '.join(sorted(allowed))}"
                raise ValueError(f"{path}: there is no setting {name!r}; {hint}")
            if name in pairs:
                if not isinstance(value, list) or [type(each) in (int, float) for each in value] != [True, True]:
                    raise ValueError(f"{path}: {name} must be two numbers in brackets; got {value!r}")
            elif not isinstance(value, str | int | float) or isinstance(value, bool) != (name in booleans):
                kind = "true or false" if name in booleans else "a number or a text"
                raise ValueError(f"{path}: {name} must be {kind}; got {value!r}")
        flat |= {name: str(path.parent / flat[name]) for name in _PATHS if name in flat}
    context.default_map = flat
    return path


def flat_toml(path: Path) -> dict[str, Any]:
    """Return the values of a TOML file, those of a table under the names of both.

    Raises:
        ValueError: If it cannot be read, is no TOML, or gives a value twice.
    """
    try:
        data = bytes_of(path, _MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise ValueError(f"it is larger than {_MOST_BYTES // 2**10} KiB")
        pairs = _flattened(tomllib.loads(data.decode("utf-8-sig")), "")
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not TOML: {error}"[:400]) from None
    if len(flat := dict(pairs)) < len(pairs):
        raise ValueError(f"{path} gives {most_frequent(name for name, _ in pairs):.40} twice")
    return flat


def _flattened(plain: Mapping[str, Any], front: str) -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for key, value in plain.items():
        name = front + key.replace("-", "_")
        pairs += _flattened(value, f"{name}_") if isinstance(value, dict) else [(name, value)]
    return pairs


def source_from(context: typer.Context) -> Task | FileData:
    """Return the data in files, read, or the task that the options name."""
    from transductor.checks import one_of
    from transductor.tasks import task_named
    from transductor.training import FileData

    given = context.params
    if given["data"] is not None and given["task"] is not None:
        raise ValueError(
            f"--data and --task cannot be given together: train on {given['data']} or on the task {given['task']}"
        )
    if given["data"] is None and given["task"] is None:
        raise ValueError("one of --data and --task must be given: a file, or a task by name")
    for name in _FOR_TASKS if given["task"] is None else _FOR_DATA:
        if on_the_shell(context, name) or name in (context.default_map or {}):
            other = "--task, whose sequences are drawn" if given["task"] is None else "--data"
            raise ValueError(f"{flag(name)} is for {other}")
    if given["task"] is not None:
        return task_named(given["task"])
    options = {name: given[name] for name in ("held_out", "held_out_longest", "split", "text_column", "label_column")}
    options["split_seed"] = given["seed"]
    one_of("--split", options["split"], ("blanks", "characters"))
    if Path(given["data"]).is_file() and (size := Path(given["data"]).stat().st_size) > _LARGE:
        typer.echo(f"reading {given['data']} ({size / 2**20:,.0f} MiB)", err=True)
    path, labels = str(given["data"]), None if given["labels"] is None else str(given["labels"])
    if given["goal"] is None:
        data = FileData.guessed(path, labels, **options)
        if os.environ.get("RANK", "0") == "0":  # one of the ranks that torchrun starts is enough
            typer.echo(f"goal: {data.goal}, as the labels suggest (--goal says otherwise)")
    else:
        data = FileData(given["goal"], path, labels, **options)
    return data.read()[0]


def on_the_shell(context: typer.Context, name: str) -> bool:
    """Say whether an option was given on the shell."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def settings_from(given: Mapping[str, Any]) -> TrainingSettings:
    """Return the training settings that the options say."""
    from transductor.training import Annealing, Curriculum, TrainingSettings

    return TrainingSettings(
        **{name: given[name] for name in _SETTINGS},
        labels=given["count_labels"],
        curriculum=_part(Curriculum, "curriculum", given, needs="start"),
        annealing=_part(Annealing, "annealing", given),
    )


def _part(kind: Any, name: str, given: Mapping[str, Any], *, needs: str | None = None) -> Any:
    """Return a value whose fields are options that begin with its name; None where none of them is given."""
    front = f"{name}_"
    fields = {key.removeprefix(front): value for key, value in given.items() if key.startswith(front)}
    fields = {key: value for key, value in fields.items() if value is not None}
    if fields and needs is not None and needs not in fields:
        raise ValueError(f"{flag(front + needs)} must be given with {flag(front + next(iter(fields)))}")
    return kind(**fields) if fields else None


def model_from(given: Mapping[str, Any], tokens: int, outputs: int) -> SequenceModel[Any]:
    """Build the model that the options describe, with fresh weights."""
    from transductor.checks import one_of
    from transductor.heads import FilterHead
    from transductor.model import LSTM, FilterReadout, LinearRNN, RationalReadout, RationalTransductor, Transformer

    name, width = given["model"], given["width"]
    one_of("--model", name, MODELS)
    if name == "lstm":
        return LSTM(vocab_size=tokens, output_size=outputs, width=width, layers=given["layers"])
    if name == "linear_rnn":
        return LinearRNN(vocab_size=tokens, output_size=outputs, width=width)
    if name == "readout":
        head = _head(given, tokens)
        return FilterReadout(head, outputs) if isinstance(head, FilterHead) else RationalReadout(head, outputs)
    if name == "transformer":
        return Transformer(_backbone(given, tokens, outputs))
    head = _head(given, tokens)
    backbone = _backbone(given, tokens, outputs)
    return RationalTransductor(head, backbone, injection=given["injection"], projections=given["projections"])


def _head(given: Mapping[str, Any], tokens: int) -> RationalHead:
    from transductor.heads import build_head

    config = _head_config(given, tokens)
    try:
        return build_head(config)
    except TypeError as error:  # an option that the family does not have
        raise ValueError(f"--family {given['family']}: {error}") from None


def _backbone(given: Mapping[str, Any], tokens: int, outputs: int) -> BackboneConfig:
    from transductor.checks import one_of
    from transductor.model import (
        BackboneConfig,
        FullAttention,
        LearnedPositions,
        NoAttention,
        NoPositions,
        RelativePositions,
        RotaryPositions,
        SinusoidalPositions,
        SlidingWindow,
    )

    # Without a head a Transformer knows no order but that of its positions.
    positions = given["positions"] or ("rotary" if given["model"] == "transformer" else "none")
    one_of("--positions", positions, POSITIONS)
    schemes = (NoPositions, LearnedPositions, SinusoidalPositions, RotaryPositions, RelativePositions)
    attention = given["attention"]
    if attention not in ("none", "full") and not (attention.isdecimal() and int(attention) > 0):
        raise ValueError(f"--attention must be none, full or the width of a window, such as 64; got {attention!r}")
    kinds = {"none": NoAttention, "full": FullAttention}
    return BackboneConfig(
        vocab_size=tokens,
        output_size=outputs,
        positions=dict(zip(POSITIONS, schemes, strict=True))[positions](),
        attention=kinds[attention]() if attention in kinds else SlidingWindow(int(attention)),
        **{name: given[name] for name in ("width", "layers", "attention_heads", "feedforward", "dropout")},
    )


def _head_config(given: Mapping[str, Any], tokens: int) -> HeadConfig:
    from transductor.checks import one_of
    from transductor.heads import HeadConfig
    from transductor.transitions import FamilySpec

    name, dim = given["head"], given["state_dim"]
    one_of("--head", name, HEADS)
    if name == "universal":
        stochastic = given["stochastic_dim"] or dim // 2
        if not 0 < stochastic < dim:
            raise ValueError(f"--stochastic-dim must lie between 1 and --state-dim − 1 = {dim - 1}; got {stochastic}")
        parts = (("orthogonal", dim - stochastic), ("stochastic", stochastic))
        specs = tuple(FamilySpec(family, {"vocab_size": tokens, "state_dim": size}) for family, size in parts)
        return HeadConfig(name, FamilySpec("direct_sum", {}, specs))
    family, options = ("random", {}) if name == "random_features" else _family(given["family"])
    one_of("--family", family, FAMILIES)
    return HeadConfig(name, FamilySpec(family, {"vocab_size": tokens, "state_dim": dim, **options}))


def _family(text: str) -> tuple[str, dict[str, int | float]]:
    """Return the name of a family and its options, written ``householder:reflections=8``."""
    name, _, rest = text.partition(":")
    options: dict[str, int | float] = {}
    for pair in filter(None, rest.split(",")):
        key, _, value = pair.partition("=")
        try:
            options[key] = int(value) if value.lstrip("+-").isdecimal() else float(value)
        except ValueError:
            raise ValueError(f"--family must be a name, or name:option=number; got {text!r}") from None
    return name, options
