"""Studies ``code_models`` and ``code_models_c``: does a head, learned or frozen, help a model of source code?

Plan and predictions: docs/language_models.md.  Every arm has about as many parameters, reads the same windows in the
same order, and is judged on files of packages that no training window comes from.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from transductor.heads import HeadConfig
from transductor.model import (
    AttentionKind,
    BackboneConfig,
    FullAttention,
    GuidedConfig,
    LSTMConfig,
    RotaryPositions,
    SlidingWindow,
    TransductorConfig,
)
from transductor.studies.study import Arm, Probe, Study
from transductor.tasks import SourceCode
from transductor.training import TrainingSettings
from transductor.transitions import FamilySpec

PYTHON: Final = SourceCode("python", "ba7f03eb59fc216ea83a7b747907d8fac89324cfd2134db27dc792d88c435f43")
C: Final = SourceCode("c", "142a0c3934f64973fc3032199734c636ba89605f61c121a8f93640bf0869462f")
WINDOW: Final = 256
PROBES: Final = (Probe(2048, 256), Probe(32_768, 16))
RATE: Final = 1e-3


def backbone(attention: AttentionKind, *, width: int = 384, layers: int = 8) -> BackboneConfig:
    """Return the Transformer that all arms with attention share: 14.4 million parameters, heads of 64."""
    return BackboneConfig(
        vocab_size=256,
        width=width,
        layers=layers,
        attention_heads=max(1, width // 64),
        positions=RotaryPositions(),
        attention=attention,
    )


def settings(steps: int, *, batch_size: int = 16, head_rate: float | None = None) -> TrainingSettings:
    """Return how every arm is trained, on windows of 2 048 bytes; ``head_rate`` is a share of the rate."""
    return TrainingSettings(
        steps=steps,
        length=2048,
        batch_size=batch_size,
        learning_rate=RATE,
        head_learning_rate=None if head_rate is None else head_rate * RATE,
        weight_decay=0.1,
        label_smoothing=0.0,
        warmup=min(steps, max(10, steps // 20)),
        betas=(0.9, 0.95),
        precision="bfloat16",
    )


def head(family: str, dim: int = 32) -> HeadConfig:
    """Return a head over bytes; ``"universal"`` is half orthogonal, half stochastic."""
    if family == "universal":
        parts = tuple(
            FamilySpec(each, {"vocab_size": 256, "state_dim": dim // 2}) for each in ("orthogonal", "stochastic")
        )
        return HeadConfig("universal", FamilySpec("direct_sum", {}, parts))
    kind = "filter" if family == "positive" else "rational"
    return HeadConfig(kind, FamilySpec(family, {"vocab_size": 256, "state_dim": dim}))


def transductor(stream: BackboneConfig, config: HeadConfig, projections: str = "zero") -> TransductorConfig:
    """Return a model with a head, whose projections start at zero unless said otherwise."""
    return TransductorConfig(config, stream, projections=projections)


def _models(stream: BackboneConfig) -> dict[str, tuple[str, Any]]:
    """Return column and model of every arm on one kind of attention."""
    return {
        "transformer": ("baseline", stream),
        "learned": ("ours", transductor(stream, head("orthogonal"))),
        "forgetting": ("ours", transductor(stream, head("scaled_cayley"))),
        "universal": ("ours", transductor(stream, head("universal"))),
        "filter": ("ours", transductor(stream, head("positive"))),
        "frozen": ("ours", GuidedConfig(stream)),
        "placebo": ("baseline", GuidedConfig(stream, permutation=0)),
    }


def _arms(steps: int, task: SourceCode) -> tuple[Arm, ...]:
    arms = [
        Arm(f"{model}_{reach}", column, task, config, settings(steps), PROBES)
        for reach, attention in (("window", SlidingWindow(WINDOW)), ("full", FullAttention()))
        for model, (column, config) in _models(backbone(attention)).items()
    ]
    return *arms, Arm("lstm", "baseline", task, LSTMConfig(256, width=768, layers=3), settings(steps), PROBES)


def _wide_arms(steps: int) -> tuple[Arm, ...]:
    """Return the arms that matter most, at 31.6 million parameters."""
    models = _models(backbone(SlidingWindow(WINDOW), width=512, layers=10))
    chosen = ("transformer", "forgetting", "frozen")
    return tuple(
        Arm(f"{name}_window_30m", models[name][0], PYTHON, models[name][1], settings(steps), PROBES) for name in chosen
    )


def quick_code(study: Study) -> Study:
    """Return the study as a check that everything runs: small models, one seed, the standard library in its corpus."""

    def small(model: Any) -> Any:
        if isinstance(model, LSTMConfig):
            return replace(model, width=48, layers=1)
        if isinstance(model, BackboneConfig):
            kind = SlidingWindow(32) if isinstance(model.attention, SlidingWindow) else model.attention
            return replace(model, width=32, layers=2, attention_heads=2, attention=kind)
        return replace(model, backbone=small(model.backbone))

    arms = []
    for arm in study.arms:
        if not isinstance(arm.task, SourceCode):
            arms.append(arm.shortened())
            continue
        training = replace(arm.training, steps=30, length=128, batch_size=4, warmup=3, precision="float32")
        probes = (Probe(128, 8), Probe(1024, 4))
        arms.append(
            replace(arm, task=SourceCode(), model=small(arm.model), training=training, probes=probes, quick=True)
        )
    return replace(study, arms=tuple(arms), seeds=study.seeds[:1])


_QUESTION: Final = "Does an automaton, learned or frozen, help a Transformer to predict source code"
code_models: Final = Study("code_models", f"{_QUESTION}?", (*_arms(6000, PYTHON), *_wide_arms(6000)), seeds=(0, 1, 2))
code_models_c: Final = Study("code_models_c", f"{_QUESTION} in C?", _arms(3000, C), seeds=(0, 1, 2))
