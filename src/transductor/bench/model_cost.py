"""The study ``model_cost`` measures what a rational head adds to a Transformer's training step and decoding."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from transductor.bench.correctness import one_line
from transductor.bench.memory import device_peak
from transductor.bench.timing import call_time, quiet_collector, run_environment, spread, stopwatch, take_turns
from transductor.checks import check_positive
from transductor.configuration import configuration, to_plain
from transductor.heads import RationalHead
from transductor.model import BackboneConfig, RationalTransductor, SequenceModel, Transformer
from transductor.results import Record
from transductor.transitions import FamilySpec, OrthogonalTransitions, build_family

MODELS = ("transformer", "transductor")
PARTS = ("training", "decoding")

# Prompts are read in pieces, because the attention mask of a complete prompt would take quadratic memory.
_PIECE = 512

OnStage = Callable[[str, int, int], None]


@configuration
@dataclass(frozen=True)
class ModelCostStudy:
    """A Transformer and the same one with a head, and how both are measured.

    Args:
        contexts: Tokens already read when one more is decoded.
        decode_batches: Rows decoded together.
        turns: Alternating turns of ``steps_per_turn`` training steps each.
        warmup: Steps before the first turn; the first of them compiles.
        compiled: Whether models go through ``torch.compile``.
    """

    vocab_size: int = 256
    width: int = 512
    layers: int = 12
    attention_heads: int = 8
    family: str = OrthogonalTransitions.name
    state_dim: int = 32
    batch: int = 8
    length: int = 2048
    contexts: tuple[int, ...] = (128, 2048, 8192)
    decode_batches: tuple[int, ...] = (1, 8)
    turns: int = 15
    steps_per_turn: int = 4
    warmup: int = 5
    decode_box: float = 0.5
    compiled: bool = True

    def __post_init__(self) -> None:
        for name in ("batch", "length", "turns", "steps_per_turn", "warmup"):
            check_positive(name, getattr(self, name))

    @staticmethod
    def for_device(device: str) -> ModelCostStudy:
        """Return the study whose numbers are published; a CPU gets a smaller model."""
        if device == "cuda":
            return ModelCostStudy()
        sizes = {"width": 256, "layers": 4, "length": 512, "batch": 4, "turns": 5, "steps_per_turn": 1, "warmup": 2}
        return ModelCostStudy(**sizes, contexts=(128, 512))  # type: ignore[arg-type]

    @staticmethod
    def of_bytes() -> ModelCostStudy:
        """Return the study of a byte-level model of 14 million parameters, which is trained for language."""
        return ModelCostStudy(width=384, layers=8, attention_heads=6, batch=16, contexts=(2048,), decode_batches=(1,))

    @staticmethod
    def small() -> ModelCostStudy:
        """Return a study of seconds: a quick check that everything runs."""
        sizes = {"width": 16, "layers": 2, "attention_heads": 2, "state_dim": 4, "vocab_size": 8, "length": 32}
        times = {"batch": 2, "turns": 2, "steps_per_turn": 1, "warmup": 1, "decode_box": 0.02}
        return ModelCostStudy(**sizes, **times, contexts=(16,), decode_batches=(1, 2), compiled=False)  # type: ignore[arg-type]

    def build(self, name: str) -> SequenceModel[Any]:
        """Build the ``"transductor"`` or the ``"transformer"``; both have the same backbone."""
        backbone = BackboneConfig(
            vocab_size=self.vocab_size, width=self.width, layers=self.layers, attention_heads=self.attention_heads
        )
        if name == "transformer":
            return Transformer(backbone)
        spec = FamilySpec(self.family, {"vocab_size": self.vocab_size, "state_dim": self.state_dim})
        return RationalTransductor(RationalHead(build_family(spec)), backbone)


def run_model_cost(
    study: ModelCostStudy,
    device: str = "cpu",
    on_stage: OnStage | None = None,
    parts: tuple[str, ...] = PARTS,
    name_of: str = "",
) -> tuple[Record, ...]:
    """Train both models in turns and decode with both in turns; return one record for each part.

    ``name_of`` the sizes, where they are not those of :meth:`ModelCostStudy.for_device`, is part of a record's name.
    """
    report = on_stage or (lambda *_: None)
    cells = [(batch, context) for batch in study.decode_batches for context in study.contexts]
    stages = ("training" in parts) + len(cells) * ("decoding" in parts)
    models: dict[str, SequenceModel[Any]] = {}
    for name in MODELS:
        torch.manual_seed(0)
        models[name] = study.build(name).to(device)
    records = []
    with quiet_collector():
        for part in parts:
            began = time.perf_counter()
            measurements: dict[str, Any]
            if part == "training":
                report("training step", 0, stages)
                measurements = {"models": _training(study, models, device)}
            else:
                measurements = {"cells": []}
                for batch, context in cells:
                    done = stages - len(cells) + len(measurements["cells"])
                    report(f"decoding, B={batch}, context {context:,}", done, stages)
                    measurements["cells"].append(_decoding(study, models, device, batch, context))
            here = run_environment(device, began)
            called = "_".join(word for word in ("model", part, name_of, device) if word)
            records.append(Record(called, to_plain(study), measurements, here))
    report("done", stages, stages)
    return tuple(records)


class _Trainer:
    """One model and its optimiser; ``step()`` is forward, loss, backward, update."""

    def __init__(self, study: ModelCostStudy, model: SequenceModel[Any], device: str) -> None:
        self.study, self.model, self.device = study, model.train(), device
        self.run: Callable[[Tensor], Tensor] = model
        self.how, self.note, self._turn = "eager", "", 0
        self.optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True, capturable=device == "cuda")
        rows = study.batch, study.length
        self._batches = [
            tuple(torch.randint(0, study.vocab_size, rows, device=device) for _ in range(2)) for _ in range(4)
        ]

    def compile(self) -> None:
        """Compile into one graph if that works, else with graph breaks, else not at all."""
        for how, one_graph in (("one graph", True), ("graph breaks", False)):
            self.how, self.run = how, torch.compile(self.model, fullgraph=one_graph)
            try:
                self.step()
                return
            except Exception as error:
                self.note = f"not {how}: {one_line(error)}"
                self.optimiser.zero_grad(set_to_none=True)
                torch.compiler.reset()
        self.how, self.run = "eager", self.model

    def warm_up(self) -> None:
        """Take a few steps, after all models are compiled: a failed attempt makes the others compile again."""
        for _ in range(self.study.warmup):
            self.step()
        _wait(self.device)

    def step(self) -> None:
        """Take a training step on random tokens: next-token cross-entropy, bfloat16 products, float32 weights."""
        self._turn += 1
        tokens, labels = self._batches[self._turn % len(self._batches)]
        with torch.autocast(self.device, torch.bfloat16):
            logits = self.run(tokens)
            loss = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())
        loss.backward()
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)

    def seconds(self) -> float:
        """Return the seconds of one step, averaged over a turn, from an idle device to an idle device."""
        _wait(self.device)
        begin = time.perf_counter()
        for _ in range(self.study.steps_per_turn):
            self.step()
        _wait(self.device)
        return (time.perf_counter() - begin) / self.study.steps_per_turn


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _training(study: ModelCostStudy, models: dict[str, SequenceModel[Any]], device: str) -> dict[str, Any]:
    trainers = {name: _Trainer(study, model, device) for name, model in models.items()}
    for trainer in trainers.values():
        if study.compiled:
            trainer.compile()
    for trainer in trainers.values():
        trainer.warm_up()
    turns: dict[str, list[float]] = {name: [] for name in trainers}
    for number in range(study.turns):
        for name in list(trainers) if number % 2 else list(trainers)[::-1]:  # each goes first every other time
            turns[name].append(trainers[name].seconds())
    # Where the host launches slower than the device computes, the host's clock measures launches; a graph has none.
    timed = trainers if device == "cuda" else {}
    watches = {name: stopwatch([trainer.step], device) for name, trainer in timed.items()}
    captured = take_turns(watches, box=study.turns * 0.1, rounds=study.turns)
    entries = {}
    for name, trainer in trainers.items():
        entry: dict[str, Any] = {
            **spread(turns[name]),
            "turns": turns[name],
            "parameters": trainer.model.parameter_count(),
            "compiled": trainer.how,
        }
        if trainer.note:
            entry["note"] = trainer.note
        if watches:
            samples = captured[name]
            if isinstance(samples, Exception):
                raise samples
            entry["device_seconds"] = median(samples)
            entry["device_turns"], entry["device_timed"] = samples, watches[name].timed
            if watches[name].note:
                entry["note"] = watches[name].note
            weights = sum(parameter.nbytes for parameter in trainer.model.parameters())
            # Weights and the two moments of AdamW stay; everything else is allocated and freed within a step.
            entry["peak_bytes"] = 3 * weights + device_peak(trainer.step)
        entries[name] = entry
    return entries


def _decoding(
    study: ModelCostStudy, models: dict[str, SequenceModel[Any]], device: str, batch: int, context: int
) -> dict[str, Any]:
    """Time the decoding of one token after ``context`` others, every call from the same stream."""
    entries: dict[str, dict[str, Any]] = {name: {} for name in models}
    with torch.no_grad(), torch.autocast(device, torch.bfloat16):
        calls = {}
        for name, model in models.items():
            try:
                calls[name] = _next_token(model.eval(), study, device, batch, context)
            except torch.OutOfMemoryError as error:
                entries[name] = {"skipped": one_line(error)}
        watches = {name: stopwatch(several, device) for name, several in calls.items()}
        for name, samples in take_turns(watches, box=study.decode_box, rounds=25).items():
            if isinstance(samples, Exception):
                entries[name] = {"skipped": one_line(samples)}
                continue
            entries[name] = watches[name].summary(samples)
        if device == "cuda":
            for name, several in calls.items():
                entries[name]["call_seconds"] = call_time(several, None, study.decode_box)
    return {"batch": batch, "context": context, "models": entries}


def _next_token(
    model: SequenceModel[Any], study: ModelCostStudy, device: str, batch: int, context: int
) -> list[Callable[[], Tensor]]:
    stream = model.start(batch)
    prompt = torch.randint(0, study.vocab_size, (batch, context), device=device)
    for piece in prompt.split(_PIECE, 1):
        stream = model.advance(piece, stream)[1]
    tokens = [torch.randint(0, study.vocab_size, (batch, 1), device=device) for _ in range(4)]
    advance = torch.compile(model.advance) if study.compiled else model.advance
    return [lambda token=token: advance(token, stream)[0] for token in tokens]  # type: ignore[misc]
