"""Study ``ablations``: one choice changed at a time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any, Final

from transductor.heads import HeadConfig
from transductor.model import (
    BackboneConfig,
    LearnedPositions,
    NoAttention,
    NoPositions,
    PositionScheme,
    ReadoutConfig,
    RotaryPositions,
    SinusoidalPositions,
    TransductorConfig,
)
from transductor.studies.study import EVERY_KIND, Arm, Probe, Study
from transductor.study_names import FAMILIES, FROZEN_WIDTHS, INJECTIONS
from transductor.tasks import FlipFlop, ModularArithmetic, ModularCounting, Parity, Task, task_named
from transductor.training import Annealing, Curriculum, TrainingSettings
from transductor.transitions import FamilySpec

_COUNTING: Final = ModularCounting(5)


def _probes(*lengths: int) -> tuple[Probe, ...]:
    return tuple(probe for length in lengths for probe in (Probe(length, 64), Probe(length, 1, family=EVERY_KIND)))


def _readout(task: Task, family: str, dim: int, head: str = "rational", **options: Any) -> ReadoutConfig:
    spec = FamilySpec(family, {"vocab_size": task.vocab_size, "state_dim": dim, **options})
    return ReadoutConfig(HeadConfig(head, spec), task.output_size)


def _counting_model(backbone: BackboneConfig, injection: str = "deep") -> TransductorConfig:
    spec = FamilySpec("orthogonal", {"vocab_size": 2, "state_dim": 8})
    return TransductorConfig(HeadConfig("rational", spec), backbone, injection)


def _arms(models: Mapping[str, Any], task: Task, training: TrainingSettings, probes: tuple[Probe, ...]) -> list[Arm]:
    return [Arm(name, "ours", task, model, training, probes) for name, model in models.items()]


def _injections() -> list[Arm]:
    """Vary where the state enters.  Without attention, only the state can carry what was read."""
    backbone = BackboneConfig(vocab_size=2, output_size=5, width=32, layers=2, attention=NoAttention())
    models = {f"injection_{injection}": _counting_model(backbone, injection) for injection in INJECTIONS}
    return _arms(models, _COUNTING, TrainingSettings(steps=1000, length=50), _probes(50, 500))


def _families() -> list[Arm]:
    """Vary the family of matrices, on three tasks."""
    tasks: dict[str, Task] = {"counting": _COUNTING, "parity": Parity(), "flip_flop": FlipFlop()}
    arms: list[Arm] = []
    for (name, task), family in product(tasks.items(), FAMILIES):
        annealing = Annealing() if family == "stochastic" else None
        training = TrainingSettings(steps=1000, length=40, annealing=annealing)
        arms += _arms({f"family_{family}_on_{name}": _readout(task, family, 8)}, task, training, _probes(40, 500))
    return arms


def _smoothings() -> list[Arm]:
    """Vary label smoothing, which is what the loss still rewards when every label is right."""
    parity, arithmetic = Parity(), ModularArithmetic()
    cases: dict[str, tuple[Task, ReadoutConfig]] = {
        "parity": (parity, _readout(parity, "orthogonal", 8)),
        "arithmetic": (arithmetic, _readout(arithmetic, "dense", 32)),
    }
    training = TrainingSettings(
        steps=2000, length=39, batch_size=128, optimiser="adam", clipping="per_tensor", curriculum=Curriculum(4)
    )
    arms: list[Arm] = []
    for (case, (task, model)), (name, smoothing) in product(cases.items(), {"none": 0.0, "tenth": 0.1}.items()):
        smoothed = replace(training, label_smoothing=smoothing)
        arms += _arms({f"smoothing_{name}_on_{case}": model}, task, smoothed, _probes(39, 255, 4999))
    return arms


def _starts() -> list[Arm]:
    """Vary how far from the identity the matrices of S3 start."""
    task = task_named("group:S3:all")
    training = TrainingSettings(steps=1000, length=40, optimiser="adam", curriculum=Curriculum(4))
    scales = {"at_identity": 1e-4, "near_identity": 0.03, "away": 0.3, "far_away": 3.0}
    models = {
        f"start_{name}": _readout(task, "squared_cayley", 8, init_scale=scale / math.sqrt(8))
        for name, scale in scales.items()
    }
    return _arms(models, task, training, _probes(40, 256))


def _compactness() -> list[Arm]:
    """Compare frozen random features of growing width with a learned state of dimension 2.

    Two dimensions are learned only if lengths grow; frozen features would not pass the first length.
    """
    training = TrainingSettings(steps=1500, length=20, clipping="per_tensor", label_smoothing=0.0)
    probes = (Probe(10, 256), Probe(20, 256), Probe(40, 256))
    frozen = {f"frozen_{dim}": _readout(_COUNTING, "random", dim, "random_features") for dim in FROZEN_WIDTHS}
    learned = {"learned_2": _readout(_COUNTING, "squared_cayley", 2)}
    growing = replace(training, curriculum=Curriculum(4))
    return [*_arms(frozen, _COUNTING, training, probes), *_arms(learned, _COUNTING, growing, probes)]


def _positions() -> list[Arm]:
    """Vary the positions of a model whose head counts already."""
    schemes: dict[str, PositionScheme] = {
        "none": NoPositions(),
        "learned": LearnedPositions(max_length=500),
        "rotary": RotaryPositions(),
        "sinusoidal": SinusoidalPositions(),
    }
    backbone = BackboneConfig(vocab_size=2, output_size=5, width=32, layers=2, attention_heads=4)
    models = {
        f"positions_{name}": _counting_model(replace(backbone, positions=scheme)) for name, scheme in schemes.items()
    }
    return _arms(models, _COUNTING, TrainingSettings(steps=1000, length=50), _probes(50, 500))


ablations: Final = Study(
    "ablations",
    "Which choices matter: where the state enters, which family, how it starts, whether it learns, which positions?",
    (*_injections(), *_families(), *_smoothings(), *_starts(), *_compactness(), *_positions()),
)
