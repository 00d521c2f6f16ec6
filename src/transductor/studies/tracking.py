"""Studies ``tracking``, ``tracking_wide`` and ``tracking_more``: beliefs learned on 40 tokens, beside Bayes.

All models see the same tokens, and each seeks its own learning rate.  The filter has twice as many states as the
automaton; the others get as many parameters, as nearly as their sizes allow: an orthogonal head and one of columns go
in steps of a dimension.  ``tracking_more`` is for automata with more to learn: its batches are larger, for all models.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from transductor.heads import HeadConfig
from transductor.model import BackboneConfig, FilterReadoutConfig, LSTMConfig, ReadoutConfig, RelativePositions
from transductor.studies.study import Arm, Probe, Study
from transductor.study_names import TRACKED, TRACKED_MORE, TRACKED_WIDE, TRACKERS
from transductor.tasks import PartlyObserved
from transductor.training import TrainingSettings
from transductor.transitions import FamilySpec

_CHAINS: Final[dict[str, dict[str, Any]]] = {
    "slow": {"slip": 0.005, "hidden": 0.05},
    "fast": {"slip": 0.05, "hidden": 0.2},
}
_SHOWN: Final[dict[str, dict[str, Any]]] = {
    "": {"read": 0.1, "noise": 0.3, "reveal": 0.01},
    "revealed": {"read": 0.01, "noise": 0.3, "reveal": 0.1},
    "vague": {"read": 0.5, "noise": 0.8, "reveal": 0.01},
}


class _Sizes(NamedTuple):
    """What gives every model about as many parameters as a filter of twice the states."""

    orthogonal: int
    lstm: int
    transformer: int  # the width of two layers
    feedforward: int


_SIZES: Final = {
    5: _Sizes(15, 18, 12, 30),
    8: _Sizes(23, 37, 24, 72),
    16: _Sizes(45, 104, 64, 224),
    32: _Sizes(90, 306, 184, 664),
}
_RATES: Final = {
    "filter": (0.03, 0.1, 0.3),
    "orthogonal": (0.001, 0.003, 0.01),
    "dense": (0.003, 0.01, 0.03),
    "columns": (0.01, 0.03, 0.1),
    "lstm": (0.003, 0.01, 0.03),
    "transformer": (0.003, 0.01, 0.03),
}
# Words of a batch by states, 64 elsewhere.  A filter of 2K states has 24 K³ numbers: eight times as many for twice K.
_WORDS: Final = {8: 256, 16: 512, 32: 1024}
_PROBES: Final = (Probe(40, 512), Probe(160, 256), Probe(640, 64), Probe(2560, 16))


def _task(process: str) -> PartlyObserved:
    states, chain, *shown = process.split("_")
    return PartlyObserved(int(states), **_CHAINS[chain], **_SHOWN["".join(shown)])


def _model(tracker: str, task: PartlyObserved) -> Any:
    """Return the configuration of a model."""
    states, sizes = task.states, _SIZES[task.states]
    tokens: dict[str, Any] = {"vocab_size": task.vocab_size, "output_size": states}
    if tracker == "lstm":
        return LSTMConfig(**tokens, width=sizes.lstm)
    if tracker == "transformer":
        return BackboneConfig(
            **tokens,
            width=sizes.transformer,
            layers=2,
            attention_heads=2,
            feedforward=sizes.feedforward,
            positions=RelativePositions(),
        )
    family = {"filter": "positive", "columns": "column_choice"}.get(tracker, tracker)
    dim = sizes.orthogonal if tracker == "orthogonal" else 2 * states
    spec = FamilySpec(family, {"vocab_size": task.vocab_size, "state_dim": dim})
    if tracker == "filter":
        return FilterReadoutConfig(HeadConfig("filter", spec), states)
    return ReadoutConfig(HeadConfig("rational", spec), states)


def _arm(process: str, tracker: str, batches: Mapping[int, int]) -> Arm:
    task, rates = _task(process), _RATES[tracker]
    training = TrainingSettings(
        steps=1000,
        length=40,
        batch_size=batches.get(task.states, 64),
        learning_rate=rates[1],
        label_smoothing=0.0,  # it would flatten probabilities
        optimiser="adam",
        betas=(0.9, 0.99),
        warmup=50 if tracker == "transformer" else 0,
    )
    column = "baseline" if tracker in ("lstm", "transformer") else "ours"
    model = _model(tracker, task)
    return Arm(f"{tracker}_on_{process}", column, task, model, training, _PROBES, rates=rates)


def _arms(processes: tuple[str, ...], batches: Mapping[int, int] = MappingProxyType({})) -> tuple[Arm, ...]:
    return tuple(_arm(process, tracker, batches) for process in processes for tracker in TRACKERS)


tracking: Final = Study(
    "tracking",
    "How near to Bayes are beliefs about a hidden state, learned on 40 tokens, on 64 times as many?",
    _arms(TRACKED),
)
tracking_wide: Final = Study(
    "tracking_wide",
    "How near to Bayes do learned beliefs stay with more states, and with other emissions?",
    _arms(TRACKED_WIDE),
)
tracking_more: Final = Study(
    "tracking_more",
    "How near to Bayes are learned beliefs when automata with more to learn give more words a batch?",
    _arms(TRACKED_MORE, _WORDS),
)
