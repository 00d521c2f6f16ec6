"""Study ``deep_injection``: where the state enters six layers that attend, on tasks that use it in three ways.

``ablations`` has two layers without attention, where only the state can carry anything and one injection is enough.
Here attention is on, the model is deep and narrow, and the three tasks differ in what the state is good for:

* counting: the state alone is the answer, and six layers of attention are only in the way;
* held count: the state turns on while attention must copy what it was at the last mark, so the two must meet;
* flip-flop: attention alone can look up the last write, and a rotation cannot be reset: the state is of little use.
"""

from __future__ import annotations

from typing import Final

from transductor.heads import HeadConfig
from transductor.model import BackboneConfig, RotaryPositions, TransductorConfig
from transductor.studies.study import EVERY_KIND, Arm, Probe, Study
from transductor.study_names import INJECTED_TASKS, INJECTIONS
from transductor.tasks import FlipFlop, HeldCount, ModularCounting, Task
from transductor.training import TrainingSettings
from transductor.transitions import FamilySpec

_TASKS: Final[dict[str, Task]] = {"counting": ModularCounting(5), "held_count": HeldCount(3), "flip_flop": FlipFlop()}
# Small enough for one core: a step of five seeds takes about a tenth of a second.
_TRAINING: Final = TrainingSettings(steps=1500, length=20, batch_size=16, warmup=50)
_PROBES: Final = tuple(
    probe for length in (20, 40, 160) for probe in (Probe(length, 256), Probe(length, 1, family=EVERY_KIND))
)


def _arm(task: str, injection: str) -> Arm:
    asked = _TASKS[task]
    head = HeadConfig("rational", FamilySpec("orthogonal", {"vocab_size": asked.vocab_size, "state_dim": 4}))
    backbone = BackboneConfig(
        vocab_size=asked.vocab_size,
        output_size=asked.output_size,
        width=16,
        layers=6,
        attention_heads=2,
        positions=RotaryPositions(),
    )
    model = TransductorConfig(head, backbone, injection)
    return Arm(f"injection_{injection}_on_{task}", "ours", asked, model, _TRAINING, _PROBES)


deep_injection: Final = Study(
    "deep_injection",
    "Six layers with attention: does it matter whether the state enters before every layer, the first, or none?",
    tuple(_arm(task, injection) for task in INJECTED_TASKS for injection in INJECTIONS),
)
