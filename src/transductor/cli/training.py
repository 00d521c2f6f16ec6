"""``transductor train`` and ``evaluate``: your own data, or a task by name."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from transductor.cli.models import trained_model, write_data
from transductor.cli.options import TorchDevice, chosen_output
from transductor.cli.terminal import interruptions, print_written, progress, refusals
from transductor.cli.training_options import (
    FAMILIES,
    HEADS,
    MODELS,
    POSITIONS,
    model_from,
    on_the_shell,
    read_config,
    settings_from,
    source_from,
)

if TYPE_CHECKING:
    import torch

    from transductor.model import SequenceModel
    from transductor.tasks import Task
    from transductor.training import FileData, Score, Trainer

Data = Annotated[
    Path | None,
    typer.Option(help="Text with a sequence per line, or .jsonl, .csv, .tsv.", rich_help_panel="Data"),
]
Labels = Annotated[
    Path | None, typer.Option(help="The labels of plain text, line by line beside --data.", rich_help_panel="Data")
]
TextColumn = Annotated[
    str | None, typer.Option(help="Column or field of the sequence (.csv, .tsv, .jsonl).", rich_help_panel="Data")
]
LabelColumn = Annotated[str | None, typer.Option(help="Column or field of the label.", rich_help_panel="Data")]

_POOR: Final = 0.95  # below this share of longer sequences a hint says what to try
_TIMES_LONGER: Final = 4  # a task is judged on sequences of the trained length, and so many times longer ones


def _option(panel: str, text: str = "", **limits: Any) -> Any:
    return typer.Option(help=text or None, rich_help_panel=panel, **limits)


def train(
    context: typer.Context,
    run: Annotated[Path | None, typer.Argument(help="Folder of the run: its state, and in the end the model.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The same, as an option.")] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            callback=read_config, is_eager=True, help="TOML file with any of these options; those given here win."
        ),
    ] = None,
    data: Data = None,
    labels: Labels = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    split: Annotated[str, _option("Data", "Where tokens end: blanks, or characters.")] = "blanks",
    goal: Annotated[
        str | None,
        _option(
            "Data",
            "recognition (a label per sequence), tagging (per token), regression, next_token; else as labels suggest.",
        ),
    ] = None,
    held_out: Annotated[float, _option("Data", "Fraction of the data set aside.", min=0, max=0.9)] = 0.1,
    held_out_longest: Annotated[
        float, _option("Data", "Fraction set aside for being the longest: judges longer sequences.", min=0, max=0.5)
    ] = 0.0,
    task: Annotated[
        str | None, _option("Data", "Instead of --data: a task by name, such as parity, counting:7 or group:S5:2.")
    ] = None,
    length: Annotated[int, _option("Data", "Length of a task's sequences.", min=1)] = 50,
    shortest: Annotated[
        int | None, _option("Data", "Draw the length of each batch between this and --length.", min=1)
    ] = None,
    model: Annotated[str, _option("Model", f"{', '.join(MODELS)}; readout is a head without a Transformer.")] = MODELS[
        0
    ],
    head: Annotated[str, _option("Model", f"{', '.join(HEADS)}.")] = HEADS[0],
    family: Annotated[
        str, _option("Model", f"Family of the head's matrices, or family:option=number: {', '.join(FAMILIES)}.")
    ] = "orthogonal",
    state_dim: Annotated[int, _option("Model", "State dimension of the head.", min=1)] = 16,
    stochastic_dim: Annotated[
        int | None, _option("Model", "Part of --state-dim that is stochastic in a universal head; half.", min=1)
    ] = None,
    injection: Annotated[str, _option("Model", "Layers that the state enters: deep (all), input, none.")] = "deep",
    projections: Annotated[
        str, _option("Model", "How the state's projections start: linear, or zero, as a Transformer.")
    ] = "linear",
    attention: Annotated[str, _option("Model", "none, full, or the width of a window, such as 64.")] = "full",
    positions: Annotated[
        str | None, _option("Model", f"{', '.join(POSITIONS)}; else rotary for a transformer, none otherwise.")
    ] = None,
    width: Annotated[int, _option("Model", "Width of the stream.", min=1)] = 64,
    layers: Annotated[int, _option("Model", "Number of blocks.", min=1)] = 2,
    attention_heads: Annotated[int, _option("Model", "Attention heads of a block.", min=1)] = 4,
    feedforward: Annotated[int, _option("Model", "Hidden width of a block; 0 is four times --width.", min=0)] = 0,
    dropout: Annotated[float, _option("Model", "Probability of dropping what a block adds.", min=0, max=0.99)] = 0.0,
    steps: Annotated[int, _option("Training", "Number of optimiser steps.", min=1)] = 1500,
    batch_size: Annotated[int, _option("Training", "Sequences of a step.", min=1)] = 64,
    count_labels: Annotated[str, _option("Training", "Labels that count in the loss: every, or last.")] = "every",
    learning_rate: Annotated[float, _option("Training", "Peak learning rate.")] = 5e-3,
    head_learning_rate: Annotated[float | None, _option("Training", "That of the head, if it differs.")] = None,
    optimiser: Annotated[str, _option("Training", "adamw or adam.")] = "adamw",
    betas: Annotated[tuple[float, float], _option("Training", "How long it remembers gradients and their squares.")] = (
        0.9,
        0.999,
    ),
    weight_decay: Annotated[float, _option("Training", "Decay of weights outside the head (adamw).", min=0)] = 1e-2,
    schedule: Annotated[str, _option("Training", "cosine or linear to zero, or constant.")] = "cosine",
    warmup: Annotated[int, _option("Training", "Steps over which the learning rate rises.", min=0)] = 0,
    clipping: Annotated[
        str, _option("Training", "Gradients clipped together (global), per_tensor, or none.")
    ] = "global",
    gradient_clip: Annotated[float, _option("Training", "Largest gradient norm.")] = 1.0,
    label_smoothing: Annotated[float, _option("Training", "Keeps the loss above zero: angles improve.", min=0)] = 0.1,
    curriculum_start: Annotated[
        int | None, _option("Training", "Begin with this length and grow whenever a batch is good.", min=1)
    ] = None,
    curriculum_factor: Annotated[float | None, _option("Training", "What the length is multiplied by; 2.")] = None,
    curriculum_threshold: Annotated[
        float | None, _option("Training", "Share of right labels that is good; 0.98.")
    ] = None,
    curriculum_loss: Annotated[float | None, _option("Training", "Loss that is good, for numbers; 0.0001.")] = None,
    annealing_start: Annotated[float | None, _option("Training", "First temperature of stochastic heads; 1.")] = None,
    annealing_end: Annotated[float | None, _option("Training", "Last temperature of stochastic heads; 0.05.")] = None,
    double: Annotated[bool, typer.Option("--double", help="Train in float64.", rich_help_panel="Training")] = False,
    precision: Annotated[str, _option("Training", "float32, or bfloat16 for the model's products.")] = "float32",
    explosion: Annotated[float, _option("Training", "Stop when the loss is this many times its first value.")] = 1e4,
    seed: Annotated[int, _option("Training", "Seed of weights, data and split.", min=0)] = 0,
    checkpoint_every: Annotated[int, typer.Option(min=1, help="Steps between two written states.")] = 100,
    device: TorchDevice = "cpu",
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write events for TensorBoard too.")] = False,
    distributed: Annotated[
        str | None, typer.Option(help="Under torchrun: ddp (a copy per rank) or fsdp2 (parameters split).")
    ] = None,
    rank_timeout: Annotated[float, typer.Option(min=1, help="Seconds to wait for a silent rank.")] = 45.0,
) -> None:
    """Train a model; the same command again goes on where an interrupted run stopped."""
    import torch

    from transductor.model import save
    from transductor.one_writer import only_writer
    from transductor.training import FileData, TrainingError
    from transductor.training.steps import set_temperature

    # The data, the model and the settings are made from the options by name; only some are named again below.
    given = context.params
    with (
        refusals(TrainingError),
        _trainers(distributed, device, rank_timeout) as (kind, own_device, options),
        ExitStack() as whole,
    ):
        # A folder given as an argument wins over that of a file of settings.
        in_file = run is not None and not on_the_shell(context, "output")
        folder = chosen_output(run, None if in_file else output, "RUN")
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"RUN must be a folder; {folder} is a file")
        settings = settings_from(given)
        source = source_from(context)
        torch.manual_seed(seed)
        built = model_from(given, source.vocab_size, source.output_size)
        if int(os.environ.get("RANK", "0")) == 0:  # the rank that writes; a wrong option leaves no folder
            whole.enter_context(only_writer(folder))
        if (folder / "training.json").exists():
            trainer = kind.resumed(folder, device=own_device, **options)
            if (annealing := trainer.settings.annealing) is not None and trainer.step:
                # The run has changed the temperature since it began.
                set_temperature(built, annealing.at((trainer.step - 1) / max(1, trainer.settings.steps - 1)))
            asked = {"data": source, "settings": settings, "model": built.config}
            saved = {"data": trainer.source, "settings": trainer.settings, "model": trainer.model.config}
            if other := [name for name in asked if asked[name] != saved[name]]:
                raise ValueError(f"{folder} holds another run: its {' and '.join(other)} differ from those given")
            if trainer.leads:
                typer.echo(f"going on from step {trainer.step:,}")
        else:
            trainer = kind(built.to(own_device), source, settings, **options)
        _run(trainer, folder, checkpoint_every, tensorboard)
        trained = trainer.whole_model()
        if not trainer.leads:
            return
        if isinstance(source, FileData):
            assert source.vocabulary is not None
            names = source.vocabulary
            save(trained, folder / "model", letters=names.tokens, classes=names.classes)
            write_data(source, folder / "model")
            _print_scores(trained, source)
        else:
            save(trained, folder / "model")
            _print_accuracies(trained, source, settings.length)
    print_written(folder / "model")


@contextmanager
def _trainers(
    distributed: str | None, device: str, timeout: float
) -> Iterator[tuple[type[Trainer], str | torch.device, dict[str, Any]]]:
    """Yield the trainer's class, its device and its options: alone, or one of the ranks that torchrun has started."""
    from transductor.checks import one_of
    from transductor.training import Trainer

    if distributed is None:
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise ValueError("torchrun has started several ranks, which would train the same alone: add --distributed")
        yield Trainer, device, {}
        return
    from transductor.training.distributed import STRATEGIES, DistributedTrainer, joined_ranks

    one_of("--distributed", distributed, STRATEGIES)
    with joined_ranks(device, timeout=timeout) as own:
        yield DistributedTrainer, own, {"strategy": distributed}


