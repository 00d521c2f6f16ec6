"""``transductor demo``: a Rational Transductor beside a Transformer of the same size."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from transductor.cli.options import TorchDevice, check_torch_device
from transductor.cli.terminal import console, interruptions, print_written, progress, refusal, refusals


def demo(
    out: Annotated[
        Path, typer.Option("--output", "-o", "--out", help="Folder for the record, the figure and both models.")
    ] = Path("runs/demo"),
    steps: Annotated[int, typer.Option(min=1, help="Training steps of each model.")] = 1500,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds, counted from --seed.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    device: TorchDevice = "cpu",
) -> None:
    """Train a Rational Transductor and a Transformer of the same size on mod-5 counting; compare, harden, certify.

    The same command again goes on where it was interrupted.
    """
    from transductor.one_writer import only_writer

    if out.exists() and not out.is_dir():
        raise refusal(f"--output must be a folder; {out} is a file")
    check_torch_device(device)
    with refusals(), only_writer(out):
        _demo(out, steps, seeds, seed, device)


def _demo(out: Path, steps: int, seeds: int, seed: int, device: str) -> None:
    from transductor.model import save
    from transductor.report import demo_certificate, demo_figure, demo_table
    from transductor.report.style import LABELS
    from transductor.studies import DemoStudy, certified_demo, run_demo
    from transductor.training import TrainingPoint

    study = DemoStudy(seeds=tuple(range(seed, seed + seeds)))
    study = replace(study, training=replace(study.training, steps=steps))
    state = out / "state"
    accuracy = "accuracy {task.fields[accuracy]:6.1%}"
    with (
        interruptions(lambda: f"interrupted; the same command goes on from what is kept in {state}"),
        progress("{task.description}", "bar", "count", accuracy, "remaining") as bars,
    ):
        bar_of: dict[tuple[str, int], int] = {}

        def on_step(model: str, run_seed: int, point: TrainingPoint) -> None:
            bar = bar_of.get((model, run_seed))
            if bar is None:
                title = f"{LABELS[model]:<20}" + (f" seed {run_seed}" if seeds > 1 else "")
                bar = bar_of[model, run_seed] = bars.add_task(title, total=steps, accuracy=0.0)
            bars.update(bar, completed=point.step, accuracy=point.accuracy)  # type: ignore[arg-type]

        record, models = run_demo(study, on_step, device, folder=state)
        waiting = bars.add_task("harden and certify  ", total=None, accuracy=1.0)
        said, certified = certified_demo(study, models["transductor"])  # type: ignore[arg-type]
        bars.remove_task(waiting)
    record = replace(record, measurements={**record.measurements, "certified": said})
    console().print(demo_table(record))
    console().print(demo_certificate(record))
    written = [record.write(out / "record.json"), demo_figure(record, out / "figure.png")]
    written += [save(model, out / name) for name, model in models.items()]
    if certified is not None:
        hardened, certificate = certified
        written += [save(hardened, out / "hardened"), certificate.write(out / "certificate.json")]
    shutil.rmtree(state, ignore_errors=True)
    print_written(*written)
