"""Study ``hidden_swaps``: one belief over the 120 orders of five things that change places, or a product of small ones.

``five_of_8`` are five filters of eight states, ``ten_of_20`` ten of twenty (as many as there are pairs of things), each
with a distribution over all orders for every state; ``one_of_120`` is one filter with as many states as there are
orders.  The LSTM has about as many parameters as ``ten_of_20``.
"""

from __future__ import annotations

from typing import Any, Final

from transductor.heads import HeadConfig
from transductor.model import FilterReadoutConfig, LSTMConfig
from transductor.studies.study import Arm, Probe, Study
from transductor.study_names import SWAP_TRACKERS
from transductor.tasks import HiddenSwaps
from transductor.training import TrainingSettings
from transductor.transitions import FamilySpec

_TASK: Final = HiddenSwaps()
_FACTORS: Final = {"five_of_8": (5, 8), "ten_of_20": (10, 20)}
_RATES: Final = {"lstm": (0.003, 0.01, 0.03)}
_OF_FILTERS: Final = (0.03, 0.1, 0.3)
_PROBES: Final = (Probe(40, 512), Probe(160, 128), Probe(640, 32), Probe(2560, 8))


def _filter_of(states: int) -> FamilySpec:
    return FamilySpec("positive", {"vocab_size": _TASK.vocab_size, "state_dim": states})


def _model(tracker: str) -> Any:
    if tracker == "lstm":
        return LSTMConfig(vocab_size=_TASK.vocab_size, output_size=_TASK.output_size, width=143)
    if tracker == "one_of_120":
        return FilterReadoutConfig(HeadConfig("filter", _filter_of(_TASK.output_size)), _TASK.output_size)
    count, states = _FACTORS[tracker]
    spec = FamilySpec("direct_sum", {}, (_filter_of(states),) * count)
    return FilterReadoutConfig(HeadConfig("factored_filter", spec), _TASK.output_size)


def _arm(tracker: str) -> Arm:
    rates = _RATES.get(tracker, _OF_FILTERS)
    training = TrainingSettings(
        steps=3000,
        length=40,
        batch_size=64,
        learning_rate=rates[1],
        label_smoothing=0.0,
        optimiser="adam",
        betas=(0.9, 0.99),
        warmup=50,
    )
    column = "baseline" if tracker == "lstm" else "ours"
    return Arm(f"{tracker}_on_five_things", column, _TASK, _model(tracker), training, _PROBES, rates=rates)


hidden_swaps: Final = Study(
    "hidden_swaps",
    "Five things change places, partly unseen: how near to a belief over 120 orders is a product of small ones?",
    tuple(_arm(tracker) for tracker in SWAP_TRACKERS),
)
