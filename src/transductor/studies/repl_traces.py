"""Study ``repl_traces``: traces of a Python prompt, learned as a language model learns, at eight times as many swaps.

Trained on 90 tokens: five assignments, a print, and 24 lines of swaps and prints; judged on 594, which has eight times
as many of those lines.  What counts is the value at every print.
"""

from __future__ import annotations

from typing import Any, Final

from transductor.heads import HeadConfig
from transductor.model import (
    BackboneConfig,
    FilterReadoutConfig,
    LSTMConfig,
    RotaryPositions,
    StackedConfig,
    TransductorConfig,
)
from transductor.studies.study import EVERY_KIND, Arm, Probe, Study
from transductor.study_names import PROMPTS
from transductor.tasks import ReplTraces
from transductor.training import TrainingSettings
from transductor.transitions import FamilySpec

_LINES: Final = 24
_LENGTH: Final = 3 * (6 + _LINES)
_FAR: Final = 3 * (6 + 8 * _LINES)
_PROBES: Final = (Probe(_LENGTH, 256), Probe(_FAR, 64), Probe(_FAR, 1, family=EVERY_KIND))
_TASKS: Final = {"observed": ReplTraces(hidden=0.0), "hidden": ReplTraces()}
_RATES: Final = {"filter": 0.1, "inside": 0.003, "stacked": 0.003, "lstm": 0.01}
_WIDTH: Final = 64


def _factors(tokens: int, states: int) -> HeadConfig:
    part = FamilySpec("positive", {"vocab_size": tokens, "state_dim": states})
    return HeadConfig("factored_filter", FamilySpec("direct_sum", {}, (part,) * 5))


def _model(name: str, task: ReplTraces) -> Any:
    tokens = task.vocab_size
    if name == "lstm":
        return LSTMConfig(vocab_size=tokens, output_size=tokens, width=256)
    if name == "filter":
        return FilterReadoutConfig(_factors(tokens, 64), tokens)
    backbone = BackboneConfig(
        vocab_size=tokens,
        output_size=tokens,
        width=_WIDTH,
        layers=3,
        attention_heads=2,
        positions=RotaryPositions(),
    )
    if name == "inside":
        return TransductorConfig(_factors(tokens, 32), backbone)
    by_stream = HeadConfig("rational", FamilySpec("householder", {"feature_dim": _WIDTH, "state_dim": 16}))
    return StackedConfig((by_stream,) * 3, backbone)


def _arm(name: str) -> Arm:
    model, _, process = name.partition("_on_")
    task = _TASKS[process]
    training = TrainingSettings(
        steps=4000,
        length=_LENGTH,
        batch_size=64,
        learning_rate=_RATES[model],
        label_smoothing=0.0,
        optimiser="adam",
        betas=(0.9, 0.99),
        warmup=100,
        head_learning_rate=0.1 if model == "inside" else None,
    )
    return Arm(name, "baseline" if model == "lstm" else "ours", task, _model(model, task), training, _PROBES)


repl_traces: Final = Study(
    "repl_traces",
    "Which models print the right value at a Python prompt after eight times as many swaps as they learned from?",
    tuple(_arm(name) for name in PROMPTS),
)
