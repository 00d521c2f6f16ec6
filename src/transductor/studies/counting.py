"""Studies ``regular_gap`` and ``length_generalization``: mod-5 counting far beyond the trained length."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from transductor.heads import HeadConfig
from transductor.model import (
    BackboneConfig,
    LearnedPositions,
    NoAttention,
    NoPositions,
    RelativePositions,
    RotaryPositions,
    TransductorConfig,
)
from transductor.studies.study import Arm, Probe, Study
from transductor.study_names import POSITIONS
from transductor.tasks import ModularCounting
from transductor.training import TrainingSettings
from transductor.transitions import FamilySpec

_TASK: Final = ModularCounting(5)
_BACKBONE: Final = BackboneConfig(vocab_size=2, output_size=5, width=32, layers=2, attention_heads=4)
_BIASES: Final = (None, 0.1, 0.9)
_LONGEST_BASELINE: Final = 1000  # they guess long before that


def _probes(lengths: tuple[int, ...], longest: int) -> tuple[Probe, ...]:
    probes: list[Probe] = []
    for length in (*lengths, longest):
        if length <= longest:
            sequences = max(4, min(64, 64_000 // length))
            probes += [Probe(length, sequences, bias) for bias in _BIASES]
            probes.append(Probe(length, 1, family="all ones"))
    return tuple(dict.fromkeys(probes))


def _study(name: str, question: str, training: TrainingSettings, lengths: tuple[int, ...], longest: int) -> Study:
    """Return a study of counting, with the paper's training; our model is judged up to the length ``longest``.

    Our model has no attention: by attending to neighbours it could be right on random inputs without a head that
    counts.  Without attention the model is a function of token and state, and can be proved right.
    """
    size = {"vocab_size": _TASK.vocab_size, "state_dim": 8}
    paper = TransductorConfig(HeadConfig("rational", FamilySpec("cayley", size)), _BACKBONE)
    backbone = replace(_BACKBONE, attention=NoAttention())
    ours = TransductorConfig(HeadConfig("rational", FamilySpec("orthogonal", size)), backbone)
    smoothed = replace(training, schedule="cosine", label_smoothing=0.1, steps=1500)
    schemes = {
        "learned": LearnedPositions(max_length=_LONGEST_BASELINE),
        "rotary": RotaryPositions(),
        "relative": RelativePositions(),
        "none": NoPositions(),
    }
    far = _probes(lengths, max(lengths))
    return Study(
        name,
        question,
        (
            Arm("transductor_paper", "paper", _TASK, paper, training, (*far, *_probes((), 10_000))),
            Arm("transductor_ours", "ours", _TASK, ours, smoothed, (*far, *_probes((10_000,), longest)), harden=True),
            *(
                Arm(
                    f"transformer_{scheme}",
                    "baseline",
                    _TASK,
                    replace(_BACKBONE, positions=schemes[scheme]),
                    training if scheme == "learned" else replace(training, steps=2000),
                    _probes(lengths, _LONGEST_BASELINE),
                )
                for scheme in POSITIONS
            ),
        ),
    )


_PAPER: Final = TrainingSettings(
    steps=3000, length=50, batch_size=64, learning_rate=5e-3, label_smoothing=0.0, schedule="constant"
)

regular_gap: Final = _study(
    "regular_gap",
    "Does a model that learned to count modulo 5 on 50 tokens count on longer inputs?",
    _PAPER,
    (50, 100, 200, 500, 1000),
    10_000,
)

length_generalization: Final = _study(
    "length_generalization",
    "How far does counting modulo 5, learned on 40 tokens, reach?",
    replace(_PAPER, length=40, schedule="cosine"),
    (40, 100, 200, 500, 1000),
    100_000,
)
