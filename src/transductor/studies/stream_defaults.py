"""Study ``stream_defaults``: how should a head begin, and which, where the stream is text?

Each arm differs from ``slow`` in one choice: projections at zero, the head at 0.3 of the learning rate, orthogonal
matrices of dimension 32.  What helps on code must not hurt on tasks that a head has to carry, so the starts and rates
are tried on three of these too.  Plan and predictions: docs/language_models.md.
"""

from __future__ import annotations

from typing import Any, Final

from transductor.heads import HeadConfig
from transductor.model import BackboneConfig, FullAttention, GuidedConfig, RotaryPositions, SlidingWindow
from transductor.studies.code_models import PROBES, PYTHON, WINDOW, backbone, head, settings, transductor
from transductor.studies.study import EVERY_KIND, Arm, Probe, Study
from transductor.tasks import FlipFlop, ModularCounting, Task, task_named
from transductor.training import TrainingSettings
from transductor.transitions import FamilySpec

_SLOW: Final = 0.3
_STEPS: Final = 400
_LONG: Final = 1600
_BATCH: Final = 8
_WINDOW: Final = backbone(SlidingWindow(WINDOW))
_FULL: Final = backbone(FullAttention())


def _sum_of(*families: tuple[str, int]) -> HeadConfig:
    parts = tuple(FamilySpec(family, {"vocab_size": 256, "state_dim": dim}) for family, dim in families)
    return HeadConfig("rational", FamilySpec("direct_sum", {}, parts))


# Name, head, start of the projections, and the head's rate as a share of the rest's.
_HEADS: Final[tuple[tuple[str, HeadConfig, str, float], ...]] = (
    ("before", head("orthogonal"), "linear", 1.0),
    ("linear_slow", head("orthogonal"), "linear", 0.3),
    ("fast", head("orthogonal"), "zero", 1.0),
    ("slow", head("orthogonal"), "zero", 0.3),
    ("slower", head("orthogonal"), "zero", 0.1),
    ("forgetting", head("scaled_cayley"), "zero", 0.3),
    ("stochastic", head("stochastic"), "zero", 0.3),
    ("universal", head("universal"), "zero", 0.3),
    ("half_forgetting", _sum_of(("orthogonal", 16), ("scaled_cayley", 16)), "zero", 0.3),
    ("four_small", _sum_of(*(("scaled_cayley", 8),) * 4), "zero", 0.3),
)
_STARTS: Final = {"before": ("linear", 1.0), "fast": ("zero", 1.0), "slow": ("zero", 0.3), "slower": ("zero", 0.1)}
_TRACKED: Final[dict[str, tuple[Task, str]]] = {
    "counting": (ModularCounting(5), "orthogonal"),
    "flip_flop": (FlipFlop(), "stochastic"),
    "s3": (task_named("group:S3:all"), "orthogonal"),
}


def _on_code(name: str, column: str, model: Any, rate: float | None = _SLOW, steps: int = _STEPS) -> Arm:
    return Arm(name, column, PYTHON, model, settings(steps, batch_size=_BATCH, head_rate=rate), PROBES)


def _on_task(start: str, name: str) -> Arm:
    (task, family), (projections, rate) = _TRACKED[name], _STARTS[start]
    stream = BackboneConfig(
        vocab_size=task.vocab_size, output_size=task.output_size, width=32, layers=2, positions=RotaryPositions()
    )
    spec = FamilySpec(family, {"vocab_size": task.vocab_size, "state_dim": 8})
    training = TrainingSettings(steps=1000, length=40, learning_rate=5e-3, head_learning_rate=rate * 5e-3)
    probes = (Probe(40, 256), Probe(160, 256), Probe(160, 1, family=EVERY_KIND))
    return Arm(
        f"{start}_on_{name}",
        "ours",
        task,
        transductor(stream, HeadConfig("rational", spec), projections),
        training,
        probes,
    )


stream_defaults: Final = Study(
    "stream_defaults",
    "How should a head begin, and which head should it be, where the stream is source code?",
    (
        _on_code("transformer", "baseline", _WINDOW),
        *(_on_code(name, "ours", transductor(_WINDOW, config, start), rate) for name, config, start, rate in _HEADS),
        _on_code("filter", "ours", transductor(_WINDOW, head("positive"))),
        _on_code("frozen", "ours", GuidedConfig(_WINDOW)),
        _on_code("placebo", "baseline", GuidedConfig(_WINDOW, permutation=0)),
        _on_code("transformer_long", "baseline", _WINDOW, steps=_LONG),
        _on_code("frozen_long", "ours", GuidedConfig(_WINDOW), steps=_LONG),
        _on_code("transformer_full", "baseline", _FULL),
        _on_code("forgetting_full", "ours", transductor(_FULL, head("scaled_cayley"))),
        _on_code("frozen_full", "ours", GuidedConfig(_FULL)),
        *(_on_task(start, name) for name in _TRACKED for start in _STARTS),
    ),
    seeds=(0, 1, 2),
)