def _run(trainer: Any, folder: Path, checkpoint_every: int, tensorboard: bool) -> None:
    """Take all steps that are left, with a live bar."""
    loss = "loss {task.fields[loss]:.4f}  accuracy {task.fields[accuracy]:6.1%}"
    columns = "bar", "count", loss, "{task.fields[rate]:,.0f} tokens/s", "remaining"
    writer = _tensorboard(folder) if tensorboard and trainer.leads else None

    def where() -> str:
        return f"interrupted at step {trainer.step:,}; the same command goes on from the last written state"

    try:
        with interruptions(where), progress(*columns, disable=not trainer.leads) as bars:
            bar = bars.add_task(
                "", total=trainer.settings.steps, completed=trainer.step, loss=0.0, accuracy=0.0, rate=0.0
            )
            began = time.perf_counter()

            def on_step(point: Any) -> None:
                rate = trainer.tokens_read / (time.perf_counter() - began)
                bars.update(bar, completed=point.step, loss=point.loss, accuracy=point.accuracy, rate=rate)
                if writer is not None:
                    writer.add_scalar("loss", point.loss, point.step)
                    writer.add_scalar("accuracy", point.accuracy, point.step)

            trainer.run(on_step, folder=folder, checkpoint_every=checkpoint_every)
    finally:
        if writer is not None:
            writer.close()


