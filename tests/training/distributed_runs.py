"""Run on every rank: training on several ranks; on two of them, in the end, one is killed."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist

from transductor.heads import RationalHead, UniversalHead
from transductor.model import LSTM, BackboneConfig, RationalTransductor, StackedTransductor
from transductor.tasks import ModularCounting, task_named
from transductor.training import Annealing, Curriculum, FileData, TrainingSettings
from transductor.training.distributed import DistributedTrainer, joined_ranks
from transductor.transitions import OrthogonalTransitions

SETTINGS = TrainingSettings(
    steps=10, length=9, batch_size=7, learning_rate=1e-2
)  # 7 rows: no rank has as many as the next
TASK = ModularCounting(3)
BACKBONE = BackboneConfig(vocab_size=2, output_size=3, width=16, layers=2, attention_heads=2)
FIRST, SECOND = 4, 7  # where the interrupted runs stop
KILLED_AT, EVERY = 6, 4


def transductor():
    return RationalTransductor(RationalHead(OrthogonalTransitions(vocab_size=2, state_dim=8)), BACKBONE)


def universal():
    return RationalTransductor(UniversalHead(vocab_size=2, orthogonal_dim=4, stochastic_dim=3), BACKBONE)


def stacked():
    heads = [
        RationalHead(OrthogonalTransitions(state_dim=4, **drive)) for drive in ({"vocab_size": 2}, {"feature_dim": 16})
    ]
    return StackedTransductor(heads, BACKBONE)


def numbers():
    return RationalTransductor(transductor().rational_head, replace(BACKBONE, output_size=1))


def silent_head():
    return RationalTransductor(transductor().rational_head, BACKBONE, injection="none")


def words(folder):
    """A file of sequences of many lengths, among them empty ones."""
    generator = torch.Generator().manual_seed(5)
    rows = [
        torch.randint(0, 2, (int(torch.randint(0, 9, (), generator=generator)),), generator=generator)
        for _ in range(30)
    ]
    file, classes = Path(folder) / "words.txt", Path(folder) / "classes.txt"
    if not classes.exists():
        file.write_text("\n".join(" ".join("ab"[i] for i in row.tolist()) for row in rows) + "\n")
        classes.write_text("\n".join(str(int(row.sum()) % 3) for row in rows) + "\n")
    return FileData("recognition", str(file), str(classes), held_out=0.0).read()[0]


def read_words(data):
    return RationalTransductor(
        RationalHead(OrthogonalTransitions(vocab_size=data.vocab_size, state_dim=8)),
        replace(BACKBONE, vocab_size=data.vocab_size, output_size=data.output_size),
    )


# Name to a model, a source (given the folder) and settings.
RUNS = {
    "plain": (lambda _: transductor(), lambda _: TASK, SETTINGS),
    "per_tensor": (
        lambda _: transductor(),
        lambda _: TASK,
        replace(SETTINGS, optimiser="adam", schedule="linear", warmup=3, clipping="per_tensor", label_smoothing=0.0),
    ),
    "curriculum": (
        lambda _: transductor(),
        lambda _: TASK,
        replace(SETTINGS, curriculum=Curriculum(start=2, threshold=0.35), shortest=1, labels="last"),
    ),
    "double": (
        lambda _: transductor(),
        lambda _: TASK,
        replace(SETTINGS, double=True, head_learning_rate=1e-3, schedule="constant", clipping="none"),
    ),
    "annealed": (lambda _: universal(), lambda _: TASK, replace(SETTINGS, annealing=Annealing(1.0, 0.1))),
    "stacked": (lambda _: stacked(), lambda _: TASK, SETTINGS),
    "lstm": (lambda _: LSTM(vocab_size=2, output_size=3, width=8, layers=1), lambda _: TASK, SETTINGS),
    "numbers": (lambda _: numbers(), lambda _: task_named("value"), SETTINGS),
    "silent_head": (lambda _: silent_head(), lambda _: TASK, SETTINGS),
    "files": (lambda folder: read_words(words(folder)), words, SETTINGS),
}


# What is tried on how many ranks.
TRIED = {2: tuple(RUNS), 4: ("plain", "stacked", "files")}


def begun(kind, name, folder, **options):
    torch.manual_seed(0)
    model, source, settings = RUNS[name]
    return kind(model(folder), source(folder), settings, **options)


def curve(trainer):
    return [[point.loss, -1.0 if point.accuracy != point.accuracy else point.accuracy] for point in trainer.points]


def stopped_at(trainer, step, folder):
    while trainer.step < step:
        trainer.advance()
    trainer.save(folder)
    return trainer


def precision_of_head():
    """FSDP2 with a bfloat16 model: the head's states stay float32, the logits do not."""
    torch.manual_seed(0)
    trainer = DistributedTrainer(transductor(), TASK, SETTINGS, strategy="fsdp2", precision=torch.bfloat16)
    seen = {}
    trainer.model.rational_head.register_forward_hook(lambda _, __, states: seen.update(states=str(states.dtype)))
    trainer.model.register_forward_hook(lambda _, __, logits: seen.update(logits=str(logits.dtype)))
    trainer.advance()
    masters = {str(value.dtype) for value in trainer.model.parameters()}
    return {**seen, "masters": sorted(masters)}


def main(folder):
    folder = Path(folder)
    with joined_ranks(timeout=30) as device:
        world = dist.get_world_size()
        outcome = {"curves": {}, "lengths": {}, "resumed": {}}
        for strategy in ("ddp", "fsdp2"):
            for name in TRIED[world]:
                trainer = begun(DistributedTrainer, name, folder, strategy=strategy)
                trainer.run()
                outcome["curves"][f"{strategy}-{name}"] = curve(trainer)
                outcome["lengths"][f"{strategy}-{name}"] = trainer.length
                whole = trainer.whole_model()
                assert not any(hasattr(value, "full_tensor") for value in whole.parameters())
            state = folder / strategy
            if world == 2:
                trainer = begun(DistributedTrainer, "curriculum", folder, strategy=strategy)
                stopped_at(trainer, FIRST, state)
            else:
                trainer = DistributedTrainer.resumed(state, device=device, strategy=strategy)
                assert trainer.step == SECOND
                trainer.run(folder=state)
                outcome["resumed"][strategy] = curve(trainer)
        outcome["precision"] = precision_of_head()
        if world == 4:
            trainer = DistributedTrainer.resumed(folder / "killed", strategy="ddp")
            outcome["resumed_at"] = trainer.step
            trainer.run()
            outcome["resumed"]["killed"] = curve(trainer)
        if dist.get_rank() == 0:
            (folder / f"{world}.json").write_text(json.dumps(outcome))
        if world == 2:
            die(folder)


def die(folder):
    trainer = begun(DistributedTrainer, "plain", folder)

    def on_step(point):
        if point.step == KILLED_AT and dist.get_rank() == 1:
            (folder / "killed_at").write_text(str(time.time()))
            os.kill(os.getpid(), signal.SIGKILL)

    trainer.run(on_step, folder=folder / "killed", checkpoint_every=EVERY)


if __name__ == "__main__":
    main(sys.argv[1])
