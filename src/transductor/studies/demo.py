"""The demo: mod-5 counting, a Rational Transductor beside a Transformer of the same size."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch

from transductor.checks import check_positive
from transductor.configuration import configuration, to_plain
from transductor.heads import RationalHead
from transductor.model import BackboneConfig, RationalTransductor, SequenceModel, SinusoidalPositions, Transformer
from transductor.results import Record, environment
from transductor.tasks import ModularCounting
from transductor.training import TrainingPoint, TrainingSettings, evaluate, evaluate_on, train
from transductor.transitions import FamilySpec, OrthogonalTransitions, build_family

# Called while training: model, seed, and the point reached.
OnStep = Callable[[str, int, TrainingPoint], None]


@configuration
@dataclass(frozen=True)
class DemoStudy:
    """What the demo trains and how it is judged.

    The Transformer has sinusoidal positions: they cost no parameters, so both models have the same backbone and
    differ by the head alone.
    """

    task: ModularCounting = field(default_factory=ModularCounting)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    width: int = 32
    layers: int = 2
    attention_heads: int = 4
    family: str = OrthogonalTransitions.name
    state_dim: int = 8
    lengths: tuple[int, ...] = (50, 100, 200, 500)
    evaluation_batch: int = 256
    seeds: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        for length in self.lengths:
            check_positive("lengths", length)
        if not self.seeds or not self.lengths:
            raise ValueError("seeds and lengths must not be empty")

    def backbone(self) -> BackboneConfig:
        """Shared by both models, but for the positions."""
        return BackboneConfig(
            vocab_size=self.task.vocab_size,
            output_size=self.task.output_size,
            width=self.width,
            layers=self.layers,
            attention_heads=self.attention_heads,
        )

    def build(self, name: str) -> SequenceModel[Any]:
        """``"transductor"`` or ``"transformer"``."""
        if name == "transformer":
            return Transformer(replace(self.backbone(), positions=SinusoidalPositions()))
        spec = FamilySpec(self.family, {"vocab_size": self.task.vocab_size, "state_dim": self.state_dim})
        return RationalTransductor(RationalHead(build_family(spec)), self.backbone())


def run_demo(
    study: DemoStudy,
    on_step: OnStep | None = None,
    device: str = "cpu",
    models: tuple[str, ...] = ("transductor", "transformer"),
) -> tuple[Record, dict[str, SequenceModel[Any]]]:
    """Train and judge the models for every seed; returns the record and the models of the first seed."""
    began = time.perf_counter()
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in models}
    kept: dict[str, SequenceModel[Any]] = {}
    for seed in study.seeds:
        for name, outcomes in runs.items():
            torch.manual_seed(seed)
            model = study.build(name).to(device)
            outcomes.append({"seed": seed, **_run(study, name, model, seed, on_step)})
            kept.setdefault(name, model)
    measurements = {
        "models": {
            name: {"parameters": kept[name].parameter_count(), "runs": outcomes} for name, outcomes in runs.items()
        },
        "chance": study.task.chance,
    }
    surroundings = {**environment(), "device": device, "seconds": round(time.perf_counter() - began, 1)}
    return Record("demo", to_plain(study), measurements, surroundings), kept


def _run(study: DemoStudy, name: str, model: SequenceModel[Any], seed: int, on_step: OnStep | None) -> dict[str, Any]:
    settings = replace(study.training, seed=seed)

    def report(point: TrainingPoint) -> None:
        if on_step is not None:
            on_step(name, seed, point)

    points = train(model, study.task, settings, report)
    trained = settings.length
    random = {
        length: evaluate(
            model,
            study.task,
            length=length,
            trained_length=trained,
            batch_size=study.evaluation_batch,
            seed=10_000 + seed,
        )
        for length in study.lengths
    }
    longest = max(study.lengths)
    adversarial = {
        kind: evaluate_on(model, study.task, tokens, trained)
        for kind, tokens in study.task.adversarial(longest).items()
    }
    return {
        "training": [asdict(point) for point in points if point.step % 10 == 0 or point.step == settings.steps],
        "lengths": [
            {"length": length, "every_position": found.every_position, "beyond": found.beyond}
            for length, found in random.items()
        ],
        "adversarial": {kind: found.every_position for kind, found in adversarial.items()},
        "by_position": list(random[longest].by_position),
    }