def _tensorboard(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ValueError("--tensorboard needs the package tensorboard: pip install tensorboard") from None
    return SummaryWriter(folder / "events")


def _print_scores(model: SequenceModel[Any], source: FileData) -> None:
    """Print how right the model is on every part of its data, and what to try where longer sequences go wrong."""
    from transductor.training import score

    parts = {"validation": source.held_out, "longest": source.held_out_longest}
    for part in ("training", *(name for name, share in parts.items() if share)):
        data, examples = replace(source, part=part).read()
        result = score(model, data, examples)
        lengths = f"{min(examples.lengths)} to {max(examples.lengths)} tokens"
        typer.echo(f"{part} ({lengths}): {_described(data, result)}")
        if part == "longest" and result.sequences < _POOR:
            typer.echo(_hint(model, source))
    if not source.held_out_longest:
        typer.echo("longer sequences were not judged: --held-out-longest 0.1 sets the longest tenth aside for that")


def _print_accuracies(model: SequenceModel[Any], task: Task, length: int) -> None:
    """Print how right the model is on new sequences of a task, of the trained length and longer."""
    from transductor.training import evaluate as accuracy

    if task.output_kind != "class":
        return
    for each in (length, _TIMES_LONGER * length):
        result = accuracy(model, task, length=each, trained_length=length)
        typer.echo(f"{each:,} tokens: {result.every_position:.2%} of labels right")


def _hint(model: SequenceModel[Any], source: FileData) -> str:
    """Say what to try when a model is wrong on sequences longer than those it was trained on."""
    from transductor.transitions.laws import Orthogonal

    fit = f"`transductor fit {source.path}` trains several models and chooses by longer sequences"
    head = getattr(model, "rational_head", None)
    if head is None or not any(isinstance(law, Orthogonal) for law in head.transitions.laws()):
        return f"hint: the model does not generalise to longer sequences; {fit}"
    return (
        f"hint: matrices of the family {head.transitions.name} can be undone, so no token can reset the state; for "
        "data that need a reset, try --model readout --family stochastic --annealing-start 1 --annealing-end 0.05; "
        f"{fit}"
    )


def _described(data: FileData, result: Score) -> str:
    if data.real:
        return f"root mean square error {result.loss**0.5:.6g} ({result.count:,} sequences)"
    shares = f"{result.positions:.2%} of {result.count:,} labels right, {result.sequences:.2%} of sequences right"
    return shares + (f", perplexity {result.perplexity:.4g}" if data.goal == "next_token" else "")


def evaluate(
    model: Annotated[Path, typer.Argument(help="The folder of a run, or its folder model/.")],
    data: Data = None,
    labels: Labels = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File for the numbers, as JSON.")] = None,
    device: TorchDevice = "cpu",
) -> None:
    """Judge a trained model on other data of the same goal; without --data, on what it was trained on."""
    import json
    from dataclasses import asdict

    from transductor.results import write_atomically
    from transductor.training import score

    with refusals():
        net, trained = trained_model(model, device)
        if data is None:
            if labels is not None:
                raise ValueError("--labels is for --data")
            _print_scores(net, trained)
            return
        source = replace(
            trained,
            path=str(data),
            labels=None if labels is None else str(labels),
            text_column=text_column or trained.text_column,
            label_column=label_column or trained.label_column,
            sha256="",
            held_out=0.0,
            held_out_longest=0.0,
            part="training",
        )
        named, examples = source.read()
        result = score(net, named, examples)
        typer.echo(_described(named, result))
        if output is not None:
            numbers = {name: value for name, value in asdict(result).items() if value == value}
            write_atomically(output, json.dumps(numbers, indent=2).encode())
            print_written(output)
