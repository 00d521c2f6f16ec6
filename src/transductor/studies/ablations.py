"""Study ``ablations``: one choice changed at a time."""

from __future__ import annotations

import math
from dataclasses import replace
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


def _injections() -> list[Arm]:
    """Vary where the state enters.  Without attention, only the state can carry what was read."""
    spec = FamilySpec("orthogonal", {"vocab_size": 2, "state_dim": 8})
    backbone = BackboneConfig(vocab_size=2, output_size=5, width=32, layers=2, attention=NoAttention())
    training = TrainingSettings(steps=1000, length=50)
    return [
        Arm(
            f"injection_{injection}",
            "ours",
            _COUNTING,
            TransductorConfig(HeadConfig("rational", spec), backbone, injection),
            training,
            _probes(50, 500),
        )
        for injection in INJECTIONS
    ]


def _families() -> list[Arm]:
    """Vary the family of matrices, on three tasks."""
    tasks: dict[str, Task] = {"counting": _COUNTING, "parity": Parity(), "flip_flop": FlipFlop()}
    return [
        Arm(
            f"family_{family}_on_{name}",
            "ours",
            task,
            _readout(task, family, 8),
            TrainingSettings(steps=1000, length=40, annealing=Annealing() if family == "stochastic" else None),
            _probes(40, 500),
        )
        for name, task in tasks.items()
        for family in FAMILIES
    ]


def _smoothings() -> list[Arm]:
    """Vary label smoothing, which is what the loss still rewards when every label is right."""
    tasks: dict[str, tuple[Task, str, int]] = {
        "parity": (Parity(), "orthogonal", 8),
        "arithmetic": (ModularArithmetic(), "dense", 32),
    }
    training = TrainingSettings(
        steps=2000, length=39, batch_size=128, optimiser="adam", clipping="per_tensor", curriculum=Curriculum(4)
    )
    return [
        Arm(
            f"smoothing_{name}_on_{task_name}",
            "ours",
            task,
            _readout(task, family, dim),
            replace(training, label_smoothing=smoothing),
            _probes(39, 255, 4999),
        )
        for task_name, (task, family, dim) in tasks.items()
        for name, smoothing in (("none", 0.0), ("tenth", 0.1))
    ]


def _starts() -> list[Arm]:
    """Vary how far from the identity the matrices of S3 start."""
    task = task_named("group:S3:all")
    training = TrainingSettings(steps=1000, length=40, optimiser="adam", curriculum=Curriculum(4))
    return [
        Arm(
            f"start_{name}",
            "ours",
            task,
            _readout(task, "squared_cayley", 8, init_scale=scale / math.sqrt(8)),
            training,
            _probes(40, 256),
        )
        for name, scale in (("at_identity", 1e-4), ("near_identity", 0.03), ("away", 0.3), ("far_away", 3.0))
    ]


def _compactness() -> list[Arm]:
    """Compare frozen random features of growing width with a learned state of dimension 2.

    Two dimensions are learned only if lengths grow; frozen features would not pass the first length.
    """
    training = TrainingSettings(steps=1500, length=20, clipping="per_tensor", label_smoothing=0.0)
    frozen = [
        Arm(
            f"frozen_{dim}",
            "ours",
            _COUNTING,
            _readout(_COUNTING, "random", dim, "random_features"),
            training,
            (Probe(10, 256), Probe(20, 256), Probe(40, 256)),
        )
        for dim in FROZEN_WIDTHS
    ]
    learned = Arm(
        "learned_2",
        "ours",
        _COUNTING,
        _readout(_COUNTING, "squared_cayley", 2),
        replace(training, curriculum=Curriculum(4)),
        (Probe(10, 256), Probe(20, 256), Probe(40, 256)),
    )
    return [*frozen, learned]


def _positions() -> list[Arm]:
    """Vary the positions of a model whose head counts already."""
    schemes: dict[str, PositionScheme] = {
        "none": NoPositions(),
        "learned": LearnedPositions(max_length=500),
        "rotary": RotaryPositions(),
        "sinusoidal": SinusoidalPositions(),
    }
    spec = FamilySpec("orthogonal", {"vocab_size": 2, "state_dim": 8})
    backbone = BackboneConfig(vocab_size=2, output_size=5, width=32, layers=2, attention_heads=4)
    return [
        Arm(
            f"positions_{name}",
            "ours",
            _COUNTING,
            TransductorConfig(HeadConfig("rational", spec), replace(backbone, positions=positions)),
            TrainingSettings(steps=1000, length=50),
            _probes(50, 500),
        )
        for name, positions in schemes.items()
    ]


ablations: Final = Study(
    "ablations",
    "Which choices matter: where the state enters, which family, how it starts, whether it learns, which positions?",
    (*_injections(), *_families(), *_smoothings(), *_starts(), *_compactness(), *_positions()),
)
