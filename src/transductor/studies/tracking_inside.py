"""Study ``tracking_inside``: the heads of ``tracking`` inside a Transformer, beside attention.

The heads have the sizes that they have alone, and all share one Transformer, which they enter before both layers.  A
Transformer of as many parameters, without a head, is the peer.  Each model seeks the rate of its Transformer; its head
keeps the rate that it chose alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from transductor.heads import HeadConfig
from transductor.model import BackboneConfig, RelativePositions, TransductorConfig
from transductor.studies.study import Arm, Probe, Study
from transductor.study_names import TRACKED_INSIDE, TRACKERS_INSIDE
from transductor.tasks import PartlyObserved
from transductor.training import TrainingSettings
from transductor.transitions import FamilySpec

_TASKS: Final = {"8_slow": PartlyObserved(8), "8_fast": PartlyObserved(8, slip=0.05, hidden=0.2)}
_RATES: Final = (0.003, 0.01, 0.03)
# Family, dimension and rate of each head, as in ``tracking``.
_HEADS: Final = {
    "filter": ("positive", 16, 0.1),
    "orthogonal": ("orthogonal", 23, 0.003),
    "dense": ("dense", 16, 0.01),
    "columns": ("column_choice", 16, 0.1),
}
_PROBES: Final = (Probe(40, 512), Probe(160, 256), Probe(640, 64), Probe(2560, 16))


def _arm(process: str, tracker: str) -> Arm:
    task = _TASKS[process]
    backbone = BackboneConfig(
        vocab_size=task.vocab_size,
        output_size=task.states,
        width=24,
        layers=2,
        attention_heads=2,
        feedforward=72,
        positions=RelativePositions(),
    )
    training = TrainingSettings(
        steps=1000,
        length=40,
        batch_size=64,
        learning_rate=_RATES[1],
        label_smoothing=0.0,
        optimiser="adam",
        betas=(0.9, 0.99),
        warmup=50,
    )
    model: Any = replace(backbone, width=36, feedforward=98)
    if tracker != "transformer":
        family, dim, rate = _HEADS[tracker]
        spec = FamilySpec(family, {"vocab_size": task.vocab_size, "state_dim": dim})
        model = TransductorConfig(HeadConfig("filter" if tracker == "filter" else "rational", spec), backbone)
        training = replace(training, head_learning_rate=rate)
    column = "baseline" if tracker == "transformer" else "ours"
    return Arm(f"{tracker}_on_{process}", column, task, model, training, _PROBES, rates=_RATES)


tracking_inside: Final = Study(
    "tracking_inside",
    "How near to Bayes is a Transformer with a head that tracks, on words 64 times as long as those it learned from?",
    tuple(_arm(process, tracker) for process in TRACKED_INSIDE for tracker in TRACKERS_INSIDE),
)
