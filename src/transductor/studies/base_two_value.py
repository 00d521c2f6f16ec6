"""Study ``base_two_value``: the value of a binary numeral, which grows with the length."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from transductor.heads import HeadConfig
from transductor.model import BackboneConfig, LSTMConfig, ReadoutConfig, RelativePositions
from transductor.studies.study import Arm, LeastSquaresFit, Probe, Study
from transductor.tasks import BaseValue
from transductor.training import Curriculum, TrainingSettings
from transductor.transitions import FamilySpec

_PAPER: Final = TrainingSettings(
    steps=3600,
    length=64,
    batch_size=32,
    learning_rate=1e-2,
    optimiser="adam",
    labels="last",
    double=True,
)
# Every prefix is an example, in the unit of its own length; short prefixes come first.
_OURS: Final = replace(
    _PAPER, steps=600, length=16, labels="every", schedule="constant", clipping="per_tensor", curriculum=Curriculum(4)
)
# What a practitioner would do for the baselines: a label at every prefix, a suitable rate, a warm-up, float32.
_PRACTICAL: Final = replace(
    _PAPER, steps=2000, labels="every", learning_rate=2e-3, optimiser="adamw", warmup=200, double=False
)
_PROBES: Final = tuple(Probe(length, 256) for length in (8, 16, 32, 64, 128))


def _affine(dim: int) -> ReadoutConfig:
    """Return a model with the state ``h ↦ A h + b`` on ``dim`` coordinates and a constant one."""
    spec = FamilySpec("affine", {"vocab_size": 2, "state_dim": dim + 1})
    return ReadoutConfig(HeadConfig("rational", spec), 1)


def _arms(first: bool) -> tuple[Arm, ...]:
    suffix = "" if first else "_last_digit_first"
    divided = BaseValue(most_significant_first=first)
    transformer = BackboneConfig(
        vocab_size=2, output_size=1, width=32, layers=3, attention_heads=4, positions=RelativePositions()
    )
    lstm = LSTMConfig(vocab_size=2, output_size=1, width=32)
    as_in_the_paper = {"transductor": _affine(12), "lstm": lstm, "transformer": transformer}
    return (
        *(
            Arm(f"{name}_paper", "paper", divided, model, _PAPER, _PROBES)
            for name, model in as_in_the_paper.items()
            if first
        ),
        Arm(
            f"transductor_ours{suffix}",
            "ours",
            replace(divided, normalised=False),
            _affine(4),
            _OURS,
            _PROBES,
            fit=LeastSquaresFit(16),
            harden=True,
        ),
        Arm(f"lstm{suffix}", "baseline", divided, lstm, _PRACTICAL, _PROBES),
        Arm(f"transformer_relative{suffix}", "baseline", divided, transformer, _PRACTICAL, _PROBES),
    )


base_two_value: Final = Study(
    "base_two_value",
    "Does a model learn the value of a binary numeral, or a table of its leading digits?",
    (*_arms(first=True), *_arms(first=False)),
)
