"""The demo: mod-5 counting, a Rational Transductor beside a Transformer of the same size."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from transductor.certification import AgreementCertificate, certify
from transductor.checks import check_positive
from transductor.configuration import configuration, to_plain
from transductor.extraction import NoMachineNearby, harden
from transductor.heads import HeadConfig
from transductor.model import (
    BackboneConfig,
    CheckpointError,
    RationalTransductor,
    SequenceModel,
    SinusoidalPositions,
    TransductorConfig,
)
from transductor.results import Record, environment
from transductor.studies.running import build_model, seeded_model
from transductor.studies.study import EVERY_KIND, Arm, Probe
from transductor.tasks import ModularCounting
from transductor.training import Trainer, TrainingPoint, TrainingSettings, evaluate, evaluate_on, narrow_attention
from transductor.transitions import FamilySpec, OrthogonalTransitions

_ROUNDS: Final = 3  # of narrowing
_CHECKPOINT_EVERY: Final = 50

# Called while training with the name of the model, the seed, and the point reached.
OnStep = Callable[[str, int, TrainingPoint], None]


@configuration
@dataclass(frozen=True)
class DemoStudy:
    """What the demo trains and how it is judged; :meth:`arm` gives each model as an arm of a study.

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

    def arm(self, name: str) -> Arm:
        """Return the arm ``"transductor"`` or ``"transformer"``."""
        backbone = BackboneConfig(
            vocab_size=self.task.vocab_size,
            output_size=self.task.output_size,
            width=self.width,
            layers=self.layers,
            attention_heads=self.attention_heads,
        )
        probes = (
            *(Probe(length, self.evaluation_batch) for length in self.lengths),
            Probe(max(self.lengths), 1, family=EVERY_KIND),
        )
        if name == "transformer":
            transformer = replace(backbone, positions=SinusoidalPositions())
            return Arm(name, "baseline", self.task, transformer, self.training, probes)
        spec = FamilySpec(self.family, {"vocab_size": self.task.vocab_size, "state_dim": self.state_dim})
        transductor = TransductorConfig(HeadConfig("rational", spec), backbone)
        return Arm(name, "ours", self.task, transductor, self.training, probes)

    def build(self, name: str) -> SequenceModel[Any]:
        """Build the model ``"transductor"`` or ``"transformer"``; seed torch before."""
        return build_model(self.arm(name))


def run_demo(
    study: DemoStudy,
    on_step: OnStep | None = None,
    device: str = "cpu",
    models: tuple[str, ...] = ("transductor", "transformer"),
    *,
    folder: Path | None = None,
) -> tuple[Record, dict[str, SequenceModel[Any]]]:
    """Train and judge the models for every seed; return the record and the models of the first seed.

    Args:
        study: What is trained, and how.
        on_step: Called after every step.
        device: Where.
        models: Which of the two.
        folder: Where the state of training is kept; the same call again goes on from there, bit for bit.
    """
    began = time.perf_counter()
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in models}
    kept: dict[str, SequenceModel[Any]] = {}
    for seed in study.seeds:
        for name, outcomes in runs.items():
            arm = study.arm(name)
            state = None if folder is None else folder / f"{name}_seed{seed}"
            trainer = _trainer(arm, seed, device, state)
            outcomes.append({"seed": seed, **_run(arm, trainer, seed, on_step, state)})
            kept.setdefault(name, trainer.model)
    measurements = {
        "models": {
            name: {"parameters": kept[name].parameter_count(), "runs": outcomes} for name, outcomes in runs.items()
        },
        "chance": study.task.chance,
    }
    machine = {**environment(), "device": device, "seconds": round(time.perf_counter() - began, 1)}
    return Record("demo", to_plain(study), measurements, machine), kept


def certified_demo(
    study: DemoStudy, model: RationalTransductor
) -> tuple[dict[str, Any], tuple[RationalTransductor, AgreementCertificate] | None]:
    """Harden a trained transductor, narrow its attention and certify it; return what to record, model and certificate.

    Attention is trained on for up to three rounds, until what it can look at changes no label at any length.  Where no
    machine is near, the record says why, and there is no model.
    """
    automaton = study.task.automaton()
    assert automaton is not None
    try:
        hardened = harden(copy.deepcopy(model).cpu()).model
    except NoMachineNearby as error:
        return {"refused": str(error)}, None
    narrowed, rounds = hardened, 0
    certificate = certify(hardened, against=automaton)
    while certificate.about == "head" and certificate.holds and rounds < _ROUNDS:
        narrowed, rounds = narrow_attention(narrowed, study.task).model, rounds + 1
        certificate = certify(narrowed, against=automaton)
    longest, trained = max(study.lengths), study.training.length
    inputs = {"length": longest, "batch_size": study.evaluation_batch, "seed": 10_000 + study.seeds[0]}
    judged = evaluate(narrowed, study.task, trained_length=trained, **inputs)
    said = {
        "refused": None,
        "by_position": list(judged.by_position),
        "states": hardened.rational_head.state_dim,
        "rounds": rounds,
        "about": certificate.about,
        "verdict": certificate.verdict,
        "margin": certificate.margin,
        "holds_up_to": certificate.holds_up_to,
    }
    return said, (narrowed, certificate)


def _trainer(arm: Arm, seed: int, device: str, state: Path | None) -> Trainer:
    """Return the run of one model as it was interrupted; a new one where there is none, or one of other settings."""
    settings, model = replace(arm.training, seed=seed), seeded_model(arm, seed, device)
    if state is not None and (state / "training.json").exists():
        try:
            trainer = Trainer.resumed(state, device=device)
        except CheckpointError:  # killed while it was written; what is lost is done again
            pass
        else:
            if (trainer.settings, trainer.source, trainer.model.config) == (settings, arm.task, model.config):
                return trainer
    return Trainer(model, arm.task, settings)


def _run(arm: Arm, trainer: Trainer, seed: int, on_step: OnStep | None, state: Path | None) -> dict[str, Any]:
    settings, trained = trainer.settings, arm.training.length
    progress = None if on_step is None else lambda point: on_step(arm.name, seed, point)
    trainer.run(progress, folder=state, checkpoint_every=_CHECKPOINT_EVERY)
    model, points = trainer.model, trainer.points
    random, adversarial = {}, {}
    for probe in arm.probes:
        if probe.family is None:
            inputs = {"length": probe.length, "batch_size": probe.sequences, "seed": 10_000 + seed}
            random[probe.length] = evaluate(model, arm.task, trained_length=trained, **inputs)
        else:
            for kind, tokens in arm.task.adversarial(probe.length).items():
                adversarial[kind] = evaluate_on(model, arm.task, tokens, trained).every_position
    return {
        "training": [asdict(point) for point in points if point.step % 10 == 0 or point.step == settings.steps],
        "lengths": [
            {"length": length, "every_position": accuracy.every_position, "beyond": accuracy.beyond}
            for length, accuracy in random.items()
        ],
        "adversarial": adversarial,
        "by_position": list(random[max(random)].by_position),
    }
