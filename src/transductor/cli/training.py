"""``transductor train``, ``evaluate``, ``predict``: your own data, or a task by name."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transductor.cli.models import trained_model, write_data
from transductor.cli.options import TorchDevice
from transductor.cli.terminal import interruptions, print_written, progress, refusals

if TYPE_CHECKING:
    import torch

    from transductor.model import SequenceModel
    from transductor.tasks import Task
    from transductor.training import FileData, Score, Trainer

_DATA = "One sequence per line, tokens between blanks; or .jsonl with tokens and label(s)."


def train(
    output: Annotated[Path, typer.Argument(help="Folder of the run: its state, and in the end the model.")],
    data: Annotated[Path | None, typer.Option(help=_DATA)] = None,
    labels: Annotated[Path | None, typer.Option(help="The labels, line by line beside --data.")] = None,
    goal: Annotated[
        str, typer.Option(help="recognition (a label per sequence), tagging (per token), regression, next_token.")
    ] = "recognition",
    task: Annotated[
        str | None, typer.Option(help="Instead of --data: a task by name, such as parity, counting:7 or group:S5:2.")
    ] = None,
    held_out: Annotated[float, typer.Option(min=0, max=0.9, help="Fraction of the data set aside.")] = 0.1,
    model: Annotated[str, typer.Option(help="transductor, transformer, lstm or linear_rnn.")] = "transductor",
    family: Annotated[str, typer.Option(help="Family of the head's matrices.")] = "orthogonal",
    state_dim: Annotated[int, typer.Option(min=1, help="State dimension of the head.")] = 16,
    width: Annotated[int, typer.Option(min=1, help="Width of the stream.")] = 64,
    layers: Annotated[int, typer.Option(min=1)] = 2,
    attention_heads: Annotated[int, typer.Option(min=1)] = 4,
    steps: Annotated[int, typer.Option(min=1)] = 1500,
    batch_size: Annotated[int, typer.Option(min=1)] = 64,
    length: Annotated[int, typer.Option(min=1, help="Length of a task's sequences.")] = 50,
    learning_rate: Annotated[float, typer.Option()] = 5e-3,
    seed: Annotated[int, typer.Option(min=0)] = 0,
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
    from transductor.tasks import task_named
    from transductor.training import FileData, TrainingError, TrainingSettings

    with refusals(TrainingError), _trainers(distributed, device, rank_timeout) as (kind, own_device, options):
        if (data is None) == (task is None):
            raise ValueError("one of --data and --task must be given")
        settings = TrainingSettings(
            steps=steps, batch_size=batch_size, length=length, learning_rate=learning_rate, seed=seed
        )
        source: Task | FileData
        if data is not None:
            named = None if labels is None else str(labels)
            source = FileData(goal, str(data), named, held_out=held_out, split_seed=seed).read()[0]
        else:
            source = task_named(str(task))
        torch.manual_seed(seed)
        built = _model(model, source, family, state_dim, width, layers, attention_heads)
        if (output / "training.json").exists():
            trainer = kind.resumed(output, device=own_device, **options)
            asked = {"data": source, "settings": settings, "model": built.config}
            saved = {"data": trainer.source, "settings": trainer.settings, "model": trainer.model.config}
            if other := [name for name in asked if asked[name] != saved[name]]:
                raise ValueError(f"{output} holds another run: its {' and '.join(other)} differ from those given")
            if trainer.leads:
                typer.echo(f"going on from step {trainer.step:,}")
        else:
            trainer = kind(built.to(own_device), source, settings, **options)
        _run(trainer, output, checkpoint_every, tensorboard)
        trained = trainer.whole_model()
        if not trainer.leads:
            return
        save(trained, output / "model")
        if isinstance(source, FileData):
            write_data(source, output / "model")
            _print_scores(trained, source)
    print_written(output / "model")


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


def _model(
    name: str, source: Task | FileData, family: str, state_dim: int, width: int, layers: int, attention_heads: int
) -> SequenceModel[Any]:
    from transductor.checks import one_of
    from transductor.heads import RationalHead
    from transductor.model import LSTM, BackboneConfig, LinearRNN, RationalTransductor, RotaryPositions, Transformer
    from transductor.transitions import FAMILIES, FamilySpec, build_family

    one_of("--model", name, ("transductor", "transformer", "lstm", "linear_rnn"))
    one_of("--family", family, FAMILIES)
    tokens, outputs = source.vocab_size, source.output_size
    if name == "lstm":
        return LSTM(vocab_size=tokens, output_size=outputs, width=width, layers=layers)
    if name == "linear_rnn":
        return LinearRNN(vocab_size=tokens, output_size=outputs, width=width)
    backbone = BackboneConfig(
        vocab_size=tokens, output_size=outputs, width=width, layers=layers, attention_heads=attention_heads
    )
    if name == "transformer":
        return Transformer(replace(backbone, positions=RotaryPositions()))
    spec = FamilySpec(family, {"vocab_size": tokens, "state_dim": state_dim})
    return RationalTransductor(RationalHead(build_family(spec)), backbone)


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
    from transductor.training import score

    for part in ("training", "validation") if source.held_out else ("training",):
        data, examples = replace(source, part=part).read()
        typer.echo(f"{part}: {_described(data, score(model, data, examples))}")


def _described(data: FileData, result: Score) -> str:
    if data.real:
        return f"root mean square error {result.loss**0.5:.6g} ({result.count:,} sequences)"
    shares = f"{result.positions:.2%} of {result.count:,} labels right, {result.sequences:.2%} of sequences right"
    return shares + (f", perplexity {result.perplexity:.4g}" if data.goal == "next_token" else "")


def evaluate(
    model: Annotated[Path, typer.Argument(help="The folder model/ of a run.")],
    data: Annotated[Path, typer.Option(help=_DATA)],
    labels: Annotated[Path | None, typer.Option(help="The labels, line by line beside --data.")] = None,
    device: TorchDevice = "cpu",
) -> None:
    """Judge a trained model on other data of the same goal."""
    from transductor.training import score

    with refusals():
        net, trained = trained_model(model, device)
        source = replace(
            trained, path=str(data), labels=None if labels is None else str(labels), sha256="", held_out=0.0
        )
        named, examples = source.read()
        typer.echo(_described(named, score(net, named, examples)))
