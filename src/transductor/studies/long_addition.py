"""Study ``long_addition``: a carry that must be held, on random operands and on the longest carries there are."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from transductor.heads import HeadConfig
from transductor.model import BackboneConfig, LearnedPositions, NoAttention, RotaryPositions, TransductorConfig
from transductor.studies.study import EVERY_KIND, Arm, Probe, Study
from transductor.tasks import LongAddition
from transductor.training import Annealing, TrainingSettings
from transductor.transitions import FamilySpec

_TASK: Final = LongAddition()
_BACKBONE: Final = BackboneConfig(
    vocab_size=_TASK.vocab_size, output_size=_TASK.output_size, width=32, layers=2, attention_heads=4
)
_PAPER: Final = TrainingSettings(
    steps=4000, length=40, shortest=10, batch_size=64, learning_rate=5e-3, label_smoothing=0.0, schedule="constant"
)


def _probes(*lengths: int) -> tuple[Probe, ...]:
    probes: list[Probe] = []
    for length in lengths:
        sequences = max(4, min(128, 64_000 // length))
        probes += [Probe(length, sequences), Probe(length, sequences, bias=0.9), Probe(length, 1, family=EVERY_KIND)]
    return tuple(probes)


def _family(dim: int) -> FamilySpec:
    return FamilySpec("stochastic", {"vocab_size": _TASK.vocab_size, "state_dim": dim})


_FAR: Final = _probes(20, 40, 100, 200, 500, 1000, 10_000)
_NEAR: Final = _probes(20, 40, 100, 200, 500, 1000)
_STATE_AFTER: Final = TransductorConfig(HeadConfig("rational", _family(4)), _BACKBONE)
# No attention: neighbours of a digit do not change its sum, and rare ones cannot mislead.
_STATE_BEFORE: Final = TransductorConfig(
    HeadConfig("lookback", _family(2)), replace(_BACKBONE, attention=NoAttention())
)
_ANNEALED: Final = replace(_PAPER, schedule="cosine", annealing=Annealing())
_LEARNED: Final = replace(_BACKBONE, positions=LearnedPositions(max_length=5000))
_ROTARY: Final = replace(_BACKBONE, positions=RotaryPositions())

long_addition: Final = Study(
    "long_addition",
    "Does a model that learned to add numbers of 10 to 40 digits add longer ones, and carry as far as it takes?",
    (
        Arm("transductor_paper", "paper", _TASK, _STATE_AFTER, _PAPER, _FAR),
        Arm("transductor_ours", "ours", _TASK, _STATE_BEFORE, _ANNEALED, _FAR, harden=True),
        Arm("transformer_learned", "baseline", _TASK, _LEARNED, _PAPER, _NEAR),
        Arm("transformer_rotary", "baseline", _TASK, _ROTARY, replace(_PAPER, steps=2000), _NEAR),
    ),
)
